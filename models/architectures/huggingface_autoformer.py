"""The Autoformer of Hugging Face's transformers (`AutoformerForPrediction`).

The layers are the paper's (Wu et al., 2021, arXiv:2106.13008) with norms within. The model
decomposes the features of tokens, such as values at lags. It forecasts distributions of all steps
at once, from the sum of the features' trend and seasonal part.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.bundle.attention import Axis
from foretell.models.attending import Mechanisms
from foretell.models.attention.auto_correlation import AutoCorrelationConfig
from foretell.models.attention.evidence import Evidence
from foretell.models.config import ARCHITECTURES
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Explained, Inputs
from foretell.models.lagged import LaggedConfig, LaggedForecaster, StepEmbedding
from foretell.models.layers.autoformer import (
    AutoformerDecoded,
    AutoformerDecoderLayer,
    AutoformerEncoderLayer,
    LayerSizes,
)
from foretell.models.layers.decomposition import SeriesDecomposition, check_kernel
from foretell.models.layers.encoder import Encoder
from foretell.models.layers.repetition import repeated


@ARCHITECTURES.add
class HuggingFaceAutoformerConfig(LaggedConfig):
    """Configuration of Hugging Face's Autoformer."""

    architecture: Literal["huggingface-autoformer"] = "huggingface-autoformer"
    has_heads: ClassVar[bool] = True
    attention: Mechanisms = (AutoCorrelationConfig(),)
    label: int = Field(
        default=10, ge=1, description="Steps of history that the decoder starts with."
    )
    moving_average: int = Field(default=25, ge=1, description="Steps of the moving average, odd.")
    static_features: int = Field(
        default=0, ge=0, description="Numbers that the tokens of all windows share."
    )

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        check_kernel("moving_average", self.moving_average)
        if self.label > self.encoder_length:
            raise ValueError(
                f"label: {self.label} steps are more than the {self.encoder_length} of the encoder"
            )
        return self

    @property
    @override
    def features(self) -> int:
        return super().features + self.static_features

    @property
    @override
    def decoder_axis(self) -> Axis:
        return Axis(length=self.label + self.horizon, start=-self.label)

    def layer_sizes(self, d_ff: int | None) -> LayerSizes:
        """Sizes of its layers; `d_ff` is the encoder's if None."""
        return LayerSizes(
            self.d_model,
            d_ff or self.d_ff,
            self.moving_average,
            self.activation,
            self.dropout,
            normed=True,
        )

    @override
    def build(self) -> Forecaster:
        return HuggingFaceAutoformer(self)


class HuggingFaceAutoformer(LaggedForecaster):
    """Forecasts trend and seasonal part of the features of tokens, and reads their sum."""

    config: HuggingFaceAutoformerConfig

    def __init__(self, config: HuggingFaceAutoformerConfig) -> None:
        super().__init__(config)
        self.encoder_layers = Encoder(
            AutoformerEncoderLayer(
                config.build_attention(f"encoder.{i}.self"), config.layer_sizes(config.d_ff)
            )
            for i in range(config.encoder_layers)
        )
        self.decomposition = SeriesDecomposition(config.moving_average)
        self.decoder_embedding = StepEmbedding(config)
        self.decoder_layers = nn.ModuleList(
            AutoformerDecoderLayer(
                config.build_attention(f"decoder.{i}.self"),
                config.build_attention(f"decoder.{i}.cross"),
                config.layer_sizes(config.decoder_d_ff),
                config.features,
            )
            for i in range(config.decoder_layers)
        )
        self.projection = nn.Linear(config.d_model, config.features)
        self.static = (
            nn.Parameter(torch.zeros(config.static_features)) if config.static_features else None
        )
        self.heads = nn.ModuleList(
            nn.Linear(config.features, config.channels) for _ in range(config.parameters)
        )

    @override
    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        embed = self.encoder_embedding
        history, statistics = self._scaled(inputs.history)
        centre, spread = statistics
        lagged = self._lagged(history, self._past)
        shared = self._shared(inputs, statistics)
        if self.static is not None:
            shared = torch.cat([self.static.expand(shared.shape[0], -1), shared], dim=1)
        inputs = self.with_time_features(inputs, static=False)
        past = self._joined(lagged, shared, inputs.history_calendar)
        tokens = embed(embed.placed(past, 0))
        layers = self.encoder_layers(tokens, explain=explain)
        seen = {f"encoder.{i}.self": layer.evidence for i, layer in enumerate(layers)}
        forecast = self._decode(inputs, lagged, shared, layers[-1].output, seen, explain=explain)
        parameters = torch.cat([head(forecast) for head in self.heads], dim=1)
        if self.head is None or self.head.is_of_values:
            return Explained.of(parameters * spread + centre, seen)
        return Explained.of(parameters, seen)._replace(anchor=statistics)

    def _decode(
        self,
        inputs: Inputs,
        lagged: Tensor,
        shared: Tensor,
        memory: Tensor,
        seen: dict[str, Evidence | None],
        *,
        explain: bool,
    ) -> Tensor:
        """Forecast features of the horizon's tokens, `[batch, horizon, features]`."""
        config, length = self.config, self.config.encoder_length
        seasonal, _ = self.decomposition(lagged)
        seasonal = functional.pad(seasonal[:, -config.label :], (0, 0, 0, config.horizon))
        mean = lagged.sum(dim=1) / length
        calendar = inputs.future_calendar
        trend = self._joined(repeated(mean, config.horizon).transpose(1, 2), shared, calendar)
        if calendar is not None and inputs.history_calendar is not None:
            calendar = torch.cat([inputs.history_calendar, calendar], dim=1)
        start = self._joined(seasonal, shared, calendar)
        embed = self.decoder_embedding
        tokens = embed(embed.placed(start, length - config.label))
        for i, layer in enumerate(self.decoder_layers):
            decoded: AutoformerDecoded = layer(tokens, memory, explain=explain)
            tokens = decoded.seasonal
            trend = trend + decoded.trend[:, -config.horizon :]
            seen[f"decoder.{i}.self"], seen[f"decoder.{i}.cross"] = decoded.own, decoded.cross
        forecast: Tensor = self.projection(tokens[:, -config.horizon :]) + trend
        return forecast
