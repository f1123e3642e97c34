"""Encoder and decoder layers on tokens in two dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from foretell.export.rewrites.attention import TimeFirstAttention, causal_mask
from foretell.export.rewrites.batch_norm import AffineNorm
from foretell.export.rewrites.merged_attention import MergedAttention
from foretell.export.rewrites.score_bound import Origin
from foretell.models.attention.mechanism import Attended
from foretell.models.attention.softmax import MultiHeadAttention
from foretell.models.layers.normalization import TokenBatchNorm
from foretell.models.layers.transformer import Decoded, DecoderLayer, EncoderLayer


def origins(layers: Sequence[EncoderLayer | DecoderLayer], first: Origin = None) -> list[Origin]:
    """What the tokens of each layer come out of: the norm of the layer before it.

    Args:
        layers: One after the other.
        first: What the first one's tokens come out of; None where that bounds nothing.
    """
    return [first, *(layer.feed_forward_norm for layer in layers[:-1])]


class FlatEncoderLayer(nn.Module):
    """An encoder layer on `[time * batch, d_model]`, or with merged heads `[batch * time, …]`.

    Args:
        plain: The trained layer.
        steps: Of the tokens.
        origin: What the tokens come out of; None where that bounds nothing.
        embedded: Whether they are as they were embedded.
        merged: Whether the heads are.
    """

    def __init__(
        self,
        plain: EncoderLayer,
        steps: int,
        origin: Origin,
        *,
        embedded: bool,
        merged: bool = False,
    ) -> None:
        super().__init__()
        attention = cast("MultiHeadAttention", plain.attention)
        self.attention = (
            MergedAttention(attention, steps, origin, embedded=embedded)
            if merged
            else TimeFirstAttention(attention, (origin, origin), embedded=embedded)
        )
        self.steps = None if merged else (steps, steps)
        self.attention_norm = _flat(plain.attention_norm)
        self.feed_forward = plain.feed_forward
        self.feed_forward_norm = _flat(plain.feed_forward_norm)

    def forward(
        self, tokens: Tensor, *, inherited: Tensor | None = None, explain: bool = False
    ) -> Attended:
        """Tokens in, the same shape and the attention out."""
        given = (tokens, tokens, self.steps) if self.steps else (tokens,)
        attended: Attended = self.attention(*given, inherited=inherited)
        tokens = self.attention_norm(tokens + attended.output)
        tokens = self.feed_forward_norm(tokens + self.feed_forward(tokens))
        return Attended(tokens, attended.evidence if explain else None, attended.scores)


class TimeFirstDecoderLayer(nn.Module):
    """A decoder layer on `[time * batch, d_model]`, of which the last steps go on.

    Equal because a step reads the others only as keys and values of the self-attention. Those that
    nobody reads are not computed, unless their attention is asked for.

    Args:
        plain: The trained layer.
        steps: Of the tokens.
        source_steps: Of the memory.
        wanted: How many of the last steps go on.
        origin: What the tokens come out of; None where that bounds nothing.
        source_origin: What the memory comes out of.
        embedded: Whether the tokens are as they were embedded.
    """

    def __init__(
        self,
        plain: DecoderLayer,
        steps: int,
        source_steps: int,
        wanted: int,
        origin: Origin,
        source_origin: Origin,
        *,
        embedded: bool,
    ) -> None:
        super().__init__()
        self.steps = steps
        self.source_steps = source_steps
        self.wanted = wanted
        own = cast("MultiHeadAttention", plain.self_attention)
        cross = cast("MultiHeadAttention", plain.cross_attention)
        self.self_attention = TimeFirstAttention(own, (origin, origin), embedded=embedded)
        self.self_norm = plain.self_norm
        read = plain.self_norm, source_origin
        self.cross_attention = TimeFirstAttention(cross, read)
        self.cross_norm = plain.cross_norm
        self.feed_forward = plain.feed_forward
        self.feed_forward_norm = plain.feed_forward_norm
        self.register_buffer("mask", causal_mask(steps, steps))
        self.mask: Tensor

    def forward(self, tokens: Tensor, memory: Tensor, *, explain: bool = False) -> Decoded:
        """Decode.

        Args:
            tokens: `[steps * batch, d_model]`.
            memory: `[source_steps * batch, d_model]`.
            explain: Return what all steps attended to as well.

        Returns:
            Tokens `[wanted * batch, d_model]` and, if asked for, the maps of both attentions.
        """
        last = self.steps if explain else self.wanted
        found = _last(tokens, self.steps, last)
        mask = self.mask[-last:]
        own: Attended = self.self_attention(found, tokens, (last, self.steps), mask=mask)
        found = self.self_norm(found + own.output)
        cross: Attended = self.cross_attention(found, memory, (last, self.source_steps))
        found = self.cross_norm(found + cross.output)
        found = self.feed_forward_norm(found + self.feed_forward(found))
        found = _last(found, last, self.wanted)
        return Decoded(found, *((own.evidence, cross.evidence) if explain else (None, None)))


def _last(tokens: Tensor, steps: int, count: int) -> Tensor:
    """The last `count` of so many steps, `[count * batch, d_model]`."""
    if count == steps:
        return tokens
    return tokens.reshape(steps, -1, tokens.shape[1])[-count:].flatten(0, 1)


def _flat(norm: nn.Module) -> nn.Module:
    """The norm for tokens in two dimensions."""
    return AffineNorm(norm) if isinstance(norm, TokenBatchNorm) else norm
