"""The served form of Autoformer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from typing_extensions import override

from foretell.export.rewrites.auto_correlation import ServedAutoCorrelation, correlator_for
from foretell.export.rewrites.decomposition import ServedDecomposition, average_matrix
from foretell.export.rewrites.embedding import NeighbourEmbedding, ServedEmbedding, neighbours
from foretell.export.rewrites.lookup import Call, all_of, replace, rewrites
from foretell.export.rewrites.normalization import SeasonalNorm
from foretell.models.architectures.autoformer import Autoformer, AutoformerConfig
from foretell.models.attention.auto_correlation import AutoCorrelation
from foretell.models.attention.evidence import Circulant
from foretell.models.attention.mechanism import Attended
from foretell.models.layers.autoformer import AutoformerDecoderLayer, AutoformerEncoderLayer
from foretell.models.layers.decomposition import SeriesDecomposition
from foretell.models.layers.embedding import SeriesEmbedding, TokenEmbedding
from foretell.models.layers.encoder import Encoder


@rewrites(Autoformer)
def rewrite_autoformer(model: Autoformer, _: Call) -> nn.Module | None:
    """Replace parts by faster, equal ones.

    The decoder does for the label's steps only what the horizon needs: no trend, and no projection.

    No level of the history and no bias goes through a layer: each is taken out before it is added.
    Rounding a level would leave noise on a constant series, and a correlation of noise chooses
    lags. So a constant history stays exactly zero, and its lags tie.
    """
    if not all_of(model.encoder_layers, "attention", AutoCorrelation) or not all_of(
        model.decoder_layers, "self_attention cross_attention", AutoCorrelation
    ):
        _keep_constants_exact(model)
        return None
    config, dtype = model.config, model.projection.weight.dtype
    context, length = config.context, config.decoder_length
    correlators = {steps: correlator_for(steps, dtype) for steps in (context, length)}
    # The decoder's trends are averaged by its projection.
    seasonal = {
        steps: ServedDecomposition(config.moving_average, steps, dtype, averaged=False)
        for steps in (context, length)
    }
    for i, layer in enumerate(model.encoder_layers):
        plain = cast("AutoCorrelation", layer.attention)
        replace(
            layer,
            attention=ServedAutoCorrelation(
                plain, correlators[context], centre=i == 0, constant=False
            ),
            attention_decomposition=seasonal[context],
            feed_forward_decomposition=seasonal[context],
        )
    for i, layer in enumerate(cast("Iterable[AutoformerDecoderLayer]", model.decoder_layers)):
        # Embedded tokens have a mean, which is part of the trend.
        own = ServedAutoCorrelation(
            cast("AutoCorrelation", layer.self_attention),
            correlators[length],
            centre=i == 0,
            constant=i == 0,
            biased=False,
        )
        cross = ServedAutoCorrelation(
            cast("AutoCorrelation", layer.cross_attention),
            correlators[length],
            context,
            centre=False,
            constant=False,
        )
        replace(
            layer,
            self_attention=own,
            self_decomposition=seasonal[length],
            cross_attention=cross,
            cross_decomposition=seasonal[length],
            feed_forward_decomposition=seasonal[length],
            trend_projection=TrendProjection(layer.trend_projection, config, own.bias + cross.bias),
        )
    replace(
        model,
        encoder_embedding=LevelFreeEmbedding(model.encoder_embedding, context),
        encoder_layers=LevelFreeEncoder(model.encoder_layers),
        encoder_norm=SeasonalNorm(model.encoder_norm),
        decoder_start=JoinedDecoderStart(config, dtype),
        decoder_embedding=NeighbourEmbedding(model.decoder_embedding),
        # The projection takes out its mean over time.
        decoder_norm=model.decoder_norm.norm,
        projection=SeasonalProjection(model.projection, config),
    )
    return model


def _keep_constants_exact(model: Autoformer) -> None:
    """Take levels out exactly in an Autoformer with attention that reads levels."""
    config, dtype = model.config, model.projection.weight.dtype
    context, length = config.context, config.decoder_length
    for steps, layers in ((context, model.encoder_layers), (length, model.decoder_layers)):
        exact = ServedDecomposition(config.moving_average, steps, dtype, level_free=False)
        for layer in layers:
            for name, part in list(layer.named_children()):
                if type(part) is SeriesDecomposition:
                    replace(layer, **{name: exact})
                elif type(part) is AutoCorrelation:
                    known = context if name == "cross_attention" else None
                    correlator = correlator_for(steps, dtype)
                    replace(
                        layer,
                        **{name: ServedAutoCorrelation(part, correlator, known, level_free=False)},
                    )
    start = ServedDecomposition(config.moving_average, context, dtype, level_free=False)
    replace(model.decoder_start, decomposition=start)


class LevelFreeTokens(NamedTuple):
    """Tokens without the part that comes from the last value of each channel.

    Attributes:
        tokens: `[batch, time, d_model]`.
        level: `[batch, 1, d_model]`, the part that was taken out.
    """

    tokens: Tensor
    level: Tensor


class LevelFreeEmbedding(nn.Module):
    """Embeds the history minus its last value.

    Args:
        plain: The trained embedding.
        context: Steps of the history.
    """

    def __init__(self, plain: SeriesEmbedding, context: int) -> None:
        super().__init__()
        self.embedding = ServedEmbedding(plain, context)
        self.of_level = nn.Buffer(plain.value.convolution.weight.detach().sum(dim=2).T.contiguous())

    def forward(self, history: Tensor, calendar: Tensor | None) -> LevelFreeTokens:
        """Embed `[batch, context, channels]` and `[batch, context, features]`."""
        last = history[:, -1:]
        return LevelFreeTokens(self.embedding(history - last, calendar), last @ self.of_level)


class LevelFreeEncoder(Encoder):
    """Layers that read tokens without their level.

    Equal because the first decomposition takes out any level. A level adds the same to all lags of
    the first correlation; the reported one includes it.
    """

    @override
    def forward(  # type: ignore[override]
        self, tokens: LevelFreeTokens, *, explain: bool = False
    ) -> list[Attended]:
        first, *others = super().forward(tokens.tokens, explain=explain)
        layer = cast("AutoformerEncoderLayer", self[0])
        attention = cast("ServedAutoCorrelation", layer.attention)
        evidence = cast("Circulant", first.evidence)
        raised = evidence.correlation + attention.shift_by(*tokens)
        return [first._replace(evidence=evidence._replace(correlation=raised)), *others]


class JoinedDecoderStart(nn.Module):
    """The decoder's input, each step joined with its neighbours, and the trend of the horizon.

    Equal because both the seasonal part and its continuation are linear in the history, so that one
    matrix makes the input. A level has no seasonal part. Over the horizon the trend starts as the
    mean of the history.

    Args:
        config: Configuration of the model.
        dtype: Type of the matrix.
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
        self.start = nn.Buffer(joined.to(dtype))

    def forward(self, history: Tensor) -> tuple[Tensor, Tensor]:
        """`[batch, context, channels]` to `[batch, length, 3 * channels]` and `[batch, 1, …]`."""
        level_free = history[:, self.first :] - history[:, -1:]
        joined = level_free.transpose(1, 2) @ self.start
        shape = (-1, self.length, 3 * history.shape[2])
        return joined.transpose(1, 2).reshape(shape), history.mean(dim=1, keepdim=True)


class SeasonalProjection(nn.Module):
    """Projects the steps of the horizon, minus the mean over time of all steps.

    The model's last norm takes out this mean before the projection. After the projection there are
    fewer features, and one constant matrix in time does both.

    Args:
        plain: The trained projection.
        config: Configuration of the model.
    """

    def __init__(self, plain: nn.Linear, config: AutoformerConfig) -> None:
        super().__init__()
        self.weight, self.bias = plain.weight, plain.bias
        length = config.decoder_length
        seasonal = torch.eye(length)[:, -config.horizon :] - 1 / length
        self.seasonal = nn.Buffer(seasonal.to(plain.weight.dtype))

    def forward(self, tokens: Tensor) -> Tensor:
        """`[batch, time, d_model]` to `[batch, horizon, channels]`."""
        projected = self.weight @ tokens.transpose(1, 2)
        return (projected @ self.seasonal).transpose(1, 2) + self.bias


class TrendProjection(nn.Module):
    """Takes the trend out of tokens and projects it, for the steps of the horizon only.

    Equal because moving average and convolution are both linear, one in time, the other in features
    and time: features first leaves few channels, and the rest is one constant matrix in time. It
    comes second in the product, where onnxruntime packs a constant once. The label's steps are not
    part of the forecast, and the moving average of a sum is the sum of the moving averages.

    Args:
        plain: The trained projection.
        config: Configuration of the model.
        left_out: `[d_model]`, a constant that the tokens lack; it is its own moving average.
    """

    def __init__(self, plain: TokenEmbedding, config: AutoformerConfig, left_out: Tensor) -> None:
        super().__init__()
        length, channels = config.decoder_length, config.parameters * config.channels
        self.shape = (-1, channels, 3 * length)
        weight = plain.convolution.weight.detach()
        # To channels with their neighbours.
        self.weight = nn.Buffer(weight.transpose(1, 2).flatten(0, 1).contiguous())
        average = average_matrix(config.moving_average, length)
        # A neighbour's trend is a row of the average before or after.
        rows = average[neighbours(length)].reshape(length, 3 * length)
        self.average = nn.Buffer(rows[-config.horizon :].T.contiguous().to(weight.dtype))
        self.bias = nn.Buffer(weight.sum(dim=2) @ left_out)

    def forward(self, tokens: Tensor) -> Tensor:
        """Series `[batch, time, d_model]` to trends `[batch, horizon, channels]`."""
        projected = (self.weight @ tokens.transpose(1, 2)).reshape(self.shape)
        return (projected @ self.average).transpose(1, 2) + self.bias
