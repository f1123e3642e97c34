"""Autoformer as it is served."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from foretell.export.rewrites.auto_correlation import correlator_for
from foretell.export.rewrites.autoformer_layers import SeasonalDecoderLayer, SeasonalEncoderLayer
from foretell.export.rewrites.decomposition import SeasonalPart, average_matrix
from foretell.export.rewrites.embedding import NeighbourEmbedding, neighbours
from foretell.export.rewrites.reductions import mean_over_time
from foretell.models.autoformer import (
    Autoformer,
    AutoformerConfig,
    AutoformerDecoderLayer,
    AutoformerEncoderLayer,
)
from foretell.models.layers.embedding import SeriesEmbedding
from foretell.models.layers.normalization import SeasonalLayerNorm


def rewrite_autoformer(model: Autoformer) -> None:
    """Put faster parts in the place of equal ones.

    The decoder does for the label's steps only what the horizon needs: no trend, and no projection.

    Args:
        model: Changed in place.
    """
    config, dtype = model.config, model.projection.weight.dtype
    lengths = {config.context, config.decoder_length}
    correlators = {length: correlator_for(length, dtype) for length in lengths}
    seasonal = {length: SeasonalPart(config.moving_average, length, dtype) for length in lengths}
    encoder_layers = cast("Iterable[AutoformerEncoderLayer]", model.encoder_layers)
    decoder_layers = cast("Iterable[AutoformerDecoderLayer]", model.decoder_layers)
    context, length = config.context, config.decoder_length
    parts: dict[str, nn.Module] = {
        "encoder_embedding": _Embedding(model.encoder_embedding, context),
        "encoder_layers": nn.ModuleList(
            SeasonalEncoderLayer(layer, correlators[context], seasonal[context], first=i == 0)
            for i, layer in enumerate(encoder_layers)
        ),
        "encoder_norm": SeasonalNorm(model.encoder_norm),
        "decoder_start": JoinedDecoderStart(config, dtype),
        "decoder_embedding": NeighbourEmbedding(model.decoder_embedding),
        "decoder_layers": nn.ModuleList(
            SeasonalDecoderLayer(layer, config, correlators[length], seasonal[length], first=i == 0)
            for i, layer in enumerate(decoder_layers)
        ),
        # Its mean over time is left to the projection.
        "decoder_norm": model.decoder_norm.norm,
        "projection": SeasonalProjection(model.projection, config),
    }
    for name, part in parts.items():
        model.register_module(name, part)


class _Embedding(nn.Module):
    """Embeds `[batch, time, channels]` to `[batch, time, d_model]`."""

    def __init__(self, plain: SeriesEmbedding, length: int) -> None:
        super().__init__()
        self.embedding = NeighbourEmbedding(plain)
        self.register_buffer("neighbours", neighbours(length))
        self.neighbours: Tensor

    def forward(self, series: Tensor, calendar: Tensor | None) -> Tensor:
        shape = (-1, series.shape[1], 3 * series.shape[2])
        joined = series.index_select(1, self.neighbours).reshape(shape)
        tokens: Tensor = self.embedding(joined, calendar)
        return tokens


class SeasonalNorm(nn.Module):
    """The norm of the encoder's output; the mean that it takes out is a sum, which needs no cuDNN.

    Args:
        plain: The trained norm.
    """

    def __init__(self, plain: SeasonalLayerNorm) -> None:
        super().__init__()
        self.norm = plain.norm

    def forward(self, tokens: Tensor) -> Tensor:
        """`[batch, time, d_model]`, the shape stays."""
        normed: Tensor = self.norm(tokens)
        return normed - mean_over_time(normed)


class JoinedDecoderStart(nn.Module):
    """The decoder's input, each step joined with its neighbours, and the trend of the horizon.

    Equal because both the seasonal part and what continues it are linear in the history, so that
    one matrix makes the input. Over the horizon the trend starts as the mean of the history.

    Args:
        config: Of the model.
        dtype: Of the matrix.
    """

    def __init__(self, config: AutoformerConfig, dtype: torch.dtype) -> None:
        super().__init__()
        self.length = config.decoder_length
        context = config.context
        known = context - config.label
        start = torch.zeros(self.length, context, dtype=torch.float64)
        seasonal = torch.eye(context, dtype=torch.float64)
        seasonal -= average_matrix(config.moving_average, context)
        start[: config.label] = seasonal[known:]
        # Earlier steps of the history have no influence.
        self.first = min(max(known - config.moving_average // 2, 0), context - 1)
        joined = start[neighbours(self.length), self.first :].T.contiguous()
        self.register_buffer("start", joined.to(dtype))
        self.start: Tensor

    def forward(self, history: Tensor) -> tuple[Tensor, Tensor]:
        """`[batch, context, channels]` to `[batch, length, 3 * channels]` and `[batch, 1, …]`."""
        joined = history[:, self.first :].transpose(1, 2) @ self.start
        shape = (-1, self.length, 3 * history.shape[2])
        return joined.transpose(1, 2).reshape(shape), mean_over_time(history)


class SeasonalProjection(nn.Module):
    """Projects the steps of the horizon, less the mean over time of all steps.

    That is what the model's last norm takes out before the projection; after it there are fewer
    features, and one constant matrix in time does both.

    Args:
        plain: The trained projection.
        config: Of the model.
    """

    def __init__(self, plain: nn.Linear, config: AutoformerConfig) -> None:
        super().__init__()
        self.weight, self.bias = plain.weight, plain.bias
        length = config.decoder_length
        seasonal = torch.eye(length)[:, -config.horizon :] - 1 / length
        self.register_buffer("seasonal", seasonal.to(plain.weight.dtype))
        self.seasonal: Tensor

    def forward(self, tokens: Tensor) -> Tensor:
        """`[batch, time, d_model]` to `[batch, horizon, channels]`."""
        projected = self.weight @ tokens.transpose(1, 2)
        return (projected @ self.seasonal).transpose(1, 2) + self.bias
