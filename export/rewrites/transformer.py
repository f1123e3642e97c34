"""Transformer as it is served."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from export.rewrites.embedding import NeighbourEmbedding, neighbours
from export.rewrites.transformer_layers import TimeFirstDecoderLayer, TimeFirstEncoderLayer
from models.forecaster import Attention, SoftmaxAttention
from models.layers.embedding import SeriesEmbedding
from models.layers.transformer_layers import DecoderLayer, EncoderLayer
from models.transformer import OnePassForecaster, Transformer


class _TimeFirstEmbedding(nn.Module):
    """Embeds `[batch, time, channels]` to `[time * batch, d_model]`, with positions."""

    def __init__(self, plain: SeriesEmbedding) -> None:
        super().__init__()
        if plain.positions is None:
            raise ValueError("an embedding without positions is none of a Transformer")
        self.embedding = NeighbourEmbedding(plain)
        self.register_buffer("neighbours", neighbours(len(plain.positions)))
        self.register_buffer("positions", plain.positions[:, None])
        self.neighbours: Tensor
        self.positions: Tensor

    def forward(self, series: Tensor, calendar: Tensor | None) -> Tensor:
        width = 3 * series.shape[2]
        joined = series.index_select(1, self.neighbours).reshape(-1, series.shape[1], width)
        by_step = None if calendar is None else calendar.transpose(0, 1)
        tokens: Tensor = self.embedding(joined.transpose(0, 1), by_step)
        return (tokens + self.positions).flatten(0, 1)


class TransformerForm(OnePassForecaster):
    """The time axis first, and the last decoder layer for the horizon's steps only.

    The attention of the label's steps is shown, but not needed for the forecast.

    Args:
        plain: The trained model.
    """

    def __init__(self, plain: Transformer) -> None:
        super().__init__()
        self.config = plain.config
        context, length = plain.config.context, plain.config.decoder_length
        self.encoder_embedding = _TimeFirstEmbedding(plain.encoder_embedding)
        self.encoder_layers = nn.ModuleList(
            TimeFirstEncoderLayer(layer, context)
            for layer in cast("Iterable[EncoderLayer]", plain.encoder_layers)
        )
        self.encoder_norm = plain.encoder_norm
        self.decoder_embedding = _TimeFirstEmbedding(plain.decoder_embedding)
        self.decoder_layers = nn.ModuleList(
            TimeFirstDecoderLayer(layer, length, context)
            for layer in cast("Iterable[DecoderLayer]", plain.decoder_layers)
        )
        self.decoder_norm = plain.decoder_norm
        self.projection = plain.projection

    @override
    def _run(
        self,
        history: Tensor,
        history_calendar: Tensor | None,
        future_calendar: Tensor | None,
        attention: dict[str, Attention] | None,
    ) -> Tensor:
        config, maps = self.config, {}
        memory = self.encoder_embedding(history, history_calendar)
        for i, layer in enumerate(self.encoder_layers):
            memory, maps[f"encoder.{i}.self"], _ = layer(memory)
        memory = self.encoder_norm(memory)

        known = history[:, config.context - config.label :]
        series = functional.pad(known, (0, 0, 0, config.horizon))
        calendar = config.decoder_calendar(history_calendar, future_calendar)
        tokens = self.decoder_embedding(series, calendar)
        for i, layer in enumerate(self.decoder_layers):
            is_last = i + 1 == len(self.decoder_layers)
            last = config.horizon if is_last and attention is None else config.decoder_length
            tokens, maps[f"decoder.{i}.self"], maps[f"decoder.{i}.cross"] = layer(
                tokens, memory, last
            )
        if attention is not None:
            attention.update((name, SoftmaxAttention(weights)) for name, weights in maps.items())
        tokens = tokens.reshape(-1, history.shape[0], config.d_model)[-config.horizon :]
        forecast: Tensor = self.projection(self.decoder_norm(tokens))
        return forecast.transpose(0, 1)
