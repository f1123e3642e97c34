"""Autoformer: decomposition and auto-correlation (Wu et al., NeurIPS 2021, arXiv:2106.13008)."""

from __future__ import annotations

from typing import Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.models.attention.auto_correlation import AutoCorrelationConfig
from foretell.models.attention.evidence import Evidence
from foretell.models.attention.mechanism import Attended, Mechanism
from foretell.models.encoder_decoder import EncoderDecoderConfig
from foretell.models.forecaster import ARCHITECTURES, Explained, Forecaster, Inputs
from foretell.models.layers.decomposition import SeriesDecomposition, check_kernel
from foretell.models.layers.dropout import Dropout
from foretell.models.layers.embedding import TokenEmbedding
from foretell.models.layers.feed_forward import FeedForward
from foretell.models.layers.normalization import SeasonalLayerNorm
from foretell.models.layers.transformer import encode

# Where auto-correlation was the only mechanism, its settings lay among the others.
_FLAT = ("factor", "lags", "training_lags")


@ARCHITECTURES.add
class AutoformerConfig(EncoderDecoderConfig):
    """Configuration of an Autoformer."""

    architecture: Literal["autoformer"] = "autoformer"
    attention: tuple[Mechanism, ...] = Field(
        default=(AutoCorrelationConfig(),),
        min_length=1,
        description="One mechanism for all, or one a layer or stage (docs/mechanisms.md).",
    )
    moving_average: int = Field(default=25, ge=1, description="Steps of the moving average, odd.")

    @model_validator(mode="before")
    @classmethod
    def _nest_flat(cls, fields: object) -> object:
        """Read the checkpoints of before."""
        if not isinstance(fields, dict) or not fields.keys() & set(_FLAT):
            return fields
        if "attention" in fields:
            # Refused below, as what are no fields.
            return fields
        flat = {name: fields[name] for name in _FLAT if name in fields}
        others = {name: value for name, value in fields.items() if name not in _FLAT}
        return others | {"attention": {"mechanism": "autocorrelation", **flat}}

    @model_validator(mode="after")
    def _check_kernel(self) -> Self:
        check_kernel("moving_average", self.moving_average)
        return self

    @override
    def build(self) -> Forecaster:
        return Autoformer(self)


class DecoderStart(nn.Module):
    """Seasonal part and trend of the last `label` steps, continued by zeros and by the mean."""

    def __init__(self, config: AutoformerConfig) -> None:
        super().__init__()
        self.first = config.context - config.label
        self.horizon = config.horizon
        self.decomposition = SeriesDecomposition(config.moving_average)

    def forward(self, history: Tensor) -> tuple[Tensor, Tensor]:
        """`[batch, context, channels]` to two of `[batch, label + horizon, channels]`."""
        seasonal, trend = self.decomposition(history)
        mean = history.mean(dim=1, keepdim=True).expand(-1, self.horizon, -1)
        return (
            functional.pad(seasonal[:, self.first :], (0, 0, 0, self.horizon)),
            torch.cat([trend[:, self.first :], mean], dim=1),
        )


class AutoformerEncoderLayer(nn.Module):
    """Attention and feed-forward network; after each, only the seasonal part goes on.

    Args:
        attention: Of a mechanism.
        config: Of the model.
    """

    def __init__(self, attention: nn.Module, config: AutoformerConfig) -> None:
        super().__init__()
        self.attention = attention
        self.attention_decomposition = SeriesDecomposition(config.moving_average)
        self.feed_forward = _feed_forward(config)
        self.feed_forward_decomposition = SeriesDecomposition(config.moving_average)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, tokens: Tensor, *, inherited: Tensor | None = None, explain: bool = False
    ) -> Attended:
        """`[batch, time, d_model]` in, the same shape and what was attended to out."""
        attended: Attended = self.attention(tokens, tokens, inherited=inherited, explain=explain)
        tokens, _ = self.attention_decomposition(tokens + self.dropout(attended.output))
        tokens, _ = self.feed_forward_decomposition(tokens + self.feed_forward(tokens))
        return attended._replace(output=tokens)


class AutoformerDecoded(NamedTuple):
    """Tokens `[batch, time, d_model]`, trend `[batch, time, parameters * channels]`, evidence."""

    seasonal: Tensor
    trend: Tensor
    own: Evidence | None
    cross: Evidence | None


class AutoformerDecoderLayer(nn.Module):
    """As the encoder layer, with cross-attention; the trends it takes out are collected.

    Args:
        self_attention: Of a mechanism.
        cross_attention: Likewise.
        config: Of the model.
    """

    def __init__(
        self, self_attention: nn.Module, cross_attention: nn.Module, config: AutoformerConfig
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.self_decomposition = SeriesDecomposition(config.moving_average)
        self.cross_attention = cross_attention
        self.cross_decomposition = SeriesDecomposition(config.moving_average)
        self.feed_forward = _feed_forward(config)
        self.feed_forward_decomposition = SeriesDecomposition(config.moving_average)
        self.trend_projection = TokenEmbedding(config.d_model, config.parameters * config.channels)
        # As published: only an embedding starts otherwise than torch's convolutions.
        self.trend_projection.convolution.reset_parameters()
        self.dropout = Dropout(config.dropout)

    def forward(
        self, tokens: Tensor, memory: Tensor, *, explain: bool = False
    ) -> AutoformerDecoded:
        """Let `[batch, time, d_model]` read itself and `memory` `[batch, context, d_model]`."""
        own: Attended = self.self_attention(tokens, tokens, explain=explain)
        tokens, self_trend = self.self_decomposition(tokens + self.dropout(own.output))
        cross: Attended = self.cross_attention(tokens, memory, explain=explain)
        tokens, cross_trend = self.cross_decomposition(tokens + self.dropout(cross.output))
        tokens, late_trend = self.feed_forward_decomposition(tokens + self.feed_forward(tokens))
        trend = self.trend_projection(self_trend + cross_trend + late_trend)
        return AutoformerDecoded(tokens, trend, own.evidence, cross.evidence)


class Autoformer(Forecaster):
    """Forecasts trend and seasonal part, and adds them."""

    config: AutoformerConfig

    def __init__(self, config: AutoformerConfig) -> None:
        super().__init__(config)
        self.stages = config.describe_stages()
        self.encoder_embedding = config.build_embedding(config.context, positions=False)
        self.encoder_layers = nn.ModuleList(
            AutoformerEncoderLayer(config.build_attention(f"encoder.{i}.self"), config)
            for i in range(config.encoder_layers)
        )
        self.encoder_norm = SeasonalLayerNorm(config.d_model)
        self.decoder_start = DecoderStart(config)
        self.decoder_embedding = config.build_embedding(config.decoder_length, positions=False)
        self.decoder_layers = nn.ModuleList(
            AutoformerDecoderLayer(
                config.build_attention(f"decoder.{i}.self"),
                config.build_attention(f"decoder.{i}.cross"),
                config,
            )
            for i in range(config.decoder_layers)
        )
        self.decoder_norm = SeasonalLayerNorm(config.d_model)
        self.projection = nn.Linear(config.d_model, config.parameters * config.channels)

    @override
    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        history, history_calendar, future_calendar = inputs
        tokens = self.encoder_embedding(history, history_calendar)
        layers = encode(self.encoder_layers, tokens, explain=explain)
        seen = {f"encoder.{i}.self": layer.evidence for i, layer in enumerate(layers)}
        memory = self.encoder_norm(layers[-1].output)

        calendar = self.config.decoder_calendar(history_calendar, future_calendar)
        seasonal, trend = self.decoder_start(history)
        if self.config.head is not None:
            # The trend of the history begins that of every parameter.
            trend = trend.repeat(1, 1, self.config.parameters)
        tokens = self.decoder_embedding(seasonal, calendar)
        for i, layer in enumerate(self.decoder_layers):
            decoded: AutoformerDecoded = layer(tokens, memory, explain=explain)
            tokens, trend = decoded.seasonal, trend + decoded.trend
            seen[f"decoder.{i}.self"], seen[f"decoder.{i}.cross"] = decoded.own, decoded.cross
        forecast = self.projection(self.decoder_norm(tokens)) + trend
        forecast = self.config.by_parameter(forecast[:, -self.config.horizon :])
        return Explained.of(forecast, seen)


def _feed_forward(config: AutoformerConfig) -> FeedForward:
    return FeedForward(
        config.d_model,
        config.d_ff,
        activation=config.activation,
        dropout=config.dropout,
        bias=False,
    )
