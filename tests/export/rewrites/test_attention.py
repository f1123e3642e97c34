import math

import pytest
import torch
from torch import nn

from foretell.bundle.attention import Axis
from foretell.export.rewrites.attention import TimeFirstAttention, causal_mask
from foretell.export.rewrites.lookup import Call
from foretell.export.rewrites.merged_attention import MergedAttention
from foretell.export.rewrites.rotary import rewrite_rotary
from foretell.export.rewrites.score_bound import score_bound
from foretell.models.attention.mechanism import MECHANISMS, Site
from foretell.models.attention.softmax import MultiHeadAttention
from foretell.models.layers.normalization import TokenBatchNorm
from tests.models.attention.places import multi_head

BATCH, D_MODEL, HEADS, STEPS = 3, 12, 4, 6
BIASES = ["query", "key", "value"]


def time_first(tokens: torch.Tensor) -> torch.Tensor:
    """`[batch, time, d_model]` to `[time * batch, d_model]`."""
    return tokens.transpose(0, 1).flatten(0, 1)


def merged(tokens: torch.Tensor) -> torch.Tensor:
    """`[batch, time, d_model]` to `[batch * time, d_model]`."""
    return tokens.flatten(0, 1)


def forms(plain, norm=None):
    """Both forms of self-attention, and the layout of tokens of each."""
    yield TimeFirstAttention(plain, (STEPS, STEPS), norm), time_first
    if not plain.causal:
        yield MergedAttention(plain, STEPS, norm), merged


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_equals_the_plain_layer(causal, residual, float64, equal):
    torch.manual_seed(0)
    first, second = (
        multi_head(D_MODEL, HEADS, causal=causal, residual=residual).eval() for _ in range(2)
    )
    tokens = torch.randn(BATCH, STEPS, D_MODEL)
    before = first(tokens, tokens, explain=True)
    expected = second(tokens, tokens, inherited=before.scores, explain=True)
    for (one, order), (other, _) in zip(forms(first), forms(second), strict=True):
        given = order(tokens)
        inherited = one(given, given).scores
        found = other(given, given, inherited=inherited, explain=True)
        equal(found.output, order(expected.output))
        equal(found.evidence.weights, expected.evidence.weights)
        assert (found.scores is None) != residual


def test_equals_the_plain_layer_with_another_source(float64, equal):
    plain = multi_head(D_MODEL, HEADS).eval()
    tokens, source = torch.randn(BATCH, 4, D_MODEL), torch.randn(BATCH, 9, D_MODEL)
    expected = plain(tokens, source, explain=True)
    form = TimeFirstAttention(plain, (4, 9))
    found = form(time_first(tokens), time_first(source), explain=True)
    equal(found.output, time_first(expected.output))
    equal(found.evidence.weights, expected.evidence.weights)


@pytest.mark.parametrize("without", [*[[one] for one in BIASES], BIASES])
def test_biases_that_are_not_there(without, float64, equal):
    torch.manual_seed(0)
    plain = multi_head(D_MODEL, HEADS, without=without).eval()
    tokens = torch.randn(BATCH, STEPS, D_MODEL)
    expected = plain(tokens, tokens, explain=True)
    for form, order in forms(plain):
        found = form(order(tokens), order(tokens), explain=True)
        equal(found.output, order(expected.output))
        equal(found.evidence.weights, expected.evidence.weights)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("trained", [1, 30])
@pytest.mark.parametrize("without", [[], BIASES])
def test_after_a_layer_norm(causal, trained, without, float64, equal):
    torch.manual_seed(0)
    plain = multi_head(D_MODEL, HEADS, causal=causal, without=without).eval()
    plain.query.weight.data *= trained
    norm = nn.LayerNorm(D_MODEL)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias)
    tokens = norm(torch.randn(BATCH, STEPS, D_MODEL))
    expected = plain(tokens, tokens, explain=True)
    for form, order in forms(plain, norm):
        assert form.bounded == (trained == 1)
        found = form(order(tokens), order(tokens), explain=True)
        equal(found.output, order(expected.output))
        equal(found.evidence.weights, expected.evidence.weights)


@pytest.mark.parametrize(
    ("residual", "norm"),
    [(True, nn.LayerNorm(D_MODEL)), (False, None), (False, TokenBatchNorm(D_MODEL))],
)
def test_scores_that_nothing_bounds(residual, norm):
    for form, _ in forms(multi_head(D_MODEL, HEADS, residual=residual), norm):
        assert not form.bounded


@pytest.mark.parametrize("last", [1, 4])
def test_last_queries_equal_those_of_the_plain_layer(last, float64, equal):
    plain = multi_head(D_MODEL, HEADS, causal=True).eval()
    tokens = torch.randn(BATCH, STEPS, D_MODEL)
    expected = plain(tokens, tokens).output[:, -last:]
    found = TimeFirstAttention(plain, (STEPS, STEPS))(
        time_first(tokens[:, -last:]), time_first(tokens), last=last
    )
    equal(found.output, time_first(expected))
    assert found.evidence is None


def test_causal_mask_of_the_last_queries():
    mask = causal_mask(2, 4)
    assert (mask == 0).tolist() == [[True, True, True, False], [True, True, True, True]]
    assert torch.equal(mask, causal_mask(4, 4)[-2:])


LINE, DECODER = Axis(length=9, start=-9), Axis(length=6, start=-2)


@pytest.mark.parametrize(
    ("query", "key", "causal"), [(LINE, LINE, False), (LINE, LINE, True), (DECODER, LINE, False)]
)
@pytest.mark.parametrize(
    "settings", [{}, {"pairs": "neighbours", "key_bias": False}, {"grid_columns": 4}]
)
def test_equals_rotary_attention(settings, query, key, causal, float64, equal):
    torch.manual_seed(0)
    site = Site(16, 2, query, key, causal=causal)
    plain = MECHANISMS.read({"mechanism": "rotary", **settings}).build(site).eval()
    plain.query.weight.data *= 3
    tokens, source = (torch.randn(BATCH, axis.length, 16) for axis in (query, key))
    expected = plain(tokens, source, explain=True)
    form = rewrite_rotary(plain, Call((tokens.shape, source.shape), itself=False))
    found = form(tokens, source, explain=True)
    equal(found.output, expected.output)
    equal(found.evidence.weights, expected.evidence.weights)
    assert not form.attention.bounded
    # The layer itself stays as it was.
    equal(plain(tokens, source).output, expected.output)


def largest_score(plain: MultiHeadAttention, tokens: torch.Tensor, source: torch.Tensor) -> float:
    split = (-1, plain.heads, 8 // plain.heads)
    query = plain.query(tokens).reshape(split)
    key = (source @ plain.key.weight.T).reshape(split)
    scores = torch.einsum("ihf,jhf->hij", query, key) * query.shape[-1] ** -0.5
    return float(scores.detach().abs().max())


def test_no_score_is_larger_than_the_bound(float64):
    torch.manual_seed(0)
    plain, origin = multi_head(8, 2), nn.LayerNorm(8)
    nn.init.uniform_(origin.weight, -2, 2)
    nn.init.normal_(origin.bias)
    bound = score_bound(plain, origin)
    for scale in (1e-3, 1, 1e3):
        # A spike has the largest deviation that a layer norm can return.
        series = torch.cat([torch.randn(2000, 8), torch.eye(8), -torch.eye(8)])
        assert largest_score(plain, *2 * (origin(scale * series),)) <= bound


@pytest.mark.parametrize("bias", [False, True])
def test_the_largest_score_is_reached(bias, float64):
    """One head, no bias: the bound is the largest singular value, which aligned vectors reach."""
    torch.manual_seed(1)
    plain = multi_head(8, 1, without=[] if bias else ["query"])
    if bias:
        nn.init.zeros_(plain.query.bias)
    norm, centre = nn.LayerNorm(8, eps=1e-12), torch.eye(8) - 1 / 8
    left, _, right = torch.linalg.svd(centre @ plain.query.weight.T @ plain.key.weight @ centre)
    found = largest_score(plain, norm(left[:, :1].T), norm(right[:1]))
    assert math.isclose(found, score_bound(plain, norm), rel_tol=1e-6)
