"""Shared parts of Hugging Face's models whose tokens are values at lags.

A token is a step: values at lags before it, static covariates, the level and the scale of the
window, features of the calendar, and future covariates.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, ValidationInfo, field_validator, model_validator
from torch import Tensor, nn
from typing_extensions import override

from foretell.bundle.attention import Axis
from foretell.bundle.covariates import Covariate, features_of
from foretell.models.attending import AttendingConfig
from foretell.models.attention.mechanism import Site
from foretell.models.config import calendar_of
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Inputs
from foretell.models.layers.dropout import Dropout
from foretell.models.layers.embedding import sinusoids
from foretell.models.layers.repetition import repeated
from foretell.models.layers.scales import InstanceStatistics, without_gaps
from foretell.models.layers.window_norms import OBSERVED_NORMS
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency


class LaggedConfig(AttendingConfig):
    """Configuration of such a model, with an encoder and a decoder.

    `context` has the encoder's steps and, before them, as many steps as the largest lag.
    """

    reads_covariates: ClassVar[bool] = True
    takes_decoder: ClassVar[bool] = False
    # Whether the decoder gets tokens a few at a time.
    by_step: ClassVar[bool] = False
    value_lags: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(1, 2, 3, 4, 5, 6, 7),
        min_length=1,
        description="Lags, in steps, of the values in a token.",
    )
    scaling: Literal["mean", "magnitude"] | None = Field(
        default="magnitude",
        description="Scale of the encoder's steps, which tokens contain: mean and standard "
        "deviation, or the mean magnitude.",
    )
    decoder_layers: int = Field(default=1, ge=1, description="Decoder layers.")
    decoder_heads: int | None = Field(
        default=None, ge=1, description="Attention heads of the decoder; heads if not given."
    )
    decoder_d_ff: int | None = Field(
        default=None,
        ge=1,
        description="Width of the decoder's feed-forward layers; d_ff if not given.",
    )
    embeddings: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        default=None,
        description="Features of each static category; half as many as it has categories, at most "
        "50, if not given.",
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
            raise ValueError(f"{max(lags)} steps leave none of the context {context}")
        return lags

    @model_validator(mode="after")
    def _check_embeddings(self) -> Self:
        count = len(self.static_categories)
        if self.embeddings is not None and len(self.embeddings) != count:
            raise ValueError(f"embeddings: expected {count} numbers, got {len(self.embeddings)}")
        return self

    @property
    def static_categories(self) -> tuple[Covariate, ...]:
        """Static covariates that are categories."""
        static = self.covariates.static if self.covariates else ()
        return tuple(each for each in static if each.type == "category")

    @property
    def embedding_widths(self) -> tuple[int, ...]:
        """Features of each static category."""
        counts = (len(each.categories) for each in self.static_categories)
        return self.embeddings or tuple(min(50, (count + 1) // 2) for count in counts)

    @property
    def encoder_length(self) -> int:
        """Steps of the encoder, the last ones of the context."""
        return self.context - max(self.value_lags)

    @property
    def features(self) -> int:
        """Number of features that a token is made from."""
        found = self.channels * (len(self.value_lags) + 2) + sum(self.embedding_widths)
        found += self.calendar_features
        if self.covariates is not None:
            found += features_of(self.covariates.future)
            found += len(self.covariates.static) - len(self.static_categories)
        return found

    @classmethod
    @override
    def calendar_for(cls, frequency: Frequency, settings: dict[str, object]) -> Calendar | None:
        return calendar_of(frequency, "scaled")

    @property
    @override
    def observed_steps(self) -> int | None:
        if self.window_norm is not None:
            return None
        return self.context if self.scaling is None else self.encoder_length

    @property
    @abstractmethod
    def decoder_axis(self) -> Axis:
        """Axis of the decoder's steps."""

    @override
    def sites(self) -> dict[str, tuple[int, Site]]:
        """Places in the encoder, then in the decoder; all attend between steps."""
        history = Axis(length=self.encoder_length, start=-self.encoder_length)
        own = Site(self.d_model, self.heads, history, history, dropout=self.dropout)
        found = {f"encoder.{i}.self": (i, own) for i in range(self.encoder_layers)}
        decoder = self.decoder_axis
        each = own._replace(
            heads=self.decoder_heads or self.heads,
            query=decoder,
            chained=False,
            cached=self.by_step,
        )
        for i in range(self.decoder_layers):
            layer = self.encoder_layers + i
            found[f"decoder.{i}.self"] = layer, each._replace(key=decoder)
            found[f"decoder.{i}.cross"] = layer, each
        return found


def _embedding(category: Covariate, width: int) -> nn.Embedding:
    """An untrained embedding, which is zero for categories that training rows lack."""
    known = len(category.categories)
    return nn.Embedding(known + category.other, width, known if category.other else None)


class StepEmbedding(nn.Module):
    """Maps the features of steps to `d_model` features.

    Args:
        config: Configuration of the model.
    """

    def __init__(self, config: LaggedConfig) -> None:
        super().__init__()
        self.value = nn.Linear(config.features, config.d_model)
        rows = config.encoder_length + config.horizon
        self.positions = nn.Parameter(sinusoids(rows, config.d_model), requires_grad=False)
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)

    def placed(self, features: Tensor, first: int) -> Tensor:
        """Tokens `[batch, time, d_model]` from a step of the encoder on, before later values."""
        positions = self.positions[first : first + features.shape[1]]
        return self.value(features) + positions  # type: ignore[no-any-return]

    def forward(self, tokens: Tensor) -> Tensor:
        """Finish tokens that have all their values."""
        return self.dropout(self.norm(tokens))  # type: ignore[no-any-return]


class LaggedForecaster(Forecaster):
    """Makes the tokens of such a model.

    Args:
        config: Configuration of the model.
    """

    config: LaggedConfig

    def __init__(self, config: LaggedConfig) -> None:
        super().__init__(config)
        self.stages = config.describe_stages()
        self.scaler = (
            OBSERVED_NORMS[config.scaling](config.channels, False) if config.scaling else None
        )
        context, length = config.context, config.encoder_length
        past = torch.arange(context - length, context)[:, None] - torch.tensor(config.value_lags)
        self._past = nn.Buffer(past.flatten(), persistent=False)
        self.encoder_embedding = StepEmbedding(config)
        self.static_embeddings = nn.ModuleList(
            _embedding(each, width)
            for each, width in zip(config.static_categories, config.embedding_widths, strict=True)
        )

    def _scaled(self, history: Tensor) -> tuple[Tensor, InstanceStatistics]:
        """The history, zeros for missing values, by centre and spread of the encoder's steps."""
        known = without_gaps(history)
        if self.scaler is None:
            first = known[:, :1]
            return known, InstanceStatistics(torch.zeros_like(first), torch.ones_like(first))
        statistics = self.scaler.statistics(history[:, -self.config.encoder_length :])
        return self.scaler.normalise(known, statistics), statistics

    def _lagged(self, known: Tensor, places: Tensor) -> Tensor:
        """Lagged values of steps, `[batch, time, channels * lags]`, channel by channel."""
        count, channels = len(self.config.value_lags), self.config.channels
        lagged = known.index_select(1, places).reshape(-1, len(places) // count, count, channels)
        return lagged.transpose(2, 3).flatten(2)

    def _shared(self, inputs: Inputs, statistics: InstanceStatistics) -> Tensor:
        """Features that all tokens of a window share: static covariates, level and scale."""
        centre, spread = statistics
        of_window = torch.cat([torch.log1p(centre.abs()), spread.log()], dim=-1).flatten(1)
        codes, encoder = inputs.static_covariates, self.covariate_encoder
        if codes is None or encoder is None:
            return of_window
        embeddings, categories, numbers = iter(self.static_embeddings), [], []
        scaled = encoder.static.scaled(codes)
        for place, each in enumerate(encoder.static.covariates):
            if each.type == "category":
                categories.append(next(embeddings)(codes[:, place].long()))
            else:
                numbers.append(scaled[:, place : place + 1])
        return torch.cat([*categories, *numbers, of_window], dim=1)

    def _joined(self, lagged: Tensor, shared: Tensor, calendar: Tensor | None) -> Tensor:
        """Features of tokens, `[batch, time, features]`."""
        time = lagged.shape[1]
        parts = [lagged, repeated(shared, time).transpose(1, 2)]
        if calendar is not None:
            parts.append(calendar[:, -time:])
        return torch.cat(parts, dim=-1)
