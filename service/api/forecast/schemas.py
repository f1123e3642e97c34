"""The wire types of the time-series door: KServe's, plus what foretell adds."""

from __future__ import annotations

from typing import Annotated, Any, Literal, final

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StrictInt,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticKnownError

from foretell.bundle.attention import Form
from foretell.bundle.bounds import Bounds
from foretell.bundle.gaps import Missing
from foretell.bundle.manifest import CalibrationReport, TestResult, Verification
from foretell.service.validation import QUERY, Names

SeriesType = Literal["univariate_time_series", "multivariate_time_series"]
Status = Literal["completed", "partial", "error"]
Calibrated = Literal["stored", "history"]

# What every reader of JSON keeps as it is.
MOST_INTEGER = 2**53

_Number = {"type": ["number", "null"]}


def _check_rows(value: object) -> object:
    if not isinstance(value, list | np.ndarray):
        raise PydanticKnownError("list_type")
    return value


# Numbers are checked in bulk by `foretell.service.api.forecast.series`, not one by one here.
Rows = Annotated[
    list[Any] | NDArray[np.float64],
    PlainValidator(_check_rows),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": _Number},
                {"type": "array", "items": {"type": "array", "items": _Number}},
            ]
        }
    ),
]
Reference = Annotated[
    str | None,
    Field(description="`name` or `name@version`; may be absent when one model is served."),
]
Strings = Annotated[list[str], Field(fail_fast=True)]
Level = Annotated[float, Field(strict=True, gt=0, lt=1)]
Levels = Annotated[list[Level], Field(fail_fast=True, max_length=99)]
# Checked by `foretell.service.api.forecast.attention`: pydantic would name each branch in
# the place.
Heads = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["all", "mean"]},
                {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
            ]
        }
    ),
]


class SeriesInput(BaseModel):
    """One history to forecast."""

    name: str | None = Field(
        default=None, description="Unique in the request; `series-<index>` if absent."
    )
    type: SeriesType | None = Field(
        default=None, description="Given by the shape of `series` if absent."
    )
    series: Rows = Field(
        description="`[time]` for a model of one channel, `[time][channel]` otherwise, oldest "
        "first; of a longer history than the model reads, the latest part is used."
    )
    channels: Strings | None = Field(
        default=None, description="Names of the columns of `series`, if not in the model's order."
    )
    frequency: str | None = Field(
        default=None,
        description="S T H D W M Q Y or second … year, which name the unit, or a pandas alias; the "
        "model's if absent.",
    )
    frequency_multiple: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        default=None, description="Units a step, as in answers; the model's if absent."
    )
    start_timestamp: str | None = Field(
        default=None,
        description="ISO 8601 time of the first row; models with calendar features need it.",
    )
    timestamps: Strings | None = Field(
        default=None, description="ISO 8601 time of every row, instead of `start_timestamp`."
    )
    time_zone: str | None = Field(
        default=None,
        description="IANA name, such as `Europe/Berlin`: whose clock times without a UTC offset "
        "are about, and calendar features and answered times follow, over clock changes too.",
    )


class AttentionOptions(BaseModel):
    """Which attention to return."""

    layers: Annotated[list[StrictInt], Field(fail_fast=True)] | None = Field(
        default=None, description="Layer numbers, from 0; all if absent."
    )
    heads: Heads = Field(
        default="all", description="Every head's weights, their mean, or some heads by number."
    )
    stages: Strings | None = Field(
        default=None,
        description="Names as in `GET /models`, such as `encoder.0.self`; all if absent.",
    )


class ForecastOptions(BaseModel):
    """How to forecast."""

    # As a default it is then not copied.
    model_config = ConfigDict(frozen=True)

    horizon: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        default=None,
        description="Steps to forecast; the model's horizon if absent. More are forecast in "
        "further passes, each on the forecasts before it, up to `max_horizon` of `GET /models`.",
    )
    quantiles: Levels | None = Field(
        default=None,
        description="Levels of quantiles to answer, in any order; of models that are calibrated.",
    )
    calibration: Calibrated = Field(
        default="stored",
        description="What the quantiles come from: errors of the model's validation, stored with "
        "it, or these corrected by those it makes on the rows of the history before the last ones.",
    )
    missing: Missing = Field(
        default="error",
        description="What becomes of missing values (null): an error; a line from the value before "
        "to the one after, or the nearest at either end; the value before; or `mask`, which leaves "
        "them out, for models that read gaps (`reads_gaps` of `GET /models`).",
    )
    attention: AttentionOptions | None = Field(
        default=None, description="Whether, and which, attention weights are returned."
    )

    @field_validator("attention", mode="before", json_schema_input_type=bool | AttentionOptions)
    @classmethod
    def _all_of_it(cls, value: object) -> object:
        if isinstance(value, bool):
            return AttentionOptions() if value else None
        return value


class TableOptions(BaseModel):
    """How to forecast a table, as parameters of the URL."""

    model: Reference = None
    horizon: int | None = Field(default=None, description="As `options.horizon` of JSON.")
    quantiles: list[float] | None = Field(
        default=None, description="Levels, separated by commas: columns `<channel>_q<level>`."
    )
    calibration: Calibrated = Field(
        default="stored", description="As `options.calibration` of JSON."
    )
    missing: Missing = Field(default="error", description="As `options.missing` of JSON.")

    @field_validator("quantiles", mode="before", json_schema_input_type=str)
    @classmethod
    def _separated(cls, value: object) -> object:
        return value.split(",") if isinstance(value, str) else value


class TableBacktestOptions(TableOptions):
    """How to backtest on a table, as parameters of the URL."""

    stride: int | None = Field(default=None, description="As `options.stride` of JSON.")
    origins: int | None = Field(default=None, description="As `options.origins` of JSON.")


@final
class BacktestOptions(BaseModel):
    """How to backtest."""

    model_config = ConfigDict(frozen=True)

    horizon: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        default=None, description="Steps of each forecast; the model's horizon if absent."
    )
    stride: Annotated[int, Field(strict=True, ge=1, le=MOST_INTEGER)] | None = Field(
        default=None,
        description="Rows from an origin to the next; the horizon if absent, so that every row is "
        "forecast once, and half of it where `calibration` is `history`.",
    )
    origins: Annotated[int, Field(strict=True, ge=1, le=MOST_INTEGER)] | None = Field(
        default=None, description="At most how many, the latest; as many as there are if absent."
    )
    quantiles: Levels | None = Field(
        default=None, description="Levels of quantiles to look at; of models that are calibrated."
    )
    calibration: Calibrated = Field(
        default="stored",
        description="What the quantiles come from, as in forecasts: those of an origin are "
        "corrected by the errors of the origins before it.",
    )
    missing: Missing = Field(
        default="error",
        description="What becomes of missing values (null) in what the model reads, as in "
        "forecasts. No error is counted against one.",
    )


class _Request(BaseModel):
    """What all requests have; their inputs are checked one by one: a bad one sinks no others."""

    model: Reference = None
    inputs: Annotated[list[Any], Field(min_length=1)]
    metadata: dict[str, Any] | None = Field(default=None, description="Echoed in the answer.")

    @field_validator("options", mode="before", check_fields=False)
    @classmethod
    def _defaults(cls, value: object) -> object:
        return cls.model_fields["options"].default if value is None else value


class Envelope(_Request):
    """A request for forecasts whose inputs are not checked yet."""

    options: ForecastOptions = ForecastOptions()


class ForecastRequest(Envelope):
    """A request for forecasts."""

    inputs: Annotated[list[SeriesInput], Field(min_length=1)]


class BacktestEnvelope(_Request):
    """A request to backtest whose inputs are not checked yet."""

    options: BacktestOptions = BacktestOptions()


class BacktestRequest(BacktestEnvelope):
    """A request to backtest."""

    inputs: Annotated[list[SeriesInput], Field(min_length=1)]


NAMES = Names(
    {
        "": Envelope.model_fields,
        "options": ForecastOptions.model_fields,
        "options.attention": AttentionOptions.model_fields,
        "inputs[]": SeriesInput.model_fields,
        QUERY: {},
    }
)
BACKTEST_NAMES = Names(
    {
        "": BacktestEnvelope.model_fields,
        "options": BacktestOptions.model_fields,
        "inputs[]": SeriesInput.model_fields,
        QUERY: {},
    }
)


class Error(BaseModel):
    """What went wrong, and where."""

    code: str = Field(description="The HTTP status, as text.", examples=["422"])
    message: str = Field(examples=["expected a finite number, got NaN"])
    param: str | None = Field(default=None, examples=["inputs[3].series[17]"])
    type: str = Field(examples=["invalid_input"])


class ErrorResponse(BaseModel):
    """The body of every answer that is no success."""

    error: Error


class PatchLabel(BaseModel):
    """The first and the last step of a patch, as in a single step's label."""

    start: int | str
    end: int | str


class Attention(BaseModel):
    """What one attention stage looked at.

    A stage of the form `none` has but a name, a kind and a form. Labels of steps are timestamps if
    the input has them; otherwise numbers, the first forecast step's 0. Channels have their names,
    landmarks and clusters numbers. A position that stands for nothing is null.
    """

    name: str
    kind: str = Field(description="The mechanism, for the reader.", examples=["softmax"])
    form: Form = Field(
        description="How the answer has the map: `dense`, all weights; `circulant`, all weights, "
        "and the lags they come from; `sparse`, weights of some keys of each query; `none`, not."
    )
    shape: list[int] | None = None
    axes: list[Literal["channel", "head", "query", "key", "kept"]] | None = Field(
        default=None, description="Axes of `weights`."
    )
    weights: list[Any] | None = Field(default=None, description="Nested lists of that shape.")
    keys: list[Any] | None = Field(
        default=None,
        description="Sparse maps: which key each weight is of, from 0; -1 is none. In the shape of "
        "`weights`.",
    )
    channels: list[str] | None = Field(default=None, description="Along the channel axis.")
    heads: list[int] | None = Field(default=None, description="Along the head axis.")
    query: list[int | str | PatchLabel | None] | None = Field(
        default=None, description="Along the query axis."
    )
    key: list[int | str | PatchLabel | None] | None = Field(
        default=None, description="Of every key, in order."
    )
    lags: list[int] | None = Field(
        default=None, description="Circulant maps: chosen lags, in positions of the axes."
    )
    lag_durations: list[str | None] | None = Field(
        default=None,
        description="The lags as ISO 8601 durations; null for business days, which have none.",
    )
    lag_weights: list[float] | None = None
    correlation: list[float] | None = Field(default=None, description="Mean correlation by lag.")


class Correction(BaseModel):
    """What the quantiles were corrected by."""

    method: Literal["history"]
    origins: int = Field(description="Forecasts of rows of the history, compared with them.")


class Forecast(BaseModel):
    """The forecast of one input."""

    type: SeriesType
    name: str
    mean_forecast: list[float] | list[list[float]]
    frequency: Literal["S", "T", "H", "D", "W", "M", "Q", "Y"]
    frequency_multiple: int | None = Field(default=None, description="Units a step, where not 1.")
    frequency_alias: str | None = Field(
        default=None, description="The pandas alias, where the letter alone does not say it."
    )
    start_timestamp: str = Field(description="The first forecast step; empty if unknown.")
    timestamps: list[str] | None = None
    channels: list[str] | None = Field(
        default=None,
        description="Columns, if the input named them, or if the model does not forecast all "
        "channels that it reads.",
    )
    quantiles: dict[str, list[float] | list[list[float]]] | None = Field(
        default=None, description="By level, such as `0.9`; each in the shape of `mean_forecast`."
    )
    calibration: Correction | None = Field(
        default=None, description="Where `options.calibration` was `history`."
    )
    rolled_from: int | None = Field(
        default=None,
        description="Where the horizon is over the model's: the first step, from 0, that was "
        "forecast from forecasts.",
    )
    filled: dict[str, int] | None = Field(
        default=None,
        description="How many missing values were filled in what the model read, by channel.",
    )
    masked: dict[str, int] | None = Field(
        default=None,
        description="Where `options.missing` was `mask`: how many missing values were left out of "
        "what the model read, by channel.",
    )
    ill_conditioned: bool | None = Field(
        default=None,
        description="Rounding may decide what the model chooses for this history, such as the lags "
        "that count (in a constant or exactly periodic one, say): another machine may forecast "
        "otherwise.",
    )
    attention: list[Attention] | None = Field(
        default=None, description="Of the first pass, where there are several."
    )


class _Output(BaseModel):
    """The outcome of one input."""

    type: str
    id: str
    status: Status
    content: list[Any]
    error: Error | None


class ForecastOutput(_Output):
    """The outcome of one input."""

    type: Literal["time_series_forecast"]
    content: list[Forecast] = Field(description="One forecast; none if there is an error.")


class Warned(BaseModel):
    """What may not be as it was meant, although there is an answer."""

    type: Literal[
        "ignored_field",
        "outside_training_range",
        "forecast_outside_training_range",
        "rolled",
        "filled",
        "masked",
        "origins_left_out",
    ]
    message: str
    param: str | None = Field(description="The place in the request, as in errors.")


class _Response(BaseModel):
    """What all answers have, one output an input, in order."""

    id: str
    created_at: int = Field(description="Seconds since 1970.")
    status: Status
    error: Error | None
    model: str
    model_version: str
    outputs: list[Any]
    warnings: list[Warned] | None = Field(default=None, description="Where there are any.")
    metadata: dict[str, Any] | None = None


class ForecastResponse(_Response):
    """Forecasts, one output an input, in order."""

    outputs: list[ForecastOutput]


class Errors(BaseModel):
    """Mean errors in the input's units; null where every value that followed is missing."""

    mse: float | None
    mae: float | None


class Baseline(Errors):
    """Mean errors of a forecast that needs no model, from the same origins."""

    relative_mae: float | None = Field(
        description="The model's mean absolute error as a share of this one's; null where this one "
        "makes none."
    )


class SeasonalBaseline(Baseline):
    """Those of repeating the last season."""

    season: int = Field(description="Steps in it.")


class StepErrors(BaseModel):
    """Mean errors by step ahead."""

    mse: list[float | None]
    mae: list[float | None]


class StepIntervals(BaseModel):
    """An interval by step ahead."""

    coverage: list[float | None]
    width: list[float | None]


class IntervalResult(BaseModel):
    """An interval between two of the quantiles."""

    level: float = Field(description="The share it was to hold.")
    coverage: float | None = Field(description="The share it held.")
    width: float | None = Field(description="Its mean width, in the input's units.")
    steps: StepIntervals


class ChannelResult(Errors):
    """How well a channel was forecast."""

    name: str
    steps: StepErrors
    last_value: Baseline = Field(description="Repeating the last value.")
    seasonal_naive: SeasonalBaseline | None = Field(
        description="Repeating the last season, if the context holds one."
    )
    below: dict[str, float | None] | None = Field(
        default=None, description="By quantile: the share of values that were at most as large."
    )
    intervals: list[IntervalResult] | None = Field(
        default=None, description="One for each pair of quantiles such as 0.1 and 0.9."
    )


class Backtest(BaseModel):
    """How well a history was forecast."""

    name: str
    horizon: int
    stride: int
    origins: int = Field(description="Forecasts that were compared with what followed.")
    first_origin: int | str = Field(
        description="The first row of the first forecast: its time, or without timestamps its "
        "number, counted from 0."
    )
    last_origin: int | str = Field(description="Likewise of the last one.")
    calibration: Correction | None = Field(
        default=None,
        description="Where `options.calibration` was `history`: how many forecasts, the latest of "
        "those that have enough before them, have their quantiles looked at.",
    )
    channels: list[ChannelResult]


class BacktestOutput(_Output):
    """The outcome of one input."""

    type: Literal["time_series_backtest"]
    content: list[Backtest] = Field(description="One; none if there is an error.")


class BacktestResponse(_Response):
    """What was found, one output an input, in order."""

    outputs: list[BacktestOutput]


class ModelCard(BaseModel):
    """What a client needs to know to build a request."""

    name: str
    version: str
    versions: list[str]
    architecture: str
    channels: tuple[str, ...]
    targets: tuple[str, ...] = Field(description="The channels it forecasts, of those it reads.")
    bounds: Bounds = Field(description="Limits of channels that no forecast goes beyond.")
    context: int
    horizon: int
    max_horizon: int
    frequency: str
    needs_timestamps: bool
    reads_gaps: bool = Field(
        description="Whether it reads which values are missing: `options.missing` may be `mask`."
    )
    quantiles: bool
    quantile_levels: tuple[float, float] | None = Field(
        description="The lowest and the highest level that a quantile within `horizon` can have; "
        "null without quantiles."
    )
    verdict: str | None = Field(
        description="How it does against repeating the last value and the last season, in the "
        "test split, in both errors; null where that was not measured."
    )
    attention: list[str]
    example: bool = Field(description="Whether `GET /models/{model}/example` has one.")
    provider: str


class ModelReport(ModelCard):
    """All that is said of a model."""

    parameters: int
    test: TestResult | None
    calibration: CalibrationReport | None
    calibration_missing: str | None = Field(
        description="Why it has no quantiles, where it has none and its bundle says why."
    )
    verification: Verification


class ModelExample(BaseModel):
    """A real window of the data that a model was tested on, and what followed."""

    model: str = Field(description="`name@version`.")
    request: ForecastRequest = Field(description="What to POST to `/forecast`.")
    actual: list[list[float]] = Field(
        description="`[step][target]`: what followed, as far as the model's horizon."
    )
    channels: list[str] = Field(description="Those of the history.")
    targets: list[str] = Field(description="Those of them that are forecast.")
