import numpy as np
import pytest
import torch
from pydantic import ValidationError

from foretell.models.attention.performer import Performer, PerformerConfig, orthogonal
from tests.models.attention.by_hand import Array, dense, quotient
from tests.models.attention.published import published


def build(*, causal: bool = False, features: int | None = None) -> Performer:
    torch.manual_seed(0)
    return Performer(d_model=12, heads=3, causal=causal, features=features).double().eval()


@pytest.mark.parametrize(
    ("steps", "keys", "causal"),
    [(14, 14, True), (64, 64, True), (97, 97, True), (9, 9, False), (5, 9, False)],
)
def test_it_is_what_the_paper_has(steps: int, keys: int, causal: bool) -> None:
    layer = build(causal=causal)
    tokens = 4 * torch.randn(2, steps, 12, dtype=torch.float64)
    source = tokens if keys == steps else torch.randn(2, keys, 12, dtype=torch.float64)

    def weights(query: Array, key: Array, _: int) -> Array:
        """Lemma 1, equation 5 and nothing to keep numbers small."""
        maps = []
        for part in (query, key):
            scaled = part * part.shape[1] ** -0.25
            norms = (scaled**2).sum(axis=1, keepdims=True) / 2
            maps.append(np.exp(scaled @ layer.projection.numpy() - norms))
        return quotient(maps[0] @ maps[1].T, causal=causal)

    expected, maps = dense(layer, tokens, source, weights)
    found = layer(tokens, source, explain=True)
    np.testing.assert_allclose(found.output.detach(), expected, atol=1e-10)
    np.testing.assert_allclose(found.evidence.weights.detach(), maps, atol=1e-10)
    np.testing.assert_allclose(maps.sum(axis=-1), 1)


def test_the_published_package_has_the_same() -> None:
    """Which by default adds 1e-4 to all features, and subtracts one maximum from all keys."""
    package = published("performer_pytorch.performer_pytorch")
    layer = build()
    parts = torch.randn(3, 2, 3, 9, 4, dtype=torch.float64).unbind()
    directions = layer.projection.T
    query, key = (
        package.softmax_kernel(part, projection_matrix=directions, is_query=is_query, eps=0.0)
        for part, is_query in zip(parts, (True, False), strict=False)
    )
    expected = package.linear_attention(query, key, parts[2])
    found = layer.mix(*parts, inherited=None, explain=False).output
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_many_directions_are_near_a_softmax() -> None:
    layer = build(features=20_000)
    parts = torch.rand(3, 1, 3, 6, 4, dtype=torch.float64).unbind()
    found = layer.mix(*parts, inherited=None, explain=True).evidence
    expected = (parts[0] @ parts[1].transpose(-1, -2) / 2).softmax(dim=-1)
    torch.testing.assert_close(found.weights, expected, rtol=0, atol=0.02)


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


@pytest.mark.parametrize("changed", [31, 40, 96])
def test_no_later_step_leaks_through_a_chunk(changed: int) -> None:
    layer, tokens = build(causal=True).float(), torch.randn(1, 97, 12)
    later = tokens.clone()
    later[:, changed:] = 100 * torch.randn_like(later[:, changed:])
    before, after = (layer(each, each).output for each in (tokens, later))
    assert torch.equal(before[:, :changed], after[:, :changed])
    assert not torch.equal(before[:, changed], after[:, changed])


@pytest.mark.parametrize("causal", [False, True])
def test_large_numbers(causal: bool) -> None:
    layer = build(causal=causal).float()
    query, key = 1e4 * torch.randn(2, 1, 3, 70, 4)
    key[:, :, 40:] /= 1e4
    value = torch.randn(1, 3, 70, 4)
    mixed = layer.mix(query, key, value, inherited=None, explain=True)
    assert mixed.output.isfinite().all()
    assert mixed.evidence.weights.isfinite().all()
    assert (mixed.output.abs() <= value.abs().max() * (1 + 1e-5)).all()


def test_gradients_through_chunks() -> None:
    layer = build(causal=True)
    parts = torch.randn(3, 1, 3, 70, 4, dtype=torch.float64).unbind()
    for part in parts:
        part.requires_grad_()
    chunked, whole = (
        torch.autograd.grad(output.square().sum(), parts)
        for output in (
            layer.mix(*parts, inherited=None, explain=False).output,
            layer.mix(*parts, inherited=None, explain=True).evidence.weights @ parts[2],
        )
    )
    for found, expected in zip(chunked, whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


def test_directions_are_drawn_anew_in_training_alone() -> None:
    torch.manual_seed(0)
    layer = Performer(d_model=12, heads=3, redraw=2)
    tokens, first = torch.randn(1, 5, 12), layer.projection.clone()
    layer.eval()
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


def test_how_many_directions_there_are() -> None:
    shapes = [
        tuple(Performer(d_model=width, heads=1).projection.shape) for width in (1, 2, 4, 16, 64)
    ]
    assert shapes == [(1, 1), (2, 2), (4, 6), (16, 45), (64, 267)]
    for field in ("features", "redraw"):
        with pytest.raises(ValidationError, match=rf"{field}\n.*greater than or equal to 1"):
            PerformerConfig(**{field: 0})
