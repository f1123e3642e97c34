"""How large the scores of an attention between patches of a series can get."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foretell.models.attention.softmax import MultiHeadAttention


@dataclass(frozen=True, eq=False)
class Patches:
    """Tokens that are patches of a series, which instance normalisation has centred and scaled.

    Attributes:
        projection: From a patch to its token, `[d_model, patch]`.
        positions: Added to the tokens, with the projection's bias, `[patches, d_model]`.
        steps: Which steps of the series each patch reads, `[patches, patch]`; where it is padded,
            some of them more than once.
        context: Steps of the series.
    """

    projection: Tensor
    positions: Tensor
    steps: Tensor
    context: int


def patch_score_bound(plain: MultiHeadAttention, patches: Patches) -> float:
    """A bound of the scores' size that holds for every series.

    Divided by their deviation, the steps of a series have squares that add up to `context` at most:
    it lies in a ball. The score of two patches is a polynomial of second degree in the steps that
    they read. Its square terms are bounded by the largest eigenvalue of their matrix, which sees
    that two patches share that sum; the linear ones by their norm.

    Args:
        plain: The trained layer, of the patches to themselves.
        patches: What its tokens are.

    Returns:
        The bound on scores without the key's bias.
    """
    features = plain.query.in_features
    queries, keys = (
        layer.weight.detach().double().reshape(plain.heads, -1, features)
        for layer in (plain.query, plain.key)
    )
    biases = plain.query.bias.detach().double().reshape(plain.heads, -1)
    # Patches differ in where they start, and those with padding in what they read.
    starts = patches.steps[:, :1]
    read, kind = torch.unique(patches.steps - starts, dim=0, return_inverse=True)
    length = read.shape[1]
    # Further apart than this they share no step.
    apart = (starts.T - starts).clamp(-length, length)
    kinds = (kind[:, None] * len(read) + kind) * (2 * length + 1) + apart
    _, found, pair = np.unique(kinds, return_index=True, return_inverse=True)
    pair = pair.reshape(kinds.shape)
    # One of each kind of pairs.
    alike = patches.steps[np.stack(np.divmod(found, len(kind)), axis=1)]

    projection = patches.projection.detach().double()
    positions = patches.positions.detach().double()
    largest = 0.0
    for query, key, bias in zip(queries, keys, biases, strict=True):
        # Of each step of a patch, and of each position, to the features of the head.
        steps_query, steps_key = query @ projection, key @ projection
        level_query, level_key = positions @ query.T + bias, positions @ key.T
        squares = torch.stack([_square_bound(steps_query, steps_key, *two) for two in alike])
        # [queries, keys]; those of steps are the same for all patches of a kind.
        by_query = torch.stack([_norm(level_key @ steps_query, steps) for steps in read])[kind]
        by_key = torch.stack([_norm(level_query @ steps_key, steps) for steps in read], 1)[:, kind]
        bound = patches.context * squares[pair] + math.sqrt(patches.context) * (by_query + by_key)
        bound += (level_query @ level_key.T).abs()
        largest = max(largest, bound.max().item() * len(query) ** -0.5)
    return largest


def _square_bound(query: Tensor, key: Tensor, read: Tensor, also: Tensor) -> Tensor:
    """How large a product of two linear maps of the same steps can get, these being of length 1.

    Args:
        query: Of the steps of a patch, `[features, patch]`.
        key: Likewise.
        read: Which steps the first map reads, `[patch]`.
        also: Which the second one does.
    """
    picks = _picks(torch.cat([read, also]))
    both = torch.cat([query @ picks[: len(read)], key @ picks[len(read) :]])
    # Its symmetric matrix has the rank of both maps: its eigenvalues are those of a smaller one.
    triangle = torch.linalg.qr(both.T, mode="r")[1]
    swapped = triangle.roll(len(query), dims=1)
    sizes: Tensor = torch.linalg.eigvalsh(triangle @ swapped.T / 2).abs()
    return sizes.max()


def _norm(weights: Tensor, steps: Tensor) -> Tensor:
    """The norms of weights `[…, patch]` of steps, some of which come more than once."""
    norms: Tensor = (weights @ _picks(steps)).norm(dim=-1)
    return norms


def _picks(steps: Tensor) -> Tensor:
    """`[steps, distinct steps]`: 1 where it is that one."""
    places = torch.unique(steps, return_inverse=True)[1]
    return torch.eye(int(places.max()) + 1, dtype=torch.float64)[places]
