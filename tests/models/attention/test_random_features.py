import numpy as np
import pytest
import torch
from pydantic import ValidationError

from foretell.models.attention.random_features import RandomFeatureAttention, RandomFeaturesConfig
from tests.models.attention.by_hand import Array, dense


def build(*, features: int | None = None, causal: bool = False) -> RandomFeatureAttention:
    torch.manual_seed(0)
    layer = (
        RandomFeatureAttention(d_model=12, heads=3, features=features, causal=causal)
        .double()
        .eval()
    )
    torch.nn.init.uniform_(layer.sigma, 0.5, 1.5)
    return layer


def products(layer: RandomFeatureAttention, query: Array, key: Array, head: int) -> Array:
    """Section 3.1, with directions that are scaled along each feature."""
    directions = layer.projection[head].numpy() * layer.sigma[head].detach().numpy()
    maps = []
    for part in (query, key):
        angles = part / np.linalg.norm(part, axis=1, keepdims=True) @ directions
        waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        maps.append(waves / np.sqrt(directions.shape[1]))
    found: Array = maps[0] @ maps[1].T
    return found


@pytest.mark.parametrize(
    ("steps", "keys", "causal"), [(14, 14, True), (70, 70, True), (9, 9, False), (5, 9, False)]
)
# Of two directions some sums are too small, or negative.
@pytest.mark.parametrize("features", [2, 500])
def test_it_is_what_the_paper_has(steps: int, keys: int, causal: bool, features: int) -> None:
    layer = build(features=features, causal=causal)
    tokens = torch.randn(2, steps, 12, dtype=torch.float64)
    source = tokens if keys == steps else torch.randn(2, keys, 12, dtype=torch.float64)
    clipped = 0

    def weights(query: Array, key: Array, head: int) -> Array:
        nonlocal clipped
        found = products(layer, query, key, head)
        found = np.tril(found) if causal else found
        total = found.sum(axis=1, keepdims=True)
        clipped += int((total < 0.1).sum())
        normalised: Array = found / np.maximum(total, 0.1)
        return normalised

    expected, maps = dense(layer, tokens, source, weights)
    found = layer(tokens, source, explain=True)
    np.testing.assert_allclose(found.output.detach(), expected, atol=1e-10)
    np.testing.assert_allclose(found.evidence.weights.detach(), maps, atol=1e-10)
    if not causal and features == 500:
        assert clipped == 0
        np.testing.assert_allclose(maps.sum(axis=-1), 1)
    elif causal:
        # A first step may be unlike itself as a key; of two directions sums are negative, too.
        assert clipped > 0


def test_many_directions_are_near_a_softmax() -> None:
    """Of queries and keys of length 1, where a softmax is a Gaussian kernel."""
    torch.manual_seed(0)
    layer = RandomFeatureAttention(d_model=12, heads=3, features=20_000).double().eval()
    parts = torch.randn(3, 1, 3, 6, 4, dtype=torch.float64).unbind()
    found = layer.mix(*parts, inherited=None, explain=True).evidence
    query, key = (part / part.norm(dim=-1, keepdim=True) for part in parts[:2])
    expected = (query @ key.transpose(-1, -2)).softmax(dim=-1)
    torch.testing.assert_close(found.weights, expected, rtol=0, atol=0.01)


@pytest.mark.parametrize("changed", [31, 40, 96])
def test_no_later_step_leaks_through_a_chunk(changed: int) -> None:
    layer, tokens = build(causal=True).float(), torch.randn(1, 97, 12)
    later = tokens.clone()
    later[:, changed:] = 1e3 * torch.randn_like(later[:, changed:])
    before, after = (layer(each, each).output for each in (tokens, later))
    assert torch.equal(before[:, :changed], after[:, :changed])
    assert not torch.equal(before[:, changed], after[:, changed])


def test_large_numbers_and_zeros() -> None:
    query, key, value = 1e4 * torch.randn(3, 1, 3, 70, 4)
    query[:, :, 3], key[:, :, 5] = 0, 0
    layer = build(causal=True).float()
    assert layer.mix(query, key, value, inherited=None, explain=False).output.isfinite().all()


def test_how_many_directions_there_are() -> None:
    assert build().projection.shape == (3, 4, 32)
    assert build(features=3).projection.shape == (3, 4, 3)
    assert RandomFeatureAttention(d_model=80, heads=2).projection.shape == (2, 40, 40)
    with pytest.raises(ValidationError, match=r"features\n.*greater than or equal to 1"):
        RandomFeaturesConfig(features=0)
