"""What formulas of attention are written with in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from foretell.models.attention.heads import HeadedAttention

Array = NDArray[np.float64]


def linear(layer: nn.Linear, array: Array) -> Array:
    return array @ numbers(layer.weight).T + numbers(layer.bias)


def numbers(tensor: Tensor) -> Array:
    return tensor.detach().double().numpy()


def heads_of(layer: nn.Linear, tokens: Array, heads: int) -> Array:
    """`[batch, time, d_model]` through a layer to `[batch, heads, time, features]`."""
    found = linear(layer, tokens)
    return found.reshape(*found.shape[:2], heads, -1).swapaxes(1, 2)


def projected(module: HeadedAttention, tokens: Tensor, source: Tensor) -> tuple[Array, ...]:
    """Query, key and value."""
    pairs = ((module.query, tokens), (module.key, source), (module.value, source))
    return tuple(heads_of(layer, numbers(each), module.heads) for layer, each in pairs)


def merged(module: HeadedAttention, mixed: Array) -> Array:
    """`[batch, heads, time, features]` to the output."""
    batch, _, time, _ = mixed.shape
    return linear(module.out, mixed.swapaxes(1, 2).reshape(batch, time, -1))


def softmax(scores: Array) -> Array:
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def equal(found: Tensor, expected: Any) -> None:
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=0, atol=1e-10)
