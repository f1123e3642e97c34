"""Functions of numpy for formulas of attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from foretell.models.attention.heads import HeadedAttention

Array = NDArray[np.float64]


def linear(layer: nn.Linear, array: Array) -> Array:
    bias = 0 if layer.bias is None else numbers(layer.bias)
    return array @ numbers(layer.weight).T + bias


def numbers(tensor: Tensor) -> Array:
    return tensor.detach().double().numpy()


def heads_of(layer: nn.Linear, tokens: Array, heads: int) -> Array:
    """`[batch, time, d_model]` through a layer to `[batch, heads, time, features]`."""
    found = linear(layer, tokens)
    return found.reshape(*found.shape[:2], heads, -1).swapaxes(1, 2)


def projected(module: HeadedAttention, tokens: Tensor, source: Tensor) -> tuple[Array, ...]:
    """Query, key and value; one vector may be both query and key."""
    key = getattr(module, "key", module.query)
    pairs = ((module.query, tokens), (key, source), (module.value, source))
    return tuple(heads_of(layer, numbers(each), module.heads) for layer, each in pairs)


def merged(module: HeadedAttention, mixed: Array) -> Array:
    """`[batch, heads, time, features]` to the output."""
    batch, _, time, _ = mixed.shape
    return linear(module.out, mixed.swapaxes(1, 2).reshape(batch, time, -1))


def assert_map(
    module: HeadedAttention,
    tokens: Tensor,
    source: Tensor,
    weights: Callable[[Array, Array, int], Array],
) -> Array:
    """Assert the output of a layer, with and without its map; returns the map.

    Args:
        module: The layer; only its projections are used for the expected output.
        tokens: `[batch, query, d_model]`.
        source: `[batch, key, d_model]`.
        weights: Function of queries, keys and number of a head that returns `[query, key]`.
    """
    query, key, value = projected(module, tokens, source)
    maps = np.empty((*query.shape[:3], key.shape[2]))
    for at in np.ndindex(maps.shape[:2]):
        maps[at] = weights(query[at], key[at], at[1])
    assert_gives(module, tokens, source, merged(module, maps @ value), maps)
    return maps


def assert_gives(
    module: nn.Module, tokens: Tensor, source: Tensor, output: Array, maps: Array
) -> None:
    """A layer gives this output, with and without this map."""
    shown = module(tokens, source, explain=True)
    equal(module(tokens, source).output, output)
    equal(shown.output, output)
    equal(shown.evidence.weights, maps)


def quotient(products: Array, *, causal: bool) -> Array:
    """Rows divided by their sums; if causal, later keys are left out."""
    if causal:
        products = np.tril(products)
    normalised: Array = products / products.sum(axis=-1, keepdims=True)
    return normalised


def softmax(scores: Array, *, causal: bool = False) -> Array:
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def equal(found: Tensor, expected: Any) -> None:
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=0, atol=1e-10)
