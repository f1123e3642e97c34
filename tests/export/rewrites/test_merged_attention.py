import pytest
import torch
from torch import nn

from foretell.export.rewrites.merged_attention import MergedAttention
from tests.models.attention.places import multi_head

BATCH, STEPS, D_MODEL, HEADS = 3, 6, 12, 4


@pytest.mark.parametrize("residual", [False, True])
def test_equals_the_plain_layer(residual, float64, equal):
    torch.manual_seed(0)
    first, second = (multi_head(D_MODEL, HEADS, residual=residual).eval() for _ in range(2))
    tokens = torch.randn(BATCH, STEPS, D_MODEL)
    before = first(tokens, tokens, explain=True)
    expected = second(tokens, tokens, inherited=before.scores, explain=True)

    flat = tokens.flatten(0, 1)
    inherited = MergedAttention(first, STEPS)(flat, flat).scores
    found = MergedAttention(second, STEPS)(flat, flat, inherited=inherited, explain=True)
    equal(found.output, expected.output.flatten(0, 1))
    equal(found.evidence.weights, expected.evidence.weights)
    assert (found.scores is None) != residual


@pytest.mark.parametrize("trained", [1, 30])
def test_after_a_layer_norm(trained, float64, equal):
    torch.manual_seed(0)
    plain, norm = multi_head(D_MODEL, HEADS).eval(), nn.LayerNorm(D_MODEL)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias)
    plain.query.weight.data *= trained
    rewritten = MergedAttention(plain, STEPS, norm)
    assert rewritten.bounded == (trained == 1)
    tokens = norm(torch.randn(BATCH, STEPS, D_MODEL))
    expected = plain(tokens, tokens, explain=True)
    flat = tokens.flatten(0, 1)
    found = rewritten(flat, flat, explain=True)
    equal(found.output, expected.output.flatten(0, 1))
    equal(found.evidence.weights, expected.evidence.weights)


@pytest.mark.parametrize("without", ["query", "key", "value"])
def test_a_bias_that_is_not_there(without, float64, equal):
    torch.manual_seed(0)
    plain = multi_head(D_MODEL, HEADS, without=[without]).eval()
    tokens = torch.randn(BATCH, STEPS, D_MODEL)
    expected = plain(tokens, tokens, explain=True)
    flat = tokens.flatten(0, 1)
    found = MergedAttention(plain, STEPS)(flat, flat, explain=True)
    equal(found.output, expected.output.flatten(0, 1))
    equal(found.evidence.weights, expected.evidence.weights)


def test_scores_that_nothing_bounds():
    norm = nn.LayerNorm(D_MODEL)
    plain = multi_head(D_MODEL, HEADS, residual=True)
    assert not MergedAttention(plain, STEPS, norm).bounded
    assert not MergedAttention(multi_head(D_MODEL, HEADS), STEPS).bounded
