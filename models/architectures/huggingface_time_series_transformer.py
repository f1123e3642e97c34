"""The Transformer of Hugging Face's transformers (`TimeSeriesTransformerForPrediction`).

Tokens are steps: values at lags before them, the level and the scale of the window, and features of
the calendar. The decoder forecasts a distribution of one step at a time, and reads of those before
their means, or what is drawn of them on each of some paths (DeepAR: Salinas et al., 2020,
arXiv:1704.04110).
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, cast

import torch
from pydantic import Field, ValidationInfo, field_validator, model_validator
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.bundle.attention import Axis
from foretell.bundle.calendar import Calendar
from foretell.bundle.distribution import PARAMETERS
from foretell.bundle.frequency import Frequency
from foretell.models.attending import AttendingConfig
from foretell.models.attention.evidence import Dense, Evidence
from foretell.models.attention.mechanism import Site
from foretell.models.attention.operators import repeated
from foretell.models.forecaster import (
    ARCHITECTURES,
    Explained,
    Forecaster,
    Inputs,
    calendar_of,
)
from foretell.models.heads import HEADS, Head
from foretell.models.layers.decoding import whole_map
from foretell.models.layers.dropout import Dropout
from foretell.models.layers.embedding import sinusoids
from foretell.models.layers.normalization import InstanceStatistics
from foretell.models.layers.paths import Draw, Paths, PathsLayer, ascending
from foretell.models.layers.transformer import DecoderLayer, encode
from foretell.models.layers.window_norms import build_window_norm

# A graph has each of them by itself.
_MOST_STEPS = 64


@ARCHITECTURES.add
class HuggingFaceTimeSeriesTransformerConfig(AttendingConfig):
    """Configuration of a TimeSeriesTransformer of Hugging Face's.

    `context` is what it reads: the encoder's steps, and before them as many as the largest lag.
    """

    architecture: Literal["huggingface-time-series-transformer"] = (
        "huggingface-time-series-transformer"
    )
    value_lags: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(1, 2, 3, 4, 5, 6, 7),
        min_length=1,
        description="Steps before each whose values its token has.",
    )
    scaling: Literal["mean", "magnitude"] | None = Field(
        default="magnitude",
        description="What the encoder's steps are scaled by, which tokens are told of: mean and "
        "standard deviation, or the mean magnitude.",
    )
    step_distribution: Literal["normal", "student-t"] = Field(
        default="student-t", description="What is forecast of a step; the next ones read its mean."
    )
    samples: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="Paths of values drawn from these, whose quantiles are forecast; none for the "
        "path of the means.",
    )
    decoder_layers: int = Field(default=1, ge=1, description="Decoder layers.")
    decoder_heads: int | None = Field(
        default=None, ge=1, description="Attention heads of the decoder; as many if not given."
    )
    decoder_d_ff: int | None = Field(
        default=None, ge=1, description="Width of the decoder's feed-forward layers, likewise."
    )

    @field_validator("value_lags", mode="before")
    @classmethod
    def _read_lags(cls, lags: object) -> object:
        return [lag.strip() for lag in lags.split(",")] if isinstance(lags, str) else lags

    @field_validator("value_lags")
    @classmethod
    def _check_lags(cls, lags: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        context = info.data.get("context")
        if context is not None and context <= max(lags):
            raise ValueError(f"value_lags: {max(lags)} steps leave none of the context {context}")
        return lags

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if self.samples == 1:
            raise ValueError("samples: one path has no quantiles")
        if self.horizon > _MOST_STEPS:
            raise ValueError(
                f"horizon: {self.horizon} steps, each of which is decoded by itself, are more than "
                f"{_MOST_STEPS}, which a graph can have"
            )
        return self

    @property
    def encoder_length(self) -> int:
        """Steps that the encoder works on, the last ones of the context."""
        return self.context - max(self.value_lags)

    @property
    def features(self) -> int:
        """Numbers that a token is made of."""
        calendar = len(self.calendar.features) if self.calendar else 0
        return self.channels * (len(self.value_lags) + 2) + calendar

    @property
    @override
    def token_width(self) -> int:
        return super().token_width * max(self.samples, 1)

    @override
    def build_head(self) -> Head | None:
        return Paths(self.samples) if self.samples else super().build_head()

    @classmethod
    @override
    def calendar_for(cls, frequency: Frequency, settings: dict[str, object]) -> Calendar | None:
        return calendar_of(frequency, "scaled")

    @override
    def sites(self) -> dict[str, tuple[int, Site]]:
        history = Axis(length=self.encoder_length, start=-self.encoder_length)
        future = Axis(length=self.horizon)
        own = Site(self.d_model, self.heads, history, history, dropout=self.dropout)
        found = {f"encoder.{i}.self": (i, own) for i in range(self.encoder_layers)}
        # Nothing later is there yet that a step would have to be kept from.
        each = own._replace(
            heads=self.decoder_heads or self.heads, query=future, chained=False, cached=True
        )
        for i in range(self.decoder_layers):
            layer = self.encoder_layers + i
            found[f"decoder.{i}.self"] = layer, each._replace(key=future)
            found[f"decoder.{i}.cross"] = layer, each
        return found

    @override
    def build(self) -> Forecaster:
        return HuggingFaceTimeSeriesTransformer(self)


class StepEmbedding(nn.Module):
    """What tokens of steps are made of to `d_model` features.

    Args:
        config: Of the model.
    """

    def __init__(self, config: HuggingFaceTimeSeriesTransformerConfig) -> None:
        super().__init__()
        self.channels, lags = config.channels, config.value_lags
        self.order = sorted(range(len(lags)), key=lags.__getitem__)
        self.value = nn.Linear(config.features, config.d_model)
        rows = config.encoder_length + config.horizon
        self.positions = nn.Parameter(sinusoids(rows, config.d_model), requires_grad=False)
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)

    def lagged(self) -> Tensor:
        """Factors of lagged values, `[lags * channels, d_model]`, those of short lags first."""
        weight = self.value.weight[:, : self.channels * len(self.order)]
        by_lag = weight.reshape(-1, self.channels, len(self.order)).permute(2, 1, 0)
        order = torch.tensor(self.order, device=weight.device)
        return by_lag.index_select(0, order).flatten(0, 1)

    def placed(self, features: Tensor, first: int) -> Tensor:
        """Tokens `[batch, time, d_model]` that still lack values, from a step of the encoder on."""
        positions = self.positions[first : first + features.shape[1]]
        return self.value(features) + positions  # type: ignore[no-any-return]

    def forward(self, tokens: Tensor) -> Tensor:
        """Finish tokens that lack nothing."""
        return self.dropout(self.norm(tokens))  # type: ignore[no-any-return]


class HuggingFaceTimeSeriesTransformer(Forecaster):
    """Steps of the context to the paths of the steps after them, one after the other."""

    config: HuggingFaceTimeSeriesTransformerConfig

    def __init__(self, config: HuggingFaceTimeSeriesTransformerConfig) -> None:
        super().__init__(config)
        self.stages = config.describe_stages()
        self.scaler = (
            build_window_norm(config.scaling, config.channels, affine=False)
            if config.scaling
            else None
        )
        context, length = config.context, config.encoder_length
        lags = torch.tensor(config.value_lags)
        past = torch.arange(context - length, context)[:, None] - lags
        # What lies in the future is the row after the context.
        future = (torch.arange(context, context + config.horizon)[:, None] - lags).clamp(
            max=context
        )
        self.register_buffer("_past", past.flatten(), persistent=False)
        self.register_buffer("_future", future.flatten(), persistent=False)
        self._past: Tensor
        self._future: Tensor
        self.encoder_embedding = StepEmbedding(config)
        self.encoder_layers = config.build_encoder_layers()
        self.decoder_embedding = StepEmbedding(config)
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
        centre, spread = self._measure(inputs.history)
        history = (inputs.history - centre) / spread
        # Zero stands for what is not known yet.
        known = functional.pad(history, (0, 0, 0, 1))
        scale = torch.cat([torch.log1p(centre.abs()), spread.log()], dim=-1).flatten(1)
        calendars = inputs.history_calendar, inputs.future_calendar
        past, future = (
            self._features(known, places, scale, calendar)
            for places, calendar in zip((self._past, self._future), calendars, strict=True)
        )
        embed = self.encoder_embedding
        tokens = embed(embed.placed(past, 0))
        layers = encode(self.encoder_layers, tokens, explain=explain)
        seen = {f"encoder.{i}.self": layer.evidence for i, layer in enumerate(layers)}
        paths, decoded = self._decode(future, layers[-1].output, explain=explain)
        if self.draw is not None:
            paths = ascending(paths)
        # All steps of a path, and of a rank among the paths, are together.
        said = paths.transpose(1, 2).flatten(1, 2) * spread + centre
        return Explained.of(said, seen | decoded)

    def _measure(self, history: Tensor) -> InstanceStatistics:
        """Centre and spread of the encoder's steps."""
        recent = history[:, -self.config.encoder_length :]
        if self.scaler is None:
            # As many zeros and ones, without the arithmetic of shapes.
            nothing = 0 * recent[:, :1]
            return InstanceStatistics(nothing, nothing + 1)
        return cast("InstanceStatistics", self.scaler(recent)[1])

    def _features(
        self, known: Tensor, places: Tensor, scale: Tensor, calendar: Tensor | None
    ) -> Tensor:
        """What tokens are made of, `[batch, time, features]`.

        Args:
            known: `[batch, context + 1, channels]`, scaled.
            places: `[time * lags]`, where their lagged values are.
            scale: `[batch, 2 * channels]`, what tells of centre and spread.
            calendar: `[batch, at least time, features]`, of which the last ones are theirs.
        """
        count, channels = len(self.config.value_lags), self.config.channels
        time = len(places) // count
        lagged = known.index_select(1, places).reshape(-1, time, count, channels)
        parts = [lagged.transpose(2, 3).flatten(2), repeated(scale, time).transpose(1, 2)]
        if self.config.calendar is not None and calendar is not None:
            parts.append(calendar[:, -time:])
        return torch.cat(parts, dim=-1)

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
                said = torch.cat(found, dim=-1) @ read
            else:
                said = nothing
            tokens = embed(known[:, step : step + 1] + said)
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
        """What the paths have at a step, `[batch, paths, channels]`, scaled."""
        if self.draw is None:
            # Of both distributions the mean.
            place = PARAMETERS[self.config.step_distribution].index("loc")
            return self.heads[place](tokens)  # type: ignore[no-any-return]
        heads = [cast("nn.Linear", head) for head in self.heads]
        weight = torch.stack([head.weight for head in heads], dim=1).flatten(0, 1)
        bias = torch.stack([head.bias for head in heads], dim=1).flatten()
        # One product for all of them.
        said = functional.linear(tokens, weight, bias)
        said = said.reshape(-1, tokens.shape[1], self.config.channels, len(heads))
        parameters = HEADS[self.config.step_distribution].constrain(said)
        return self.draw(parameters, step)  # type: ignore[no-any-return]
