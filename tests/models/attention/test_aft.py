import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from foretell.bundle.attention import Axis
from foretell.models.attention.mechanism import MECHANISMS, Site
from tests.models.attention.by_hand import assert_gives, linear, softmax

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
EACH = pytest.mark.parametrize("settings", [SIMPLE, FULL, LOCAL], ids=lambda one: one["mechanism"])


def build(settings: dict[str, Any], length: int, *, causal=False, key=None) -> nn.Module:
    torch.manual_seed(length)
    query = Axis(length=length, start=-length)
    site = Site(D_MODEL, HEADS, query, key or query, causal=causal, width=WIDTH)
    layer = MECHANISMS.read(settings).build(site).eval()
    if layer.bias is not None:
        nn.init.normal_(layer.bias)
    return layer


def near_in(settings: dict[str, Any], ahead: int = 0) -> Callable[[int, int], bool]:
    """Pairs with a bias; the first query is `ahead` steps after the first key."""
    return {
        "aft-simple": lambda t, s: False,
        "aft-full": lambda t, s: True,
        "aft-local": lambda t, s: abs(t + ahead - s) < WINDOW,
    }[settings["mechanism"]]


@EACH
@pytest.mark.parametrize(
    ("length", "keys", "causal"),
    # One chunk, whole chunks, one that is not full, and many; a source of another length.
    [
        *((length, length, causal) for length in (1, 3, 9, 40) for causal in (False, True)),
        (5, 9, False),
    ],
)
def test_aft_equals_its_formula(
    settings: dict[str, Any], length: int, keys: int, causal: bool
) -> None:
    """Equation 2, one query, feature and key at a time, and the mean weights of heads."""
    layer = build(settings, length, causal=causal, key=Axis(length=keys, start=-keys))
    tokens, source = 3 * torch.randn(1, length, D_MODEL), torch.randn(1, keys, D_MODEL)
    near, each = near_in(settings, keys - length), WIDTH // HEADS
    query = linear(layer.query, tokens[0].numpy())
    key, value = (linear(part, source[0].numpy()) for part in (layer.key, layer.value))
    maps, mixed = np.zeros((HEADS, length, keys)), np.zeros((length, WIDTH))
    for t, feature in np.ndindex(mixed.shape):
        scores = [
            -math.inf
            if causal and s > t
            else key[s, feature] + (layer.bias[t, s].item() if near(t, s) else 0)
            for s in range(keys)
        ]
        weights = softmax(np.array(scores))
        gate = 1 / (1 + math.exp(-query[t, feature]))
        mixed[t, feature] = gate * (weights @ value[:, feature])
        maps[feature // each, t] += weights / each
    assert_gives(layer, tokens, source, linear(layer.out, mixed)[None], maps[None])


@pytest.mark.parametrize("offset", [1e4, -1e4])
@pytest.mark.parametrize("causal", [False, True])
@EACH
def test_large_keys_do_not_overflow(settings, causal, offset) -> None:
    layer = build(settings, 40, causal=causal)
    tokens = torch.randn(1, 40, D_MODEL)
    before = layer(tokens, tokens, explain=True)
    layer.key.bias.data += offset
    after = layer(tokens, tokens, explain=True)
    torch.testing.assert_close(after.output, before.output, rtol=0, atol=1e-9)
    torch.testing.assert_close(after.evidence.weights, before.evidence.weights, rtol=0, atol=1e-9)


@EACH
def test_keys_of_very_different_size(settings) -> None:
    """Every key is larger than the sum of all earlier keys, or smaller than all later ones."""
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
def test_large_biases_do_not_overflow(settings, causal) -> None:
    layer = build(settings, 12, causal=causal)
    layer.bias.data[:] = 1e4
    tokens = torch.randn(1, 12, D_MODEL)
    found = layer(tokens, tokens, explain=True)
    assert found.output.isfinite().all()
    sums = found.evidence.weights.sum(dim=-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("settings", [FULL, LOCAL], ids=lambda one: one["mechanism"])
def test_only_biases_in_use_get_gradients(settings) -> None:
    layer = build(settings, 9, causal=True).train()
    tokens = torch.randn(2, 9, D_MODEL)
    layer(tokens, tokens).output.square().sum().backward()
    near = torch.tensor([[near_in(settings)(t, s) and s <= t for s in range(9)] for t in range(9)])
    # The first query has but one key.
    near[0] = False
    assert torch.equal(layer.bias.grad != 0, near)
