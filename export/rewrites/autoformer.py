"""Autoformer as it is served."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from foretell.export.rewrites.auto_correlation import correlator_for
from foretell.export.rewrites.autoformer_layers import SeasonalDecoderLayer, SeasonalEncoderLayer
from foretell.export.rewrites.decomposition import SeasonalPart, average_matrix
from foretell.export.rewrites.embedding import NeighbourEmbedding, ServedEmbedding, neighbours
from foretell.export.rewrites.normalization import SeasonalNorm
from foretell.export.rewrites.reductions import mean_over_time
from foretell.export.rewrites.registry import Call, all_of, rewrites
from foretell.models.architectures.autoformer import (
    Autoformer,
    AutoformerConfig,
    AutoformerDecoderLayer,
    AutoformerEncoderLayer,
)
from foretell.models.attention.auto_correlation import AutoCorrelation


@rewrites(Autoformer)
def rewrite_autoformer(model: Autoformer, _: Call) -> nn.Module | None:
    """Put faster parts in the place of equal ones.

    The decoder does for the label's steps only what the horizon needs: no trend, and no projection.
    """
    if not all_of(model.encoder_layers, "attention", AutoCorrelation) or not all_of(
        model.decoder_layers, "self_attention cross_attention", AutoCorrelation
    ):
        return None
    config, dtype = model.config, model.projection.weight.dtype
    lengths = {config.context, config.decoder_length}
    correlators = {length: correlator_for(length, dtype) for length in lengths}
    seasonal = {length: SeasonalPart(config.moving_average, length, dtype) for length in lengths}
    encoder_layers = cast("Iterable[AutoformerEncoderLayer]", model.encoder_layers)
    decoder_layers = cast("Iterable[AutoformerDecoderLayer]", model.decoder_layers)
    context, length = config.context, config.decoder_length
    parts: dict[str, nn.Module] = {
        "encoder_embedding": ServedEmbedding(model.encoder_embedding, context),
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
    return model


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
