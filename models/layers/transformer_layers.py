"""Encoder and decoder layers with post-normalisation (arXiv:1706.03762)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from foretell.models.forecaster import Activation
from foretell.models.layers.attention import Attended, MultiHeadAttention
from foretell.models.layers.feed_forward import FeedForward


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward network, each with a residual and a norm after it.

    Args:
        d_model: Features of a token.
        heads: Attention heads.
        d_ff: Width of the feed-forward network.
        activation: Of the feed-forward network.
        dropout: Probability, after each part.
        attention_dropout: Probability, on the attention weights.
        norm: Makes a norm of d_model features.
        residual_attention: Pass attention scores from layer to layer.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_ff: int,
        *,
        activation: Activation,
        dropout: float,
        attention_dropout: float,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        residual_attention: bool = False,
    ) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(
            d_model, heads, dropout=attention_dropout, residual=residual_attention
        )
        self.attention_norm = norm(d_model)
        self.feed_forward = FeedForward(d_model, d_ff, activation=activation, dropout=dropout)
        self.feed_forward_norm = norm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, tokens: Tensor, *, inherited: Tensor | None = None, return_weights: bool = False
    ) -> Attended:
        """`[batch, time, d_model]` in, the same shape and the attention out."""
        attended = self.attention(
            tokens, tokens, inherited=inherited, return_weights=return_weights
        )
        tokens = self.attention_norm(tokens + self.dropout(attended.output))
        tokens = self.feed_forward_norm(tokens + self.feed_forward(tokens))
        return Attended(tokens, attended.weights, attended.scores)


class Decoded(NamedTuple):
    """Tokens `[batch, time, d_model]` and the weights of both attentions, if asked for."""

    output: Tensor
    self_weights: Tensor | None
    cross_weights: Tensor | None


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention and feed-forward network; arguments as above."""

    def __init__(
        self, d_model: int, heads: int, d_ff: int, *, activation: Activation, dropout: float
    ) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, heads, dropout=dropout)
        self.self_norm = nn.LayerNorm(d_model)
        self.cross_attention = MultiHeadAttention(d_model, heads, dropout=dropout)
        self.cross_norm = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, d_ff, activation=activation, dropout=dropout)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, memory: Tensor, *, return_weights: bool = False) -> Decoded:
        """Attend from `[batch, time, d_model]` to its past and to `memory` `[batch, key, …]`."""
        own = self.self_attention(tokens, tokens, causal=True, return_weights=return_weights)
        tokens = self.self_norm(tokens + self.dropout(own.output))
        cross = self.cross_attention(tokens, memory, return_weights=return_weights)
        tokens = self.cross_norm(tokens + self.dropout(cross.output))
        tokens = self.feed_forward_norm(tokens + self.feed_forward(tokens))
        return Decoded(tokens, own.weights, cross.weights)
