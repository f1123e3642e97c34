import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from foretell.bundle.attention import Axis
from foretell.models.attention.mechanism import MECHANISMS, Site
from tests.models.attention.places import PLACES
from tests.models.attention.published import aft, published

pytestmark = pytest.mark.usefixtures("float64")

D_MODEL, HEADS, WIDTH, WINDOW = 6, 2, 8, 3
SIMPLE, FULL, LOCAL = (
    {"mechanism": "aft-simple"},
    {"mechanism": "aft-full"},
    {
        "mechanism": "aft-local",
        "window": WINDOW,
    },
)
ALL = [SIMPLE, FULL, LOCAL]
# One chunk, whole chunks, one that is not full, and many.
LENGTHS = [1, 3, 9, 40]


def build(settings: dict[str, Any], length: int, *, causal=False, key=None) -> nn.Module:
    torch.manual_seed(length)
    query = Axis(length=length, start=-length)
    site = Site(D_MODEL, HEADS, query, key or query, causal=causal, width=WIDTH)
    layer = MECHANISMS.read(settings).build(site).eval()
    if layer.bias is not None:
        nn.init.normal_(layer.bias)
    return layer


def dense(layer, tokens, source, *, near, causal=False):
    """Equation 2, one query, feature and key at a time, and the mean weights of heads."""

    def linear(name, given):
        part = getattr(layer, name)
        return given @ part.weight.detach().numpy().T + part.bias.detach().numpy()

    query, key, value = linear("query", tokens), linear("key", source), linear("value", source)
    weights = np.zeros((HEADS, len(tokens), len(source)))
    mixed = np.zeros((len(tokens), WIDTH))
    for t in range(len(tokens)):
        for feature in range(WIDTH):
            found = []
            for s in range(len(source)):
                bias = layer.bias[t, s].item() if near(t, s) else 0
                found.append(-math.inf if causal and s > t else key[s, feature] + bias)
            found = np.exp(np.array(found) - max(found))
            found /= found.sum()
            gate = 1 / (1 + math.exp(-query[t, feature]))
            mixed[t, feature] = gate * (found @ value[:, feature])
            weights[feature // (WIDTH // HEADS), t] += found / (WIDTH // HEADS)
    return linear("out", mixed), weights


def near_in(settings: dict[str, Any], ahead: int = 0):
    """Which pairs have a bias; the first query is so many steps after the first key."""
    return {
        "aft-simple": lambda t, s: False,
        "aft-full": lambda t, s: True,
        "aft-local": lambda t, s: abs(t + ahead - s) < WINDOW,
    }[settings["mechanism"]]


def agrees(layer, tokens, source, **how) -> None:
    output, weights = dense(layer, tokens[0].numpy(), source[0].numpy(), **how)
    found = layer(tokens, source, explain=True)
    np.testing.assert_allclose(found.output[0].detach(), output, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.evidence.weights[0].detach(), weights, rtol=0, atol=1e-10)
    np.testing.assert_allclose(layer(tokens, source).output[0].detach(), output, atol=1e-10)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("settings", ALL, ids=lambda one: one["mechanism"])
def test_it_is_the_formula(settings, length, causal) -> None:
    layer = build(settings, length, causal=causal)
    tokens = 3 * torch.randn(1, length, D_MODEL)
    agrees(layer, tokens, tokens, near=near_in(settings), causal=causal)


@pytest.mark.parametrize("settings", ALL, ids=lambda one: one["mechanism"])
def test_a_source_of_another_length(settings) -> None:
    layer = build(settings, 5, key=Axis(length=9, start=-9))
    tokens, source = torch.randn(1, 5, D_MODEL), torch.randn(1, 9, D_MODEL)
    agrees(layer, tokens, source, near=near_in(settings, ahead=4))


@pytest.mark.parametrize("offset", [1e4, -1e4])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("settings", ALL, ids=lambda one: one["mechanism"])
def test_large_keys_overflow_nothing(settings, causal, offset) -> None:
    layer = build(settings, 40, causal=causal)
    tokens = torch.randn(1, 40, D_MODEL)
    before = layer(tokens, tokens, explain=True)
    layer.key.bias.data += offset
    after = layer(tokens, tokens, explain=True)
    torch.testing.assert_close(after.output, before.output, rtol=0, atol=1e-9)
    torch.testing.assert_close(after.evidence.weights, before.evidence.weights, rtol=0, atol=1e-9)


@pytest.mark.parametrize("settings", ALL, ids=lambda one: one["mechanism"])
def test_keys_that_differ_much(settings) -> None:
    """Each is larger than all before it together, or smaller than those after it."""
    for scale in (3e3, -3e3):
        layer = build(settings, 40, causal=True)
        torch.nn.init.zeros_(layer.key.weight)
        layer.key.weight.data[:, 0] = scale
        tokens = torch.randn(1, 40, D_MODEL)
        tokens[0, :, 0] = torch.arange(40)
        output = layer(tokens, tokens, explain=True)
        value = layer.value(tokens) * layer.query(tokens).sigmoid()
        if scale < 0:
            value = layer.value(tokens[:, :1]) * layer.query(tokens).sigmoid()
        torch.testing.assert_close(output.output, layer.out(value), rtol=0, atol=1e-10)
        read = torch.eye(40) if scale > 0 else torch.eye(40)[:1].expand(40, -1)
        torch.testing.assert_close(output.evidence.weights[0, 0], read, rtol=0, atol=1e-10)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("settings", [FULL, LOCAL], ids=lambda one: one["mechanism"])
def test_large_biases_overflow_nothing(settings, causal) -> None:
    layer = build(settings, 12, causal=causal)
    layer.bias.data[:] = 1e4
    tokens = torch.randn(1, 12, D_MODEL)
    found = layer(tokens, tokens, explain=True)
    assert found.output.isfinite().all()
    sums = found.evidence.weights.sum(dim=-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("settings", [FULL, LOCAL], ids=lambda one: one["mechanism"])
def test_biases_learn_where_they_are_read(settings) -> None:
    layer = build(settings, 9, causal=True).train()
    tokens = torch.randn(2, 9, D_MODEL)
    layer(tokens, tokens).output.square().sum().backward()
    near = torch.tensor([[near_in(settings)(t, s) and s <= t for s in range(9)] for t in range(9)])
    # The first query has but one key.
    near[0] = False
    assert torch.equal(layer.bias.grad != 0, near)


@pytest.mark.parametrize("settings", ALL, ids=lambda one: one["mechanism"])
def test_as_the_package_does(settings) -> None:
    package, sizes = published("aft_pytorch"), {"max_seqlen": 12, "dim": 6, "hidden_dim": 8}
    theirs = {
        "aft-simple": lambda: package.AFTSimple(**sizes),
        "aft-full": lambda: package.AFTFull(**sizes),
        "aft-local": lambda: package.AFTLocal(**sizes, s=WINDOW),
    }[settings["mechanism"]]()
    layer = build(settings, 12)
    layer.load_state_dict(aft(theirs.state_dict()))
    tokens = torch.randn(2, 12, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = theirs(tokens)
    # The local one has its biases pass through float32.
    torch.testing.assert_close(layer(tokens, tokens).output, expected, rtol=0, atol=1e-6)


def test_what_is_at_no_distance_is_refused() -> None:
    site = PLACES["encoder"]._replace(key=Axis(of="channels", length=3))
    with pytest.raises(ValueError, match="attention: channels have no order that aft-local needs"):
        MECHANISMS.read("aft-local").check(site)
    MECHANISMS.read("aft-full").check(site)
