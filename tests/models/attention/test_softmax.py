import math

import numpy as np
import pytest
import torch

from foretell.models.attention.mechanism import MECHANISMS
from foretell.models.attention.softmax import MultiHeadAttention
from tests import golden
from tests.models.attention.places import PLACES, multi_head

# Two tokens, two heads of two features: softmax over (1 / sqrt 2, 0) in closed form.
TOKENS = torch.tensor([[[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]]])
NEAR = 1 / (1 + math.exp(-(2**-0.5)))


def identity(d_model: int, heads: int, *, causal: bool = False) -> MultiHeadAttention:
    layer = multi_head(d_model, heads, causal=causal)
    for part in (layer.query, layer.key, layer.value, layer.out):
        torch.nn.init.eye_(part.weight)
        torch.nn.init.zeros_(part.bias)
    return layer


@pytest.fixture
def layer() -> MultiHeadAttention:
    torch.manual_seed(0)
    return multi_head(12, 3)


@pytest.mark.parametrize("causal", [False, True])
def test_two_tokens_by_hand(causal: bool) -> None:
    attended = identity(4, 2, causal=causal)(TOKENS, TOKENS, explain=True)
    assert pytest.approx(0.669762, abs=1e-6) == NEAR
    first = [1.0, 0.0] if causal else [NEAR, 1 - NEAR]
    each = torch.tensor([first, [1 - NEAR, NEAR]])
    torch.testing.assert_close(attended.evidence.weights, each.expand(1, 2, 2, 2))
    torch.testing.assert_close(attended.output, torch.cat([each, each], dim=1)[None])


@pytest.mark.parametrize(("causal", "suffix"), [(False, ""), (True, "_masked")])
def test_two_tokens_against_the_published_layer(causal: bool, suffix: str) -> None:
    arrays = golden.case("attention_layer_toy").arrays("io")
    tokens = torch.from_numpy(arrays["x"])
    found = identity(4, 2, causal=causal)(tokens, tokens, explain=True)
    np.testing.assert_allclose(found.output.detach(), arrays[f"out{suffix}"], atol=1e-5)
    weights = found.evidence.weights.detach()
    np.testing.assert_allclose(weights, arrays[f"attn{suffix}_0"], atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_fused_and_plain_attention_agree(layer: MultiHeadAttention, causal: bool) -> None:
    layer.causal = causal
    tokens = torch.randn(2, 7, 12)
    fused = layer(tokens, tokens)
    plain = layer(tokens, tokens, explain=True)
    assert fused.evidence is None
    torch.testing.assert_close(fused.output, plain.output)
    assert plain.evidence.weights.shape == (2, 3, 7, 7)
    torch.testing.assert_close(plain.evidence.weights.sum(-1), torch.ones(2, 3, 7))


def test_residual_attention_adds_inherited_scores() -> None:
    torch.manual_seed(0)
    layer = multi_head(8, 2, residual=True)
    tokens = torch.randn(1, 4, 8)
    first = layer(tokens, tokens, explain=True)
    inherited = torch.randn(1, 2, 4, 4)
    second = layer(tokens, tokens, inherited=inherited, explain=True)
    assert first.scores is not None
    torch.testing.assert_close(second.scores, first.scores + inherited)
    torch.testing.assert_close(second.evidence.weights, (first.scores + inherited).softmax(-1))


def test_plain_attention_passes_on_no_scores(layer: MultiHeadAttention) -> None:
    tokens = torch.randn(1, 4, 12)
    assert layer(tokens, tokens, explain=True).scores is None


@pytest.mark.parametrize("name", ["softmax", "residual-softmax"])
@pytest.mark.parametrize("without", ["query", "key", "value"])
def test_biases_may_be_left_out(name: str, without: str) -> None:
    torch.manual_seed(0)
    setting, site = f"{without}_bias", PLACES["encoder"]
    with_all, less = (
        MECHANISMS.read({"mechanism": name, **one}).build(site).eval()
        for one in ({}, {setting: False})
    )
    left = with_all.state_dict()
    assert not left.pop(f"{without}.bias").eq(0).all()
    assert less.state_dict().keys() == left.keys()
    less.load_state_dict(left)
    tokens = torch.randn(2, 24, 8)
    found = less(tokens, tokens).output
    assert not torch.allclose(found, with_all(tokens, tokens).output) or without == "key"
    torch.nn.init.zeros_(getattr(with_all, without).bias)
    torch.testing.assert_close(found, with_all(tokens, tokens).output)


def test_plain_layer_ignores_inherited_scores() -> None:
    torch.manual_seed(0)
    plain, tokens = multi_head(8, 2).eval(), torch.randn(1, 4, 8)
    inherited = torch.randn(1, 2, 4, 4)
    for explain in (False, True):
        found = plain(tokens, tokens, inherited=inherited, explain=explain)
        torch.testing.assert_close(found.output, plain(tokens, tokens).output)
