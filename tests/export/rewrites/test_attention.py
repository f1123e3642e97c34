import pytest
import torch

from export.rewrites.attention import TimeFirstAttention, causal_mask
from models.layers.attention import MultiHeadAttention

BATCH, D_MODEL, HEADS = 3, 12, 4


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
    plain = MultiHeadAttention(D_MODEL, HEADS, residual=residual).eval()
    rewritten = TimeFirstAttention(plain)
    tokens, source = torch.randn(BATCH, queries, D_MODEL), torch.randn(BATCH, keys, D_MODEL)
    inherited = torch.randn(BATCH, HEADS, queries, keys) if residual else None
    expected = plain(tokens, source, causal=causal, inherited=inherited, return_weights=True)
    found = rewritten(
        time_first(tokens),
        time_first(source),
        (queries, keys),
        mask=causal_mask(queries, keys) if causal else None,
        inherited=inherited,
    )
    equal(found.output, time_first(expected.output))
    equal(found.weights, expected.weights)
    if residual:
        # The key's bias is left out: the same for all keys of a query.
        difference = found.scores - expected.scores
        equal(difference.amax(dim=-1), difference.amin(dim=-1))
    else:
        assert found.scores is None


def test_causal_mask_of_the_last_queries():
    mask = causal_mask(2, 4)
    assert (mask == 0).tolist() == [[True, True, True, False], [True, True, True, True]]
    assert torch.equal(mask, causal_mask(4, 4)[-2:])
