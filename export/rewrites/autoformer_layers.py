"""Encoder and decoder layer of Autoformer as they are served."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from foretell.export.rewrites.auto_correlation import FoldedAutoCorrelation
from foretell.export.rewrites.correlator import Correlator
from foretell.export.rewrites.decomposition import SeasonalPart, average_matrix
from foretell.export.rewrites.embedding import neighbours
from foretell.models.architectures.autoformer import (
    AutoformerConfig,
    AutoformerDecoded,
    AutoformerDecoderLayer,
    AutoformerEncoderLayer,
)
from foretell.models.attention.auto_correlation import AutoCorrelation
from foretell.models.attention.mechanism import Attended
from foretell.models.layers.embedding import TokenEmbedding


class SeasonalEncoderLayer(nn.Module):
    """An encoder layer; it never adds what is constant over time, which is no seasonal part.

    Args:
        plain: The trained layer.
        correlator: Of the context.
        seasonal: Of the context.
        first: Whether the tokens come from the embedding.
    """

    def __init__(
        self,
        plain: AutoformerEncoderLayer,
        correlator: Correlator,
        seasonal: SeasonalPart,
        *,
        first: bool,
    ) -> None:
        super().__init__()
        self.attention = FoldedAutoCorrelation(
            _correlating(plain.attention), correlator, centre=first
        )
        self.seasonal = seasonal
        self.feed_forward = plain.feed_forward

    def forward(self, tokens: Tensor, **_: object) -> Attended:
        """`[batch, time, d_model]` in, the same shape and the lags out, asked for or not."""
        attended: Attended = self.attention(tokens).attended
        tokens = self.seasonal(attended.output)
        tokens = self.seasonal(tokens + self.feed_forward(tokens))
        return attended._replace(output=tokens)


class TrendProjection(nn.Module):
    """Takes the trend out of tokens and projects it, for the steps of the horizon only.

    Equal because moving average and convolution are both linear, one in time, the other in
    features and time: features first leaves few channels, and the rest is one constant matrix in
    time. It comes second in the product, where onnxruntime packs a constant once. The label's steps
    are no part of the forecast.

    Args:
        plain: The trained projection.
        config: Of the model.
    """

    def __init__(self, plain: TokenEmbedding, config: AutoformerConfig) -> None:
        super().__init__()
        length, channels = config.decoder_length, config.channels
        self.shape = (-1, channels, 3 * length)
        weight = plain.convolution.weight.detach()
        # To channels with their neighbours.
        self.register_buffer("weight", weight.transpose(1, 2).flatten(0, 1).contiguous())
        average = average_matrix(config.moving_average, length)
        # A neighbour's trend is a row of the average before or after.
        rows = average[neighbours(length)].reshape(length, 3 * length)
        self.register_buffer("average", rows[-config.horizon :].T.contiguous().to(weight.dtype))
        self.weight: Tensor
        self.average: Tensor

    def forward(self, tokens: Tensor) -> Tensor:
        """`[batch, time, d_model]`, with the seasonal part, to `[batch, horizon, channels]`."""
        projected = (self.weight @ tokens.transpose(1, 2)).reshape(self.shape)
        return (projected @ self.average).transpose(1, 2)


class SeasonalDecoderLayer(nn.Module):
    """A decoder layer that projects the trends it takes out together.

    Equal because the moving average of a sum is the sum of the moving averages, and that of a
    constant the constant: what the attention left out is projected by itself.

    Args:
        plain: The trained layer.
        config: Of the model.
        correlator: Of the decoder's length.
        seasonal: Likewise.
        first: Whether the tokens come from the embedding.
    """

    def __init__(
        self,
        plain: AutoformerDecoderLayer,
        config: AutoformerConfig,
        correlator: Correlator,
        seasonal: SeasonalPart,
        *,
        first: bool,
    ) -> None:
        super().__init__()
        own = FoldedAutoCorrelation(_correlating(plain.self_attention), correlator, centre=first)
        cross = FoldedAutoCorrelation(
            _correlating(plain.cross_attention), correlator, config.context, centre=False
        )
        self.self_attention = own
        self.cross_attention = cross
        self.seasonal = seasonal
        self.feed_forward = plain.feed_forward
        self.trend = TrendProjection(plain.trend_projection, config)
        of_constant = self.trend.weight.reshape(config.channels, 3, -1).sum(dim=1).T
        level = own.missing.T @ of_constant if first else None
        self.register_buffer("level", level)
        self.register_buffer("level_bias", (own.missing_bias + cross.missing_bias) @ of_constant)
        self.level: Tensor | None
        self.level_bias: Tensor

    def forward(self, tokens: Tensor, memory: Tensor, **_: object) -> AutoformerDecoded:
        """Let `[batch, time, d_model]` read itself and `memory` `[batch, context, d_model]`.

        Returns:
            As the plain layer, with the trend of the horizon's steps alone.
        """
        own, mean = self.self_attention(tokens)
        cross = self.cross_attention(self.seasonal(own.output), memory).attended
        tokens = self.seasonal(cross.output)
        tokens = tokens + self.feed_forward(tokens)
        level = self.level_bias if self.level is None else mean @ self.level + self.level_bias
        trend = self.trend(own.output + cross.output + tokens) + level
        return AutoformerDecoded(self.seasonal(tokens), trend, own.evidence, cross.evidence)


def _correlating(attention: nn.Module) -> AutoCorrelation:
    """What `rewrite_autoformer` has made sure of."""
    return cast("AutoCorrelation", attention)
