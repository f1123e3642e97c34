import pytest
import torch
from torch import nn

from foretell.export.rewrites.attention import (
    TimeFirstAttention,
    causal_mask,
    rewrite_attention,
)
from foretell.export.rewrites.lookup import Call
from foretell.models.layers.normalization import TokenBatchNorm
from tests.models.attention.places import multi_head

BATCH, D_MODEL, HEADS = 3, 12, 4
WITHOUT = ["query", "key", "value"]


def time_first(tokens: torch.Tensor) -> torch.Tensor:
    """`[batch, time, d_model]` to `[time * batch, d_model]`."""
    return tokens.transpose(0, 1).flatten(0, 1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(6, 6), (4, 9)])
def test_equals_the_plain_layer(causal, residual, queries, keys, float64, equal):
    if causal and queries != keys:
        return
    torch.manual_seed(queries)
    plain = multi_head(D_MODEL, HEADS, causal=causal, residual=residual).eval()
    rewritten = TimeFirstAttention(plain, (queries, keys))
    tokens, source = torch.randn(BATCH, queries, D_MODEL), torch.randn(BATCH, keys, D_MODEL)
    inherited = torch.randn(BATCH, HEADS, queries, keys) if residual else None
    expected = plain(tokens, source, inherited=inherited, explain=True)
    found = rewritten(
        time_first(tokens),
        time_first(source),
        inherited=inherited,
        explain=True,
    )
    equal(found.output, time_first(expected.output))
    equal(found.evidence.weights, expected.evidence.weights)
    if residual:
        # The key's bias is left out: the same for all keys of a query.
        difference = found.scores - expected.scores
        equal(difference.amax(dim=-1), difference.amin(dim=-1))
    else:
        assert found.scores is None


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys", "causal"), [(6, 6, True), (6, 6, False), (4, 9, False)]
)
def test_it_can_be_called_as_the_plain_layer(queries, keys, causal, residual, float64, equal):
    plain = multi_head(D_MODEL, HEADS, causal=causal, residual=residual).eval()
    tokens, source = torch.randn(BATCH, queries, D_MODEL), torch.randn(BATCH, keys, D_MODEL)
    inherited = torch.randn(BATCH, HEADS, queries, keys) if residual else None
    expected = plain(tokens, source, inherited=inherited, explain=True)
    form = rewrite_attention(plain, Call((tokens.shape, source.shape), itself=False))
    found = form(tokens, source, inherited=inherited, explain=True)
    equal(found.output, expected.output)
    equal(found.evidence.weights, expected.evidence.weights)
    assert (found.scores is not None) == residual


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("without", [*[[one] for one in WITHOUT], WITHOUT])
def test_biases_that_are_not_there(without, residual, float64, equal):
    torch.manual_seed(0)
    plain = multi_head(D_MODEL, HEADS, residual=residual, without=without).eval()
    norm = nn.LayerNorm(D_MODEL)
    tokens = norm(torch.randn(BATCH, 6, D_MODEL))
    expected = plain(tokens, tokens, explain=True)
    for origin in (None, norm):
        rewritten = TimeFirstAttention(plain, (6, 6), origin)
        assert rewritten.bounded == (origin is norm and not residual)
        found = rewritten(time_first(tokens), time_first(tokens), explain=True)
        equal(found.output, time_first(expected.output))
        equal(found.evidence.weights, expected.evidence.weights)


def test_causal_mask_of_the_last_queries():
    mask = causal_mask(2, 4)
    assert (mask == 0).tolist() == [[True, True, True, False], [True, True, True, True]]
    assert torch.equal(mask, causal_mask(4, 4)[-2:])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("trained", [1, 30])
def test_after_a_layer_norm(causal, trained, float64, equal):
    torch.manual_seed(0)
    plain = multi_head(D_MODEL, HEADS, causal=causal).eval()
    norm = nn.LayerNorm(D_MODEL)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias)
    plain.query.weight.data *= trained
    rewritten = TimeFirstAttention(plain, (6, 6), norm)
    assert rewritten.bounded == (trained == 1)
    tokens = norm(torch.randn(BATCH, 6, D_MODEL))
    expected = plain(tokens, tokens, explain=True)
    found = rewritten(time_first(tokens), time_first(tokens), explain=True)
    equal(found.output, time_first(expected.output))
    equal(found.evidence.weights, expected.evidence.weights)


@pytest.mark.parametrize("last", [1, 4])
def test_the_last_queries_alone(last, float64, equal):
    plain = multi_head(D_MODEL, HEADS, causal=True).eval()
    tokens = torch.randn(BATCH, 6, D_MODEL)
    expected = plain(tokens, tokens).output[:, -last:]
    found = TimeFirstAttention(plain, (6, 6))(
        time_first(tokens[:, -last:]), time_first(tokens), last=last
    )
    equal(found.output, time_first(expected))
    assert found.evidence is None


@pytest.mark.parametrize("residual", [False, True])
def test_scores_that_nothing_bounds(residual):
    plain = multi_head(D_MODEL, HEADS, residual=residual)
    assert TimeFirstAttention(plain, (6, 6), nn.LayerNorm(D_MODEL)).bounded != residual
    assert not TimeFirstAttention(plain, (6, 6)).bounded
    assert not TimeFirstAttention(plain, (6, 6), TokenBatchNorm(D_MODEL)).bounded
