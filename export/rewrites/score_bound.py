"""Bound of the scores of an attention between normed tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from foretell.export.rewrites.biases import bias_of
from foretell.models.attention.softmax import MultiHeadAttention

# Exponentials of scores up to it, and their sums, stay far from the limits of float32: there is
# room for the rounding of scores.
_LARGEST_SCORE = 60


def is_bounded(plain: MultiHeadAttention, origin: nn.Module | None) -> bool:
    """Whether the scores are too small for the exponentials of a softmax to overflow.

    Args:
        plain: The trained layer.
        origin: Module whose outputs are the tokens and the source; only a layer norm bounds them.
    """
    # Inherited scores are not bounded.
    if plain.residual or not isinstance(origin, nn.LayerNorm):
        return False
    return score_bound(plain, origin) <= _LARGEST_SCORE


def score_bound(plain: MultiHeadAttention, norm: nn.LayerNorm) -> float:
    """A bound of the scores' size that holds for every input, without the key's bias.

    Outputs of a layer norm lie in a ball: before its weight and bias they have a mean of 0 and a
    length of at most `sqrt(d_model)`. A score is bilinear in two such vectors, so the norms of its
    matrices bound it. (In float32 too, except for tokens so far from zero that a norm cannot
    distinguish them: these have no forecast.)
    """
    features = plain.query.in_features
    query, query_level = _of_normed(plain.query.weight, norm)
    key, key_level = _of_normed(plain.key.weight, norm)
    query_level = query_level + bias_of(plain.query)
    queries, keys = (part.reshape(plain.heads, -1, features) for part in (query, key))
    query_levels, key_levels = (part.reshape(plain.heads, -1) for part in (query_level, key_level))

    length = features**0.5
    product = torch.linalg.matrix_norm(queries.transpose(1, 2) @ keys, ord=2) * length**2
    by_key = (query_levels[:, None] @ keys).norm(dim=(1, 2)) * length
    by_query = (key_levels[:, None] @ queries).norm(dim=(1, 2)) * length
    level = (query_levels * key_levels).sum(dim=1).abs()
    largest = (product + by_key + by_query + level).max().item()
    return float(largest) * math.sqrt(plain.heads / features)


def _of_normed(weight: Tensor, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """A linear map as one of a layer norm's outputs before its weight and bias."""
    weight = weight.detach().double()
    scaled = weight * norm.weight.detach().double()
    return scaled - scaled.mean(dim=1, keepdim=True), weight @ norm.bias.detach().double()
