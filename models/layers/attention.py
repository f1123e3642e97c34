"""Multi-head softmax attention (Vaswani et al., 2017, arXiv:1706.03762)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attended(NamedTuple):
    """What an attention layer returns.

    Attributes:
        output: `[batch, query, d_model]`.
        weights: `[batch, heads, query, key]`, or None where they were not asked for.
        scores: The same shape, before the softmax; only a residual attention returns them.
    """

    output: Tensor
    weights: Tensor | None
    scores: Tensor | None = None


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention over `heads` slices of the features.

    Args:
        d_model: Features of a token.
        heads: Number of heads; it divides d_model.
        dropout: Probability of dropping an attention weight in training.
        residual: Add the scores inherited from the layer before, and hand the sum on
            (RealFormer, He et al., 2021, arXiv:2012.11747).
    """

    def __init__(
        self, d_model: int, heads: int, *, dropout: float = 0.0, residual: bool = False
    ) -> None:
        super().__init__()
        self.heads = heads
        self.residual = residual
        self.dropout = dropout
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(
        self,
        tokens: Tensor,
        source: Tensor,
        *,
        causal: bool = False,
        inherited: Tensor | None = None,
        return_weights: bool = False,
    ) -> Attended:
        """Let each token attend to the source.

        Args:
            tokens: `[batch, query, d_model]`.
            source: `[batch, key, d_model]`.
            causal: Forbid attention to later positions.
            inherited: `[batch, heads, query, key]`, scores of the layer before.
            return_weights: Return the attention weights as well.
        """
        query = self._split(self.query(tokens))
        key = self._split(self.key(source))
        value = self._split(self.value(source))
        dropout = self.dropout if self.training else 0.0
        if not (return_weights or self.residual):
            mixed = functional.scaled_dot_product_attention(
                query, key, value, dropout_p=dropout, is_causal=causal
            )
            return Attended(self._merge(mixed), None)
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        if inherited is not None:
            scores = scores + inherited
        masked = scores
        if causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            masked = scores.masked_fill(later, float("-inf"))
        weights = masked.softmax(dim=-1)
        mixed = functional.dropout(weights, dropout) @ value
        return Attended(self._merge(mixed), weights, scores if self.residual else None)

    def _split(self, features: Tensor) -> Tensor:
        """`[batch, time, d_model]` to `[batch, heads, time, d_model / heads]`."""
        return features.reshape(*features.shape[:-1], self.heads, -1).transpose(1, 2)

    def _merge(self, heads: Tensor) -> Tensor:
        merged: Tensor = self.out(heads.transpose(1, 2).flatten(-2))
        return merged
