"""What answers hold, for the OpenAPI document alone: no request makes any of this.

Answers are written as plain JSON (`encode`, `backtest`, `attention`); tests check real ones against
these types.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from foretell.bundle.attention import Form
from foretell.service.forecast.requests import ForecastRequest, SeriesType
from foretell.service.validation import optional

Status = Literal["completed", "partial", "error"]
AxisName = Literal["channel", "head", "query", "key", "kept"]


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
    axes: list[AxisName] | None = optional("Axes of `weights`.")
    weights: list[Any] | None = optional("Nested lists of that shape.")
    keys: list[Any] | None = optional(
        "Sparse maps: which key each weight is of, from 0; -1 is none. In the shape of `weights`."
    )
    channels: list[str] | None = optional("Along the channel axis.")
    heads: list[int] | None = optional("Along the head axis.")
    query: list[int | str | PatchLabel | None] | None = optional("Along the query axis.")
    key: list[int | str | PatchLabel | None] | None = optional("Of every key, in order.")
    lags: list[int] | None = optional("Circulant maps: chosen lags, in positions of the axes.")
    lag_durations: list[str | None] | None = optional(
        "The lags as ISO 8601 durations; null for business days, which have none."
    )
    lag_weights: list[float] | None = None
    correlation: list[float] | None = optional("Mean correlation by lag.")


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
    frequency_multiple: int | None = optional("Units a step, where not 1.")
    frequency_alias: str | None = optional(
        "The pandas alias, where the letter alone does not say it."
    )
    start_timestamp: str = Field(description="The first forecast step; empty if unknown.")
    timestamps: list[str] | None = None
    channels: list[str] | None = optional(
        "Columns, if the input named them, or if the model does not forecast all channels that it "
        "reads."
    )
    quantiles: dict[str, list[float] | list[list[float]]] | None = optional(
        "By level, such as `0.9`; each in the shape of `mean_forecast`."
    )
    calibration: Correction | None = optional("Where `options.calibration` was `history`.")
    rolled_from: int | None = optional(
        "Where the horizon is over the model's: the first step, from 0, that was forecast from "
        "forecasts."
    )
    filled: dict[str, int] | None = optional(
        "How many missing values were filled in what the model read, by channel."
    )
    masked: dict[str, int] | None = optional(
        "Where `options.missing` was `mask`: how many missing values were left out of what the "
        "model read, by channel."
    )
    ill_conditioned: bool | None = optional(
        "Rounding may decide what the model chooses for this history, such as the lags that count "
        "(in a constant or exactly periodic one, say), or what little moves is made so large that "
        "rounding shows: another machine may forecast otherwise."
    )
    attention: list[Attention] | None = optional("Of the first pass, where there are several.")


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
    warnings: list[Warned] | None = optional("Where there are any.")
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
    below: dict[str, float | None] | None = optional(
        "By quantile: the share of values that were at most as large."
    )
    intervals: list[IntervalResult] | None = optional(
        "One for each pair of quantiles such as 0.1 and 0.9."
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
    calibration: Correction | None = optional(
        "Where `options.calibration` was `history`: how many forecasts, the latest of those that "
        "have enough before them, have their quantiles looked at."
    )
    channels: list[ChannelResult]


class BacktestOutput(_Output):
    """The outcome of one input."""

    type: Literal["time_series_backtest"]
    content: list[Backtest] = Field(description="One; none if there is an error.")


class BacktestResponse(_Response):
    """What was found, one output an input, in order."""

    outputs: list[BacktestOutput]


class ModelExample(BaseModel):
    """A real window of the data that a model was tested on, and what followed."""

    model: str = Field(description="`name@version`.")
    request: ForecastRequest = Field(description="What to POST to `/forecast`.")
    actual: list[list[float]] = Field(
        description="`[step][target]`: what followed, as far as the model's horizon."
    )
    channels: list[str] = Field(description="Those of the history.")
    targets: list[str] = Field(description="Those of them that are forecast.")
