"""Autoformer as it is served."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from bundle.manifest import AttentionStage
from export.rewrites.auto_correlation import FoldedMixed, correlator_for
from export.rewrites.autoformer_layers import SeasonalDecoderLayer, SeasonalEncoderLayer
from export.rewrites.decomposition import SeasonalPart, average_matrix
from export.rewrites.embedding import NeighbourEmbedding, neighbours
from export.rewrites.lag_choice import LagForecaster, smallest_margin
from models.autoformer import (
    Autoformer,
    AutoformerConfig,
    AutoformerDecoderLayer,
    AutoformerEncoderLayer,
)
from models.forecaster import Attention, Explained


class AutoformerForm(LagForecaster):
    """Seasonal layers, and a decoder that does for the label's steps only what the horizon needs.

    The decoder's trend starts as the mean of the history, over the horizon; so only that is left
    of it. The last norm's mean over time is taken from the few channels it is projected to.

    Args:
        plain: The trained model.
    """

    def __init__(self, plain: Autoformer) -> None:
        super().__init__()
        self.config: AutoformerConfig = plain.config
        config, dtype = plain.config, plain.projection.weight.dtype
        lengths = {config.context, config.decoder_length}
        correlators = {length: correlator_for(length, dtype) for length in lengths}
        seasonal = {
            length: SeasonalPart(config.moving_average, length, dtype) for length in lengths
        }
        encoder_layers = cast("Iterable[AutoformerEncoderLayer]", plain.encoder_layers)
        decoder_layers = cast("Iterable[AutoformerDecoderLayer]", plain.decoder_layers)
        self.encoder_embedding = NeighbourEmbedding(plain.encoder_embedding)
        self.encoder_layers = nn.ModuleList(
            SeasonalEncoderLayer(
                layer, correlators[config.context], seasonal[config.context], first=i == 0
            )
            for i, layer in enumerate(encoder_layers)
        )
        self.encoder_norm = plain.encoder_norm
        self.decoder_embedding = NeighbourEmbedding(plain.decoder_embedding)
        self.decoder_layers = nn.ModuleList(
            SeasonalDecoderLayer(
                layer,
                config,
                correlators[config.decoder_length],
                seasonal[config.decoder_length],
                first=i == 0,
            )
            for i, layer in enumerate(decoder_layers)
        )
        self.decoder_norm = plain.decoder_norm.norm
        self.projection = plain.projection
        self.register_buffer("neighbours", neighbours(config.context))
        start, self.first = _decoder_start(config)
        self.register_buffer("start", start.to(dtype))
        self.neighbours: Tensor
        self.start: Tensor

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
        return self.explain_with_margin(history, history_calendar, future_calendar)[0]

    @override
    def explain_with_margin(
        self, history: Tensor, history_calendar: Tensor | None, future_calendar: Tensor | None
    ) -> tuple[Explained, Tensor]:
        config = self.config
        stages: dict[str, FoldedMixed] = {}
        width = 3 * config.channels
        joined = history.index_select(1, self.neighbours).reshape(-1, config.context, width)
        tokens = self.encoder_embedding(joined, history_calendar)
        for i, layer in enumerate(self.encoder_layers):
            tokens, stages[f"encoder.{i}.self"] = layer(tokens)
        memory = self.encoder_norm(tokens)

        calendar = config.decoder_calendar(history_calendar, future_calendar)
        joined = self.start @ history[:, self.first :]
        tokens = self.decoder_embedding(joined.reshape(-1, config.decoder_length, width), calendar)
        trend = history.mean(dim=1, keepdim=True)
        for i, layer in enumerate(self.decoder_layers):
            decoded = layer(tokens, memory)
            stages[f"decoder.{i}.self"], stages[f"decoder.{i}.cross"] = decoded.own, decoded.cross
            tokens = decoded.seasonal
            trend = trend + decoded.trend
        projected = functional.linear(self.decoder_norm(tokens), self.projection.weight)
        level = self.projection.bias - projected.mean(dim=1, keepdim=True)
        attention: dict[str, Attention] = {name: stage.attention for name, stage in stages.items()}
        extremes = [stage.extremes for stage in stages.values() if stage.extremes is not None]
        margin = smallest_margin(extremes) if extremes else torch.ones_like(history[:, 0, 0])
        return Explained(projected[:, -config.horizon :] + level + trend, attention), margin


def _decoder_start(config: AutoformerConfig) -> tuple[Tensor, int]:
    """The matrix from history to the decoder's input, and the first step of history it reads.

    The input is the seasonal part of the last `label` steps, continued by zeros; its steps are
    joined with their neighbours.

    Returns:
        `[3 * decoder_length, context - first]` in float64.
    """
    context, length = config.context, config.decoder_length
    known = context - config.label
    start = torch.zeros(length, context, dtype=torch.float64)
    seasonal = torch.eye(context, dtype=torch.float64)
    seasonal -= average_matrix(config.moving_average, context)
    start[: config.label] = seasonal[known:]
    first = min(max(known - config.moving_average // 2, 0), context - 1)
    return start[neighbours(length), first:], first
