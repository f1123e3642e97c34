import numpy as np
import pytest
import torch

from foretell.models.attention.mechanism import Call
from tests.models.attention.by_hand import Array, dense
from tests.models.attention.places import made, site_of
from tests.models.attention.published import published

LAYER = made({"mechanism": "efficient"}, site_of(d_model=12, heads=3))


def softmax(scores: Array, axis: int) -> Array:
    exponentials = np.exp(scores)
    shares: Array = exponentials / exponentials.sum(axis=axis, keepdims=True)
    return shares


def weights(query: Array, key: Array, _: int) -> Array:
    product: Array = softmax(query, axis=1) @ softmax(key, axis=0).T
    return product


@pytest.mark.parametrize("keys", [7, 11])
def test_it_is_what_the_paper_has(keys: int) -> None:
    layer = LAYER
    tokens = 2 * torch.randn(2, 7, 12, dtype=torch.float64)
    source = tokens if keys == 7 else torch.randn(2, keys, 12, dtype=torch.float64)
    expected, maps = dense(layer, tokens, source, weights)
    found = layer(tokens, source, explain=True)
    np.testing.assert_allclose(found.output.detach(), expected, atol=1e-10)
    np.testing.assert_allclose(found.evidence.weights.detach(), maps, atol=1e-10)
    np.testing.assert_allclose(maps.sum(axis=-1), 1)


def test_the_published_package_has_the_same() -> None:
    """Which also divides by the root of a head's width; the paper does not."""
    package = published("linear_attention_transformer.linear_attention_transformer")
    parts = torch.randn(3, 2, 3, 9, 4, dtype=torch.float64).unbind()
    found = LAYER.mix(*parts, Call()).output
    torch.testing.assert_close(found, package.linear_attn(*parts) * 2, rtol=1e-10, atol=1e-10)


def test_large_numbers() -> None:
    query, key = (1e4 * torch.randn(1, 3, 9, 4) for _ in range(2))
    value = torch.randn(1, 3, 9, 4)
    mixed = LAYER.mix(query, key, value, Call()).output
    assert mixed.isfinite().all()
    assert (mixed.abs() <= value.abs().max() * (1 + 1e-6)).all()
