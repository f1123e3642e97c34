"""The Transformer of Hugging Face's transformers (`TimeSeriesTransformerForPrediction`).

Its decoder forecasts the distribution of one step at a time. It reads the means of earlier
distributions, or values drawn from them on several paths (DeepAR: Salinas et al., 2020,
arXiv:1704.04110).
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.bundle.attention import Axis
from foretell.bundle.distribution import PARAMETERS
from foretell.models.attention.evidence import Dense, Evidence
from foretell.models.config import ARCHITECTURES
from foretell.models.forecaster import Forecaster
from foretell.models.heads import HEADS, Head
from foretell.models.inputs import Explained, Inputs
from foretell.models.lagged import LaggedConfig, LaggedForecaster, StepEmbedding
from foretell.models.layers.decoding import whole_map
from foretell.models.layers.paths import Draw, Paths, PathsLayer, ascending
from foretell.models.layers.transformer import DecoderLayer

# A graph contains each of them.
_MOST_STEPS = 64


@ARCHITECTURES.add
class HuggingFaceTimeSeriesTransformerConfig(LaggedConfig):
    """Configuration of Hugging Face's TimeSeriesTransformer."""

    architecture: Literal["huggingface-time-series-transformer"] = (
        "huggingface-time-series-transformer"
    )
    by_step: ClassVar[bool] = True
    step_distribution: Literal["normal", "student-t"] = Field(
        default="student-t", description="Distribution of a step; the next steps read its mean."
    )
    samples: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="Paths drawn from the distributions, whose quantiles are forecast; 0 for the "
        "path of the means.",
    )

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if self.samples == 1:
            raise ValueError("samples: one path has no quantiles")
        if self.horizon > _MOST_STEPS:
            raise ValueError(
                f"horizon: {self.horizon} steps, which are decoded one by one, are more than the "
                f"{_MOST_STEPS} that a graph can contain"
            )
        return self

    @property
    @override
    def token_width(self) -> int:
        return super().token_width * max(self.samples, 1)

    @override
    def build_head(self) -> Head | None:
        return Paths(self.samples) if self.samples else super().build_head()

    @property
    @override
    def decoder_axis(self) -> Axis:
        # No mask is needed: later steps do not exist yet.
        return Axis(length=self.horizon)

    @override
    def build(self) -> Forecaster:
        return HuggingFaceTimeSeriesTransformer(self)


class PathsEmbedding(StepEmbedding):
    """Embedding of tokens, some of whose values become known later.

    Args:
        config: Configuration of the model.
    """

    def __init__(self, config: LaggedConfig) -> None:
        super().__init__(config)
        self.channels, lags = config.channels, config.value_lags
        self.order = sorted(range(len(lags)), key=lags.__getitem__)

    def lagged(self) -> Tensor:
        """Factors of lagged values, `[lags * channels, d_model]`, short lags first."""
        weight = self.value.weight[:, : self.channels * len(self.order)]
        by_lag = weight.reshape(-1, self.channels, len(self.order)).permute(2, 1, 0)
        order = torch.tensor(self.order, device=weight.device)
        return by_lag.index_select(0, order).flatten(0, 1)


class HuggingFaceTimeSeriesTransformer(LaggedForecaster):
    """Forecasts the paths of the steps after the context, one step after the other."""

    config: HuggingFaceTimeSeriesTransformerConfig

    def __init__(self, config: HuggingFaceTimeSeriesTransformerConfig) -> None:
        super().__init__(config)
        context, lags = config.context, torch.tensor(config.value_lags)
        # Values in the future are the row after the context.
        future = (torch.arange(context, context + config.horizon)[:, None] - lags).clamp(
            max=context
        )
        self._future = nn.Buffer(future.flatten(), persistent=False)
        self.encoder_layers = config.build_encoder_layers()
        self.decoder_embedding = PathsEmbedding(config)
        decoder_layer = PathsLayer if config.samples else DecoderLayer
        self.decoder_layers = nn.ModuleList(
            decoder_layer(
                config.build_attention(f"decoder.{i}.self"),
                config.build_attention(f"decoder.{i}.cross"),
                config.d_model,
                config.decoder_d_ff or config.d_ff,
                activation=config.activation,
                dropout=config.dropout,
            )
            for i in range(config.decoder_layers)
        )
        self.heads = nn.ModuleList(
            nn.Linear(config.d_model, config.channels) for _ in PARAMETERS[config.step_distribution]
        )
        self.draw = (
            Draw(config.step_distribution, config.horizon, config.channels, config.samples)
            if config.samples
            else None
        )

    @override
    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        history, statistics = self._scaled(inputs.history)
        centre, spread = statistics
        # Values that are not known yet are zero.
        known = functional.pad(history, (0, 0, 0, 1))
        shared = self._shared(inputs, statistics)
        inputs = self.with_time_features(inputs, static=False)
        calendars = inputs.history_calendar, inputs.future_calendar
        past, future = (
            self._joined(self._lagged(known, places), shared, calendar)
            for places, calendar in zip((self._past, self._future), calendars, strict=True)
        )
        embed = self.encoder_embedding
        tokens = embed(embed.placed(past, 0))
        layers = self.encoder_layers(tokens, explain=explain)
        seen = {f"encoder.{i}.self": layer.evidence for i, layer in enumerate(layers)}
        paths, decoded = self._decode(future, layers[-1].output, explain=explain)
        if self.draw is not None:
            paths = ascending(paths)
        # All steps of a path, and of a rank among the paths, are together.
        outputs = paths.transpose(1, 2).flatten(1, 2) * spread + centre
        return Explained.of(outputs, seen | decoded)

    def _decode(
        self, features: Tensor, memory: Tensor, *, explain: bool
    ) -> tuple[Tensor, dict[str, Evidence | None]]:
        """Scaled paths `[batch, horizon, paths, channels]`, whose values the next steps read."""
        config, embed, count = self.config, self.decoder_embedding, max(self.config.samples, 1)
        known, lagged = embed.placed(features, config.encoder_length), embed.lagged()
        nothing = torch.zeros(count, config.d_model, dtype=known.dtype, device=known.device)
        layers = [cast("DecoderLayer", layer) for layer in self.decoder_layers]
        caches = [layer.begin(memory) for layer in layers]
        values: list[Tensor] = []
        maps: dict[str, list[Tensor]] = {}
        for step in range(config.horizon):
            found = [values[step - lag] for lag in sorted(config.value_lags) if lag <= step]
            if found:
                read = lagged[: len(found) * config.channels]
                earlier = torch.cat(found, dim=-1) @ read
            else:
                earlier = nothing
            tokens = embed(known[:, step : step + 1] + earlier)
            for i, layer in enumerate(layers):
                (tokens, own, cross), caches[i] = layer.extend(tokens, caches[i])
                if explain:
                    shown = {"self": (own, config.horizon), "cross": (cross, config.encoder_length)}
                    for name, (evidence, length) in shown.items():
                        whole = whole_map(evidence, length)
                        maps.setdefault(f"decoder.{i}.{name}", []).append(whole)
            values.append(self._next(tokens, step))
        seen: dict[str, Evidence | None] = {
            name: Dense(torch.cat(parts, dim=2) / count) for name, parts in maps.items()
        }
        return torch.stack(values, dim=1), seen

    def _next(self, tokens: Tensor, step: int) -> Tensor:
        """Scaled values of the paths at a step, `[batch, paths, channels]`."""
        if self.draw is None:
            # `loc` is the mean of both distributions.
            place = PARAMETERS[self.config.step_distribution].index("loc")
            return self.heads[place](tokens)  # type: ignore[no-any-return]
        heads = [cast("nn.Linear", head) for head in self.heads]
        weight = torch.stack([head.weight for head in heads], dim=1).flatten(0, 1)
        bias = torch.stack([head.bias for head in heads], dim=1).flatten()
        # One product for all heads.
        raw = functional.linear(tokens, weight, bias)
        raw = raw.reshape(-1, tokens.shape[1], self.config.channels, len(heads))
        parameters = HEADS[self.config.step_distribution].constrain(raw)
        return self.draw(parameters, step)  # type: ignore[no-any-return]
