"""Products of features, against their papers in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from foretell.models.attention.mechanism import MECHANISMS, Call
from foretell.models.attention.zoo.linear import FeatureAttention, orthogonal
from tests.models.attention.by_hand import Array, assert_map, numbers, quotient, softmax
from tests.models.attention.places import made, random, site_of

NAMES = ["linear", "performer", "random-features"]
EXPLAIN = Call(explain=True)


def build(
    name: str, *, d_model: int = 12, heads: int = 3, causal: bool = False, **settings: Any
) -> Any:
    site = site_of(97, d_model=d_model, heads=heads, causal=causal)
    layer = made({"mechanism": name, **settings}, site)
    if name == "random-features":
        nn.init.uniform_(layer.sigma, 0.5, 1.5)
    return layer


def features(layer: FeatureAttention, name: str, part: Array, head: int) -> Array:
    """Features of queries or keys, without scaling against overflow."""
    if name == "linear":
        # Equation 7.
        return np.where(part > 0, part + 1, np.exp(part))
    directions = numbers(layer.projection)
    if name == "performer":
        # Lemma 1, equation 5.
        scaled = part * part.shape[1] ** -0.25
        return np.exp(scaled @ directions - (scaled**2).sum(axis=1, keepdims=True) / 2)
    # Section 3.1, with directions that are scaled along each feature.
    directions = directions[head] * numbers(layer.sigma)[head]
    angles = part / np.linalg.norm(part, axis=1, keepdims=True) @ directions
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return waves / np.sqrt(directions.shape[1])


# One chunk, several, and several of which the last is not full; a source of another length.
@pytest.mark.parametrize(
    ("steps", "keys", "causal"),
    [(14, 14, True), (64, 64, True), (97, 97, True), (9, 9, False), (97, 97, False), (5, 9, False)],
)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("linear", {}),
        ("performer", {}),
        # With two features some sums are too small, or negative.
        ("random-features", {"features": 2}),
        ("random-features", {"features": 500}),
    ],
)
def test_feature_maps_equal_their_papers(
    name: str, settings: dict[str, Any], steps: int, keys: int, causal: bool
) -> None:
    layer = build(name, causal=causal, **settings)
    size = {"linear": 2, "performer": 4}.get(name, 1)
    tokens = size * random(2, steps, 12)
    source = tokens if keys == steps else random(2, keys, 12)
    clipped = 0

    def weights(query: Array, key: Array, head: int) -> Array:
        nonlocal clipped
        products = features(layer, name, query, head) @ features(layer, name, key, head).T
        if name != "random-features":
            return quotient(products, causal=causal)
        products = np.tril(products) if causal else products
        total = products.sum(axis=1, keepdims=True)
        clipped += int((total < 0.1).sum())
        normalised: Array = products / np.maximum(total, 0.1)
        return normalised

    maps = assert_map(layer, tokens, source, weights)
    if name == "random-features" and (causal or settings["features"] == 2):
        # The product of the first query with its own key may be too small.
        assert clipped > 0 or not causal
    else:
        assert clipped == 0
        np.testing.assert_allclose(maps.sum(axis=-1), 1)


@pytest.mark.parametrize("keys", [7, 11])
def test_efficient_attention_equals_its_formula(keys: int) -> None:
    layer = made({"mechanism": "efficient"}, site_of(d_model=12, heads=3))
    tokens, source = 2 * random(2, 7, 12), random(2, keys, 12)
    maps = assert_map(layer, tokens, source, lambda query, key, _: softmax(query) @ softmax(key.T))
    np.testing.assert_allclose(maps.sum(axis=-1), 1)


@pytest.mark.parametrize(("name", "error"), [("performer", 0.02), ("random-features", 0.01)])
def test_many_directions_are_near_a_softmax(name: str, error: float) -> None:
    layer = build(name, features=20_000)
    query, key, value = torch.rand(3, 1, 3, 6, 4, dtype=torch.float64).unbind()
    found = layer.mix(query, key, value, EXPLAIN).evidence
    scale = 0.5
    if name == "random-features":
        # For queries and keys of length 1 a softmax is a Gaussian kernel.
        nn.init.ones_(layer.sigma)
        query, key = (2 * part - 1 for part in (query, key))
        found = layer.mix(query, key, value, EXPLAIN).evidence
        query, key = (part / part.norm(dim=-1, keepdim=True) for part in (query, key))
        scale = 1.0
    expected = (scale * query @ key.transpose(-1, -2)).softmax(dim=-1)
    torch.testing.assert_close(found.weights, expected, rtol=0, atol=error)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [-1e4, 1e4])
@pytest.mark.parametrize("name", [*NAMES, "efficient"])
def test_large_queries_and_keys(name: str, size: float, causal: bool) -> None:
    layer, value = build(name, causal=causal).float(), torch.randn(1, 3, 70, 4)
    query, key = (size * (1 + torch.rand(1, 3, 70, 4)) for _ in range(2))
    key[:, :, 40:] /= 1e4
    query[:, :, 3], key[:, :, 5] = 0, 0
    mixed = layer.mix(query, key, value, EXPLAIN)
    assert mixed.output.isfinite().all()
    assert mixed.evidence.weights.isfinite().all()
    if name != "random-features":
        assert (mixed.output.abs() <= value.abs().max() * (1 + 1e-5)).all()


@pytest.mark.parametrize("causal", [False, True])
def test_large_negative_keys_give_the_mean(causal: bool) -> None:
    layer, value = build("linear", causal=causal).float(), torch.randn(1, 3, 70, 4)
    query, key = (-1e4 * (1 + torch.rand(1, 3, 70, 4)) for _ in range(2))
    mixed = layer.mix(query, key, value, Call()).output
    mean = value.mean(dim=-2) if not causal else value[..., 0, :]
    torch.testing.assert_close(mixed[..., -1 if not causal else 0, :], mean)


@pytest.mark.parametrize("causal", [False, True])
def test_quotient_has_full_precision(causal: bool) -> None:
    layer = build("linear", causal=causal).float()
    parts = [torch.randn(1, 3, 70, 4).bfloat16() for _ in range(3)]
    expected = layer.mix(*(part.float() for part in parts), Call())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer.mix(*parts, Call())
    assert torch.equal(found.output, expected.output.bfloat16())


@pytest.mark.parametrize("name", NAMES)
def test_gradients_through_chunks(name: str) -> None:
    layer = build(name, causal=True)
    parts = random(3, 1, 3, 70, 4).unbind()
    for part in parts:
        part.requires_grad_()
    found = layer.mix(*parts, EXPLAIN)
    chunked, whole = (
        torch.autograd.grad(output.square().sum(), parts, retain_graph=True)
        for output in (found.output, found.evidence.weights @ parts[2])
    )
    for one, other in zip(chunked, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def test_directions_are_orthogonal_and_as_long_as_normal_ones() -> None:
    torch.manual_seed(0)
    directions = orthogonal(8, 20)
    assert directions.shape == (8, 20)
    for block in directions.split(8, dim=1):
        products = block.T @ block
        torch.testing.assert_close(products, products.diagonal().diag(), rtol=0, atol=1e-4)
    lengths = orthogonal(8, 4_000).square().sum(dim=0)
    assert lengths.mean() == pytest.approx(8, rel=0.05)
    assert lengths.var() == pytest.approx(16, rel=0.15)


def test_directions_are_redrawn_only_in_training() -> None:
    layer = build("performer", redraw=2)
    tokens, first = random(1, 5, 12), layer.projection.clone()
    for _ in range(3):
        layer(tokens, tokens)
    assert torch.equal(layer.projection, first)
    layer.train()
    output = layer(tokens, tokens).output
    assert torch.equal(layer.projection, first)
    (output + layer(tokens, tokens).output).sum().backward()
    assert not torch.equal(layer.projection, first)
    assert {"projection", "calls"} <= layer.state_dict().keys()
    assert layer.state_dict()["calls"] == 2


@pytest.mark.parametrize(
    ("name", "width", "count"),
    [
        *(("performer", width, n) for width, n in [(1, 1), (2, 2), (4, 6), (16, 45), (64, 267)]),
        *(("random-features", width, n) for width, n in [(4, 32), (40, 40)]),
    ],
)
def test_number_of_directions(name: str, width: int, count: int) -> None:
    assert build(name, d_model=width, heads=1).projection.shape[-2:] == (width, count)
    assert build(name, d_model=width, heads=1, features=3).projection.shape[-2:] == (width, 3)


@pytest.mark.parametrize(
    ("name", "field"),
    [("performer", "features"), ("performer", "redraw"), ("random-features", "features")],
)
def test_field_below_one_is_refused(name: str, field: str) -> None:
    with pytest.raises(ValidationError, match=rf"{field}\n.*greater than or equal to 1"):
        MECHANISMS.read({"mechanism": name, field: 0})
