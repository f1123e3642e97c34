"""The served form of Transformer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from torch import Tensor, nn

from foretell.export.rewrites.attention import TimeFirstAttention
from foretell.export.rewrites.embedding import ServedEmbedding
from foretell.export.rewrites.lookup import Call, all_of, replace, rewrites
from foretell.export.rewrites.transformer_layers import TimeFirstDecoderLayer, flatten_layer
from foretell.models.architectures.transformer import Transformer
from foretell.models.attention.softmax import MultiHeadAttention
from foretell.models.layers.embedding import SeriesEmbedding
from foretell.models.layers.transformer import DecoderLayer, EncoderLayer


@rewrites(Transformer)
def rewrite_transformer(model: Transformer, _: Call) -> nn.Module | None:
    """Make time the first axis; the last decoder layer computes the horizon's steps only."""
    config = model.config
    if not all_of(model.encoder_layers, "attention", MultiHeadAttention) or not all_of(
        model.decoder_layers, "self_attention cross_attention", MultiHeadAttention
    ):
        return None
    embedding = model.decoder_embedding
    if not isinstance(embedding, SeriesEmbedding) or config.memory != "last":
        return None
    context, length = config.context, config.decoder_length
    for i, layer in enumerate(cast("Iterable[EncoderLayer]", model.encoder_layers)):
        attention = cast("MultiHeadAttention", layer.attention)
        steps = (context, context)
        flatten_layer(layer, TimeFirstAttention(attention, steps, embedded=i == 0))
    decoder_layers = cast("Iterable[DecoderLayer]", model.decoder_layers)
    # Number of steps that each decoder layer passes on.
    wanted = [length] * (config.decoder_layers - 1) + [config.horizon]
    replace(
        model,
        encoder_embedding=ServedEmbedding(model.encoder_embedding, context, time_first=True),
        decoder_embedding=ServedEmbedding(embedding, length, time_first=True),
        decoder_layers=nn.ModuleList(
            TimeFirstDecoderLayer(layer, length, context, last, embedded=i == 0)
            for i, (layer, last) in enumerate(zip(decoder_layers, wanted, strict=True))
        ),
        projection=TimeFirstProjection(model.projection, config.horizon),
    )
    return model


class TimeFirstProjection(nn.Module):
    """The projection of the horizon's tokens, which puts the batch first again.

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
