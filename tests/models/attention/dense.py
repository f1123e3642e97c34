"""Attention in plain numpy and float64: every head by itself, and the whole map."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from foretell.models.attention.heads import HeadedAttention

Array = NDArray[np.float64]


def dense(
    layer: HeadedAttention,
    tokens: Tensor,
    source: Tensor,
    weights: Callable[[Array, Array, int], Array],
) -> tuple[Array, Array]:
    """What a layer should give, and its map.

    Args:
        layer: Its projections are taken, nothing else.
        tokens: `[batch, query, d_model]`.
        source: `[batch, key, d_model]`.
        weights: From queries and keys of a head, and which that is, to `[query, key]`.
    """
    query = _projected(layer.query, tokens)
    key, value = _projected(layer.key, source), _projected(layer.value, source)
    width = query.shape[-1] // layer.heads
    maps, rows = [], []
    for i in range(len(query)):
        parts = [slice(head * width, (head + 1) * width) for head in range(layer.heads)]
        each = [weights(query[i][:, p], key[i][:, p], head) for head, p in enumerate(parts)]
        mixed = [m @ value[i][:, p] for m, p in zip(each, parts, strict=True)]
        maps.append(np.stack(each))
        rows.append(np.concatenate(mixed, axis=-1))
    merged = np.stack(rows) @ layer.out.weight.detach().numpy().T + layer.out.bias.detach().numpy()
    return merged, np.stack(maps)


def quotient(products: Array, *, causal: bool) -> Array:
    """Each row by its sum; nothing of later keys if causal."""
    if causal:
        products = np.tril(products)
    normalised: Array = products / products.sum(axis=-1, keepdims=True)
    return normalised


def _projected(linear: nn.Linear, tokens: Tensor) -> Array:
    projected: Array = tokens.numpy() @ linear.weight.detach().numpy().T
    return projected + linear.bias.detach().numpy()
