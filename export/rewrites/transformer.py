"""Transformer as it is served."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from torch import Tensor, nn

from foretell.export.rewrites.embedding import NeighbourEmbedding, join, neighbours
from foretell.export.rewrites.registry import Call, all_of, rewrites
from foretell.export.rewrites.transformer_layers import (
    FlatEncoderLayer,
    TimeFirstDecoderLayer,
    origins,
)
from foretell.models.architectures.transformer import Transformer
from foretell.models.attention.softmax import MultiHeadAttention
from foretell.models.layers.embedding import SeriesEmbedding
from foretell.models.layers.transformer import DecoderLayer, EncoderLayer


@rewrites(Transformer)
def rewrite_transformer(model: Transformer, _: Call) -> nn.Module | None:
    """Let time be the first axis, and the last decoder layer do the horizon's steps only."""
    if not all_of(model.encoder_layers, "attention", MultiHeadAttention) or not all_of(
        model.decoder_layers, "self_attention cross_attention", MultiHeadAttention
    ):
        return None
    config = model.config
    context, length = config.context, config.decoder_length
    encoder_layers = list(cast("Iterable[EncoderLayer]", model.encoder_layers))
    decoder_layers = list(cast("Iterable[DecoderLayer]", model.decoder_layers))
    # What each decoder layer passes on.
    wanted = [length] * (config.decoder_layers - 1) + [config.horizon]
    parts: dict[str, nn.Module] = {
        "encoder_embedding": TimeFirstEmbedding(model.encoder_embedding),
        "encoder_layers": nn.ModuleList(
            FlatEncoderLayer(layer, context, origin, embedded=i == 0)
            for i, (layer, origin) in enumerate(
                zip(encoder_layers, origins(encoder_layers), strict=True)
            )
        ),
        "decoder_embedding": TimeFirstEmbedding(model.decoder_embedding),
        "decoder_layers": nn.ModuleList(
            TimeFirstDecoderLayer(
                layer, length, context, last, origin, model.encoder_norm, embedded=i == 0
            )
            for i, (layer, last, origin) in enumerate(
                zip(decoder_layers, wanted, origins(decoder_layers), strict=True)
            )
        ),
        "projection": TimeFirstProjection(model.projection, config.horizon),
    }
    for name, part in parts.items():
        model.register_module(name, part)
    return model


class TimeFirstEmbedding(nn.Module):
    """An embedding with positions, to `[time * batch, d_model]`.

    Args:
        plain: The trained embedding.
    """

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
        """Embed `[batch, time, channels]` and `[batch, time, features]`."""
        joined = join(series, self.neighbours)
        by_step = None if calendar is None else calendar.transpose(0, 1)
        tokens: Tensor = self.embedding(joined.transpose(0, 1), by_step)
        return (tokens + self.positions).flatten(0, 1)


class TimeFirstProjection(nn.Module):
    """The projection of the horizon's tokens, and the batch first again.

    Args:
        plain: The trained projection.
        horizon: Steps of the forecast.
    """

    def __init__(self, plain: nn.Linear, horizon: int) -> None:
        super().__init__()
        self.projection = plain
        self.horizon = horizon

    def forward(self, tokens: Tensor) -> Tensor:
        """`[horizon * batch, d_model]` to `[batch, horizon, channels]`."""
        projected: Tensor = self.projection(tokens)
        return projected.reshape(self.horizon, -1, projected.shape[1]).transpose(0, 1)
