"""Autoformer: decomposition and auto-correlation (Wu et al., NeurIPS 2021, arXiv:2106.13008)."""

from __future__ import annotations

from typing import Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.bundle.manifest import AttentionStage
from foretell.models.encoder_decoder import EncoderDecoderConfig
from foretell.models.forecaster import Attention, Explained, Forecaster, LagAttention
from foretell.models.layers.auto_correlation import (
    AutoCorrelation,
    LagChoice,
    LagMixed,
    Lags,
    lag_count,
)
from foretell.models.layers.decomposition import SeriesDecomposition
from foretell.models.layers.embedding import SeriesEmbedding, TokenEmbedding
from foretell.models.layers.feed_forward import FeedForward
from foretell.models.layers.normalization import SeasonalLayerNorm


class AutoformerConfig(EncoderDecoderConfig):
    """Configuration of an Autoformer.

    Attributes:
        factor: The number of lags kept is `int(factor * ln length)`.
        moving_average: Steps of the moving average, odd.
        lags: `all`, or `even` to leave out the last lag of an odd length as the
            Time-Series-Library does.
        training_lags: One choice of lags for a training `batch`, as published, or one a `sample`.
    """

    architecture: Literal["autoformer"] = "autoformer"
    factor: float = Field(default=3, gt=0, allow_inf_nan=False)
    moving_average: int = Field(default=25, ge=1)
    lags: Lags = "all"
    training_lags: LagChoice = "batch"

    @model_validator(mode="after")
    def _check_kernels(self) -> Self:
        if self.moving_average % 2 == 0:
            raise ValueError(f"moving_average: expected an odd number, got {self.moving_average}")
        for length in (self.context, self.decoder_length):
            count = lag_count(self.factor, length)
            available = length if self.lags == "all" else length // 2 * 2
            if not 1 <= count <= available:
                raise ValueError(
                    f"factor: {self.factor:g} keeps {count} of the {available} lags at length "
                    f"{length}; expected at least 1 and no more than there are"
                )
        return self


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
    """Auto-correlation and feed-forward network; after each, only the seasonal part goes on."""

    def __init__(self, config: AutoformerConfig) -> None:
        super().__init__()
        self.attention = _auto_correlation(config)
        self.attention_decomposition = SeriesDecomposition(config.moving_average)
        self.feed_forward = _feed_forward(config)
        self.feed_forward_decomposition = SeriesDecomposition(config.moving_average)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: Tensor) -> LagMixed:
        """`[batch, time, d_model]` in, the same shape and the lags out."""
        mixed: LagMixed = self.attention(tokens, tokens)
        tokens, _ = self.attention_decomposition(tokens + self.dropout(mixed.output))
        tokens, _ = self.feed_forward_decomposition(tokens + self.feed_forward(tokens))
        return mixed._replace(output=tokens)


class AutoformerDecoded(NamedTuple):
    """Seasonal tokens `[batch, time, d_model]`, trend `[batch, time, channels]` and the lags."""

    seasonal: Tensor
    trend: Tensor
    own: LagMixed
    cross: LagMixed


class AutoformerDecoderLayer(nn.Module):
    """As the encoder layer, with cross auto-correlation; the trends it takes out are collected."""

    def __init__(self, config: AutoformerConfig) -> None:
        super().__init__()
        self.self_attention = _auto_correlation(config)
        self.self_decomposition = SeriesDecomposition(config.moving_average)
        self.cross_attention = _auto_correlation(config)
        self.cross_decomposition = SeriesDecomposition(config.moving_average)
        self.feed_forward = _feed_forward(config)
        self.feed_forward_decomposition = SeriesDecomposition(config.moving_average)
        self.trend_projection = TokenEmbedding(config.d_model, config.channels)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: Tensor, memory: Tensor) -> AutoformerDecoded:
        """Let `[batch, time, d_model]` read itself and `memory` `[batch, context, d_model]`."""
        own: LagMixed = self.self_attention(tokens, tokens)
        tokens, self_trend = self.self_decomposition(tokens + self.dropout(own.output))
        cross: LagMixed = self.cross_attention(tokens, memory)
        tokens, cross_trend = self.cross_decomposition(tokens + self.dropout(cross.output))
        tokens, late_trend = self.feed_forward_decomposition(tokens + self.feed_forward(tokens))
        trend = self.trend_projection(self_trend + cross_trend + late_trend)
        return AutoformerDecoded(tokens, trend, own, cross)


class Autoformer(Forecaster):
    """Forecasts trend and seasonal part, and adds them."""

    def __init__(self, config: AutoformerConfig) -> None:
        super().__init__()
        self.config: AutoformerConfig = config
        self.encoder_embedding = _embedding(config, config.context)
        self.encoder_layers = nn.ModuleList(
            AutoformerEncoderLayer(config) for _ in range(config.encoder_layers)
        )
        self.encoder_norm = SeasonalLayerNorm(config.d_model)
        self.decoder_start = DecoderStart(config)
        self.decoder_embedding = _embedding(config, config.decoder_length)
        self.decoder_layers = nn.ModuleList(
            AutoformerDecoderLayer(config) for _ in range(config.decoder_layers)
        )
        self.decoder_norm = SeasonalLayerNorm(config.d_model)
        self.projection = nn.Linear(config.d_model, config.channels)

    @property
    @override
    def stages(self) -> tuple[AttentionStage, ...]:
        return self.config.describe_stages("autocorrelation")

    @override
    def forward(
        self,
        history: Tensor,
        history_calendar: Tensor | None = None,
        future_calendar: Tensor | None = None,
    ) -> Tensor:
        return self.explain(history, history_calendar, future_calendar).forecast

    @override
    def explain(
        self,
        history: Tensor,
        history_calendar: Tensor | None = None,
        future_calendar: Tensor | None = None,
    ) -> Explained:
        attention: dict[str, Attention] = {}
        tokens = self.encoder_embedding(history, history_calendar)
        for i, layer in enumerate(self.encoder_layers):
            mixed = layer(tokens)
            attention[f"encoder.{i}.self"] = LagAttention(*mixed[1:])
            tokens = mixed.output
        memory = self.encoder_norm(tokens)

        calendar = self.config.decoder_calendar(history_calendar, future_calendar)
        seasonal, trend = self.decoder_start(history)
        tokens = self.decoder_embedding(seasonal, calendar)
        for i, layer in enumerate(self.decoder_layers):
            decoded = layer(tokens, memory)
            attention[f"decoder.{i}.self"] = LagAttention(*decoded.own[1:])
            attention[f"decoder.{i}.cross"] = LagAttention(*decoded.cross[1:])
            tokens = decoded.seasonal
            trend = trend + decoded.trend
        forecast = self.projection(self.decoder_norm(tokens)) + trend
        return Explained(forecast[:, -self.config.horizon :], attention)


def _auto_correlation(config: AutoformerConfig) -> AutoCorrelation:
    return AutoCorrelation(
        config.d_model, config.factor, lags=config.lags, training_lags=config.training_lags
    )


def _feed_forward(config: AutoformerConfig) -> FeedForward:
    return FeedForward(
        config.d_model,
        config.d_ff,
        activation=config.activation,
        dropout=config.dropout,
        bias=False,
    )


def _embedding(config: AutoformerConfig, length: int) -> SeriesEmbedding:
    return SeriesEmbedding(
        config.channels,
        config.d_model,
        length,
        calendar=config.calendar,
        kind=config.embedding,
        positions=False,
        dropout=config.dropout,
    )
