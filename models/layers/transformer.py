"""Encoder and decoder layers with post-normalisation (arXiv:1706.03762)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from foretell.models.attention.evidence import Evidence
from foretell.models.attention.mechanism import Attended
from foretell.models.layers.dropout import Dropout
from foretell.models.layers.feed_forward import Activation, FeedForward


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward network, each with a residual and a norm after it.

    Args:
        attention: Module of a mechanism.
        d_model: Features of a token.
        d_ff: Width of the feed-forward network.
        activation: Activation of the feed-forward network.
        dropout: Probability, after each part.
        projection_dropout: Probability, after the attention and before `dropout`.
        norm: Makes a norm of d_model features.

    Attributes:
        is_by_row: Whether each row of a batch is computed from that row alone.
    """

    def __init__(
        self,
        attention: nn.Module,
        d_model: int,
        d_ff: int,
        *,
        activation: Activation,
        dropout: float,
        projection_dropout: float = 0.0,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = norm(d_model)
        self.feed_forward = FeedForward(d_model, d_ff, activation=activation, dropout=dropout)
        self.feed_forward_norm = norm(d_model)
        self.dropout = Dropout(dropout)
        self.projection_dropout = Dropout(projection_dropout)
        self.is_by_row = getattr(attention, "is_by_row", False) and not any(
            isinstance(module, nn.BatchNorm1d) for module in self.modules()
        )

    def forward(
        self, tokens: Tensor, *, inherited: Tensor | None = None, explain: bool = False
    ) -> Attended:
        """Run the layer on `[batch, time, d_model]`, and return evidence if requested."""
        attended: Attended = self.attention(tokens, tokens, inherited=inherited, explain=explain)
        mixed = self.dropout(self.projection_dropout(attended.output))
        tokens = self.attention_norm(tokens + mixed)
        tokens = self.feed_forward_norm(tokens + self.feed_forward(tokens))
        return attended._replace(output=tokens)


class Cache(NamedTuple):
    """Keys and values that a decoder layer has read, each `[batch, …, heads, time, features]`.

    Attributes:
        own: Keys and values of its own tokens so far; None before the first.
        cross: Keys and values of the memory.
    """

    own: tuple[Tensor, Tensor] | None
    cross: tuple[Tensor, Tensor]


class Decoded(NamedTuple):
    """Tokens `[batch, time, d_model]` and the evidence of both attentions, if requested."""

    output: Tensor
    own: Evidence | None
    cross: Evidence | None


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and feed-forward network.

    Args:
        self_attention: Module of a mechanism.
        cross_attention: Module of a mechanism.
        d_model: As in `EncoderLayer`.
        d_ff: As in `EncoderLayer`.
        activation: As in `EncoderLayer`.
        dropout: As in `EncoderLayer`.
    """

    def __init__(
        self,
        self_attention: nn.Module,
        cross_attention: nn.Module,
        d_model: int,
        d_ff: int,
        *,
        activation: Activation,
        dropout: float,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.self_norm = nn.LayerNorm(d_model)
        self.cross_attention = cross_attention
        self.cross_norm = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, d_ff, activation=activation, dropout=dropout)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, memory: Tensor, *, explain: bool = False) -> Decoded:
        """Attend from `[batch, time, d_model]` to itself and to `memory` `[batch, key, …]`."""
        own: Attended = self.self_attention(tokens, tokens, explain=explain)
        return self._read(
            tokens, own, lambda found: self.cross_attention(found, memory, explain=explain)
        )

    def begin(self, memory: Tensor) -> Cache:
        """The cache of a layer that has only read `memory` `[batch, key, d_model]`.

        Both attentions are of mechanisms with a cache (`MechanismConfig.has_cache`).
        """
        return Cache(None, self.cross_attention.keys_and_values(memory))  # type: ignore[operator]

    def extend(self, tokens: Tensor, cache: Cache) -> tuple[Decoded, Cache]:
        """Decode tokens `[batch, time, d_model]` that follow those of the cache."""
        own, cache = self.attend_itself(tokens, cache)
        return self.read_memory(tokens, own, cache), cache

    def attend_itself(self, tokens: Tensor, cache: Cache) -> tuple[Attended, Cache]:
        """The first part of `extend`: self-attention, and the cache with these tokens in it."""
        key, value = self.self_attention.keys_and_values(tokens)  # type: ignore[operator]
        if cache.own is not None:
            key, value = (
                torch.cat(pair, dim=-2) for pair in zip(cache.own, (key, value), strict=True)
            )
        # Always explained: this form has operators that a graph can contain.
        own: Attended = self.self_attention.attend(tokens, key, value, explain=True)  # type: ignore[operator]
        return own, cache._replace(own=(key, value))

    def read_memory(self, tokens: Tensor, own: Attended, cache: Cache) -> Decoded:
        """The rest of `extend`, from the same tokens and the results of self-attention."""
        return self._read(
            tokens,
            own,
            lambda found: self.cross_attention.attend(found, *cache.cross, explain=True),  # type: ignore[operator]
        )

    def _read(
        self, tokens: Tensor, own: Attended, cross_attention: Callable[[Tensor], Attended]
    ) -> Decoded:
        """Run all parts after self-attention."""
        tokens = self.self_norm(tokens + self.dropout(own.output))
        cross = cross_attention(tokens)
        tokens = self.cross_norm(tokens + self.dropout(cross.output))
        tokens = self.feed_forward_norm(tokens + self.feed_forward(tokens))
        return Decoded(tokens, own.evidence, cross.evidence)
