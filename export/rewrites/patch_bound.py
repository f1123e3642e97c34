"""How large the scores of an attention between patches of a series can get."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from models.layers.attention import MultiHeadAttention


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
    query, key = (
        layer.weight.detach().double().reshape(plain.heads, -1, features)
        for layer in (plain.query, plain.key)
    )
    bias = plain.query.bias.detach().double().reshape(plain.heads, 1, -1)
    scale = query.shape[1] ** -0.5
    # Of two tokens, [heads, d_model, d_model], and of the key's alone, [heads, d_model].
    product = query.transpose(1, 2) @ key * scale
    linear = (bias @ key)[:, 0] * scale

    projection = patches.projection.detach().double()
    positions = patches.positions.detach().double()
    square = projection.T @ product @ projection
    # Of a query's steps with each key's position, [heads, keys, patch], and the other way round.
    of_query = torch.einsum("hde,ne->hnd", product, positions) @ projection
    of_key = (positions @ product + linear[:, None]) @ projection
    level = positions @ product @ positions.T + (linear @ positions.T)[:, None]

    # Patches differ in where they start, and those with padding in what they read.
    starts = patches.steps[:, :1]
    read, kind = torch.unique(patches.steps - starts, dim=0, return_inverse=True)
    # Further apart than this they share no step.
    apart = (starts.T - starts).clamp(-projection.shape[1], projection.shape[1])
    kinds = torch.stack([kind[:, None].expand_as(apart), kind.expand_as(apart), apart], dim=-1)
    pairs, pair = torch.unique(kinds.flatten(0, 1), dim=0, return_inverse=True)
    squares = torch.stack(
        [_square_bound(square, read[one], read[other] + shift) for one, other, shift in pairs],
        dim=1,
    )[:, pair.reshape(apart.shape)]
    by_query = torch.stack([_norm(of_query, steps) for steps in read], dim=1)[:, kind]
    by_key = torch.stack([_norm(of_key, steps) for steps in read], dim=2)[:, :, kind]
    bound = patches.context * squares + math.sqrt(patches.context) * (by_query + by_key)
    return float((bound + level.abs()).max())


def _square_bound(matrices: Tensor, read: Tensor, others: Tensor) -> Tensor:
    """The largest size of a bilinear form of steps of the same vector of length 1.

    Args:
        matrices: `[heads, patch, patch]`.
        read: Which steps the left patch reads, `[patch]`.
        others: Which the right one does.

    Returns:
        `[heads]`.
    """
    places = torch.unique(torch.cat([read, others]), return_inverse=True)[1]
    picks = _picks(places)
    form = picks[: len(read)].T @ matrices @ picks[len(read) :]
    sizes: Tensor = torch.linalg.eigvalsh((form + form.transpose(1, 2)) / 2).abs().amax(dim=1)
    return sizes


def _norm(weights: Tensor, steps: Tensor) -> Tensor:
    """The norms of weights `[heads, keys, patch]` of steps, some of which come more than once."""
    places = torch.unique(steps, return_inverse=True)[1]
    norms: Tensor = (weights @ _picks(places)).norm(dim=2)
    return norms


def _picks(places: Tensor) -> Tensor:
    """`[steps read, distinct steps]`: 1 where it is that one."""
    return torch.eye(int(places.max()) + 1, dtype=torch.float64)[places]
