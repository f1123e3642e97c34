"""Autoformer: decomposition and auto-correlation (Wu et al., NeurIPS 2021, arXiv:2106.13008)."""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.models.attending import Mechanisms
from foretell.models.attention.auto_correlation import AutoCorrelationConfig
from foretell.models.config import ARCHITECTURES
from foretell.models.encoder_decoder import EncoderDecoderConfig
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Explained, Inputs
from foretell.models.layers.autoformer import (
    AutoformerDecoded,
    AutoformerDecoderLayer,
    AutoformerEncoderLayer,
    LayerSizes,
)
from foretell.models.layers.decomposition import SeriesDecomposition, check_kernel
from foretell.models.layers.encoder import Encoder
from foretell.models.layers.normalization import SeasonalLayerNorm


@ARCHITECTURES.add
class AutoformerConfig(EncoderDecoderConfig):
    """Configuration of an Autoformer."""

    architecture: Literal["autoformer"] = "autoformer"
    attention: Mechanisms = (AutoCorrelationConfig(),)
    moving_average: int = Field(default=25, ge=1, description="Steps of the moving average, odd.")

    @model_validator(mode="after")
    def _check_kernel(self) -> Self:
        check_kernel("moving_average", self.moving_average)
        return self

    @override
    def build(self) -> Forecaster:
        return Autoformer(self)

    @property
    def layer_sizes(self) -> LayerSizes:
        """Sizes of its layers."""
        return LayerSizes(
            self.d_model, self.d_ff, self.moving_average, self.activation, self.dropout
        )


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


class Autoformer(Forecaster):
    """Forecasts trend and seasonal part, and adds them."""

    config: AutoformerConfig

    def __init__(self, config: AutoformerConfig) -> None:
        super().__init__(config)
        self.stages = config.describe_stages()
        self.encoder_embedding = config.build_embedding(config.context, positions=False)
        self.encoder_layers = Encoder(
            AutoformerEncoderLayer(config.build_attention(f"encoder.{i}.self"), config.layer_sizes)
            for i in range(config.encoder_layers)
        )
        self.encoder_norm = SeasonalLayerNorm(config.d_model)
        self.decoder_start = DecoderStart(config)
        self.decoder_embedding = config.build_embedding(config.decoder_length, positions=False)
        self.decoder_layers = nn.ModuleList(
            AutoformerDecoderLayer(
                config.build_attention(f"decoder.{i}.self"),
                config.build_attention(f"decoder.{i}.cross"),
                config.layer_sizes,
                config.parameters * config.channels,
            )
            for i in range(config.decoder_layers)
        )
        self.decoder_norm = SeasonalLayerNorm(config.d_model)
        self.projection = nn.Linear(config.d_model, config.parameters * config.channels)

    @override
    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        history, history_calendar, future_calendar = self.with_time_features(inputs)[:3]
        tokens = self.encoder_embedding(history, history_calendar)
        layers = self.encoder_layers(tokens, explain=explain)
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
