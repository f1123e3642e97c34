"""Encoder and decoder layers with the time axis first."""

from __future__ import annotations

from torch import Tensor, nn

from export.rewrites.attention import TimeFirstAttention, causal_mask
from export.rewrites.batch_norm import AffineNorm
from models.layers.attention import Attended
from models.layers.normalization import TokenBatchNorm
from models.layers.transformer_layers import Decoded, DecoderLayer, EncoderLayer


class TimeFirstEncoderLayer(nn.Module):
    """An encoder layer on `[time * batch, d_model]`, time being the slow index.

    Args:
        plain: The trained layer.
        steps: Of the tokens.
    """

    def __init__(self, plain: EncoderLayer, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.attention = TimeFirstAttention(plain.attention)
        self.attention_norm = _flat(plain.attention_norm)
        self.feed_forward = plain.feed_forward
        self.feed_forward_norm = _flat(plain.feed_forward_norm)

    def forward(self, tokens: Tensor, inherited: Tensor | None = None) -> Attended:
        """Tokens in, the same shape and the attention out."""
        steps = (self.steps, self.steps)
        attended: Attended = self.attention(tokens, tokens, steps, inherited=inherited)
        tokens = self.attention_norm(tokens + attended.output)
        tokens = self.feed_forward_norm(tokens + self.feed_forward(tokens))
        return attended._replace(output=tokens)


class TimeFirstDecoderLayer(nn.Module):
    """A decoder layer on `[time * batch, d_model]`, for all of the steps or the last of them.

    Equal because a step reads the others only as keys and values of the self-attention.

    Args:
        plain: The trained layer.
        steps: Of the tokens.
        source_steps: Of the memory.
    """

    def __init__(self, plain: DecoderLayer, steps: int, source_steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.source_steps = source_steps
        self.self_attention = TimeFirstAttention(plain.self_attention)
        self.self_norm = plain.self_norm
        self.cross_attention = TimeFirstAttention(plain.cross_attention)
        self.cross_norm = plain.cross_norm
        self.feed_forward = plain.feed_forward
        self.feed_forward_norm = plain.feed_forward_norm
        self.register_buffer("mask", causal_mask(steps, steps))
        self.mask: Tensor

    def forward(self, tokens: Tensor, memory: Tensor, last: int) -> Decoded:
        """Decode.

        Args:
            tokens: `[steps * batch, d_model]`.
            memory: `[source_steps * batch, d_model]`.
            last: How many of the last steps are wanted.

        Returns:
            Tokens `[last * batch, d_model]` and the weights of both attentions.
        """
        wanted = tokens
        if last < self.steps:
            features = tokens.shape[1]
            wanted = tokens.reshape(self.steps, -1, features)[-last:].reshape(-1, features)
        steps, mask = (last, self.steps), self.mask[-last:]
        own: Attended = self.self_attention(wanted, tokens, steps, mask=mask)
        wanted = self.self_norm(wanted + own.output)
        cross: Attended = self.cross_attention(wanted, memory, (last, self.source_steps))
        wanted = self.cross_norm(wanted + cross.output)
        wanted = self.feed_forward_norm(wanted + self.feed_forward(wanted))
        return Decoded(wanted, own.weights, cross.weights)


def _flat(norm: nn.Module) -> nn.Module:
    """The norm for tokens in two dimensions."""
    return AffineNorm(norm) if isinstance(norm, TokenBatchNorm) else norm
