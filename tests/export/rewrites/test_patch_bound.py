import math

import pytest
import torch

from foretell.export.rewrites.patch_bound import Patches, patch_score_bound
from foretell.export.rewrites.patchtst import FlatPatchEncoder
from foretell.models.architectures.patchtst import PatchTST, PatchTSTConfig
from foretell.models.attention.softmax import MultiHeadAttention
from foretell.models.layers.normalization import InstanceNorm

D_MODEL, PATCH, STRIDE, CONTEXT = 8, 6, 4, 30


def made(heads: int = 2) -> tuple[MultiHeadAttention, Patches]:
    """Patches that share steps, the last one with padding, as it is done."""
    starts = torch.arange(0, CONTEXT - PATCH + STRIDE + 1, STRIDE)
    steps = (starts[:, None] + torch.arange(PATCH)).clamp(max=CONTEXT - 1)
    patches = Patches(torch.randn(D_MODEL, PATCH), torch.randn(len(steps), D_MODEL), steps, CONTEXT)
    return MultiHeadAttention(D_MODEL, heads), patches


def scores(plain: MultiHeadAttention, patches: Patches, series: torch.Tensor) -> torch.Tensor:
    return scores_of(plain, patches, series).detach()


def scores_of(plain: MultiHeadAttention, patches: Patches, series: torch.Tensor) -> torch.Tensor:
    """`[series, heads, query, key]`, without the key's bias."""
    tokens = series[:, patches.steps] @ patches.projection.T + patches.positions
    split = (len(series), len(patches.steps), plain.heads, -1)
    query = plain.query(tokens).reshape(split)
    key = (tokens @ plain.key.weight.T).reshape(split)
    return torch.einsum("sihf,sjhf->shij", query, key) * query.shape[-1] ** -0.5


def normed(series: torch.Tensor) -> torch.Tensor:
    return InstanceNorm(1)(series[:, :, None])[0][:, :, 0]


@pytest.mark.parametrize("heads", [1, 4])
def test_no_score_is_larger(float64, heads):
    torch.manual_seed(heads)
    plain, patches = made(heads)
    bound = patch_score_bound(plain, patches)
    # Energy in a few neighbouring steps, the last ones too, makes the largest scores.
    places = torch.arange(CONTEXT)[:, None] - torch.arange(CONTEXT)
    spikes = torch.eye(CONTEXT)
    bursts = torch.randn(4000, CONTEXT) * (places.abs() < PATCH).double().repeat(134, 1)[:4000]
    for series in (spikes, -spikes, bursts, torch.randn(4000, CONTEXT).cumsum(dim=1)):
        for scale in (1e-2, 1.0, 1e6):
            assert scores(plain, patches, normed(scale * series)).abs().max() <= bound


def test_the_largest_score_is_reached(float64):
    """Without biases and positions the bound is an eigenvalue, which its eigenvector reaches."""
    torch.manual_seed(2)
    plain, patches = made(1)
    torch.nn.init.zeros_(plain.query.bias)
    patches.positions.zero_()
    found = 0.0
    for query in patches.steps:
        for key in patches.steps:
            picks = torch.eye(CONTEXT)
            form = (plain.query.weight @ patches.projection @ picks[query]).T @ (
                plain.key.weight @ patches.projection @ picks[key]
            )
            series = torch.linalg.eigh(form + form.T)[1].T.detach() * math.sqrt(CONTEXT)
            found = max(found, scores(plain, patches, series).abs().max().item())
    assert math.isclose(found, patch_score_bound(plain, patches), rel_tol=1e-6)


@pytest.mark.parametrize("decides", ["the position of the key", "the bias", "both positions"])
def test_what_is_not_the_series_counts_too(float64, decides):
    """Of small steps only the linear terms, or the constant ones, matter."""
    torch.manual_seed(3)
    plain, patches = made(2)
    patches.projection.mul_(1e-6)
    with torch.no_grad():
        if decides == "the bias":
            patches.positions.zero_()
        elif decides == "the position of the key":
            patches.positions.copy_(patches.positions[:1].expand_as(patches.positions))
            plain.query.bias.copy_(-plain.query.weight @ patches.positions[0])
    still = torch.zeros(CONTEXT)
    slopes = torch.func.jacrev(lambda series: scores_of(plain, patches, series[None])[0])(still)
    directions = torch.nn.functional.normalize(slopes.reshape(-1, CONTEXT), dim=1)
    series = torch.cat([directions, -directions]).detach() * math.sqrt(CONTEXT)
    found = scores(plain, patches, series).abs().max().item()
    assert math.isclose(found, patch_score_bound(plain, patches), rel_tol=1e-3)


def form(**changes) -> FlatPatchEncoder:
    torch.manual_seed(0)
    given = {"d_model": 16, "heads": 4, "d_ff": 16, "encoder_layers": 2} | changes
    branches = PatchTST(PatchTSTConfig(context=48, horizon=4, channels=2, **given)).eval().branches
    return FlatPatchEncoder(branches[0])


def test_what_is_served_reads_bounded_patches(float64):
    assert form().layers[0].attention.bounded


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"patch_bias": True, "positions": "learned"},
        {"pad_end": False},
        {"patch": 5, "stride": 9},
        {"d_model": 32, "patch_bias": True},
    ],
)
def test_the_patches_are_those_that_are_served(float64, monkeypatch, changes):
    seen: list[Patches] = []

    def bound(_: MultiHeadAttention, patches: Patches) -> float:
        seen.append(patches)
        return 0.0

    monkeypatch.setattr("foretell.export.rewrites.score_bound.patch_score_bound", bound)
    encoder = form(**changes)
    series = torch.randn(48, 1)
    (patches,) = seen
    made = series[patches.steps, 0] @ patches.projection.T + patches.positions
    torch.testing.assert_close(encoder._tokens(series), made)


@pytest.mark.parametrize("norm", [None, "last"])
def test_patches_of_other_series_are_not_bounded(float64, norm):
    assert not form(instance_norm=norm).layers[0].attention.bounded


def test_nor_are_those_of_a_learned_scale(float64):
    assert not form(affine=True).layers[0].attention.bounded
