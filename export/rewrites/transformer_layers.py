"""Encoder and decoder layers on tokens in two dimensions."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from foretell.export.rewrites.attention import TimeFirstAttention
from foretell.export.rewrites.batch_norm import affine_norms
from foretell.export.rewrites.lookup import replace
from foretell.models.attention.mechanism import Attended
from foretell.models.attention.softmax import MultiHeadAttention
from foretell.models.layers.transformer import Decoded, DecoderLayer, EncoderLayer


def flatten_layer(layer: EncoderLayer, attention: nn.Module) -> None:
    """Make an encoder layer take `[time * batch, d_model]`, or the layout of its attention.

    All its other parts except batch norms read each token by itself.
    """
    replace(layer, attention=attention, **affine_norms(layer))


class TimeFirstDecoderLayer(nn.Module):
    """A decoder layer on `[time * batch, d_model]` that returns the last steps only.

    Equal because a step reads the others only as keys and values of the self-attention. Steps that
    no later part reads are computed only if their attention is requested.

    Args:
        plain: The trained layer, with softmax attention.
        steps: Steps of the tokens.
        source_steps: Steps of the memory.
        wanted: Number of last steps that are returned.
        embedded: Whether the tokens come directly from the embedding.
    """

    def __init__(
        self, plain: DecoderLayer, steps: int, source_steps: int, wanted: int, *, embedded: bool
    ) -> None:
        super().__init__()
        self.steps = steps
        self.wanted = wanted
        own, cross = (
            cast("MultiHeadAttention", part)
            for part in (plain.self_attention, plain.cross_attention)
        )
        self.self_attention = TimeFirstAttention(own, (steps, steps), embedded=embedded)
        self.self_norm = plain.self_norm
        self.cross_attention = TimeFirstAttention(cross, (steps, source_steps))
        self.cross_norm = plain.cross_norm
        self.feed_forward = plain.feed_forward
        self.feed_forward_norm = plain.feed_forward_norm

    def forward(self, tokens: Tensor, memory: Tensor, *, explain: bool = False) -> Decoded:
        """Decode.

        Args:
            tokens: `[steps * batch, d_model]`.
            memory: `[source_steps * batch, d_model]`.
            explain: Return the attention of all steps as well.

        Returns:
            Tokens `[wanted * batch, d_model]` and, if requested, the maps of both attentions.
        """
        last = self.steps if explain else self.wanted
        found = _last(tokens, self.steps, last)
        own: Attended = self.self_attention(found, tokens, explain=explain, last=last)
        found = self.self_norm(found + own.output)
        cross: Attended = self.cross_attention(found, memory, explain=explain, last=last)
        found = self.cross_norm(found + cross.output)
        found = self.feed_forward_norm(found + self.feed_forward(found))
        return Decoded(_last(found, last, self.wanted), own.evidence, cross.evidence)


def _last(tokens: Tensor, steps: int, count: int) -> Tensor:
    """The last `count` of all steps, `[count * batch, d_model]`."""
    if count == steps:
        return tokens
    return tokens.reshape(steps, -1, tokens.shape[1])[-count:].flatten(0, 1)
