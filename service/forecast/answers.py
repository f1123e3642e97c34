"""Types of answers, for the OpenAPI document only: no request creates them.

Answers are written as plain JSON (`encode`, `backtest`, `attention`); tests check real answers
against these types.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from foretell.bundle.attention import Form
from foretell.service.forecast.requests import ForecastRequest, SeriesType
from foretell.service.validation import Digest, optional

Status = Literal["completed", "partial", "error"]
AxisName = Literal["channel", "head", "query", "key", "kept"]


class Error(BaseModel):
    """An error, and its place in the request."""

    code: str = Field(description="The HTTP status, as text.", examples=["422"])
    message: str = Field(examples=["expected a finite number, got NaN"])
    param: str | None = Field(default=None, examples=["inputs[3].series[17]"])
    type: str = Field(examples=["invalid_input"])


class ErrorResponse(BaseModel):
    """The body of every error."""

    error: Error


class PatchLabel(BaseModel):
    """Labels of the first and the last step of a patch."""

    start: int | str
    end: int | str


class Attention(BaseModel):
    """The attention of one stage.

    A stage of the form `none` only has a name, a kind and a form. Labels of steps are timestamps if
    the input has them, otherwise numbers, with 0 for the first forecast step. Labels of channels
    are names; labels of landmarks and clusters are numbers. Padding is null.
    """

    name: str
    kind: str = Field(description="The mechanism, for the reader.", examples=["softmax"])
    form: Form = Field(
        description="Form of the map: `dense`, all weights; `circulant`, all weights, "
        "and the lags they come from; `sparse`, weights of some keys of each query; `none`, no map."
    )
    shape: list[int] | None = None
    axes: list[AxisName] | None = optional("Axes of `weights`.")
    weights: list[Any] | None = optional("Nested lists of that shape.")
    keys: list[Any] | None = optional(
        "Sparse maps: the key of each weight, from 0, or -1 for none; in the shape of `weights`."
    )
    channels: list[str] | None = optional("Labels along the channel axis.")
    heads: list[int] | None = optional("Labels along the head axis.")
    query: list[int | str | PatchLabel | None] | None = optional("Labels along the query axis.")
    key: list[int | str | PatchLabel | None] | None = optional("Labels of all keys, in order.")
    lags: list[int] | None = optional("Circulant maps: chosen lags, in positions of the axes.")
    lag_durations: list[str | None] | None = optional(
        "The lags as ISO 8601 durations; null without such a duration, as for business days."
    )
    lag_weights: list[float] | None = None
    correlation: list[float] | None = optional("Mean correlation by lag.")


class Correction(BaseModel):
    """The correction of the quantiles."""

    method: Literal["history", "ledger"]
    origins: int = Field(
        description="Forecasts of the history that were compared with it, or of the ledger that "
        "were compared with what came true."
    )
    of: Literal["series", "model", "bundle"] | None = optional(
        "Of `ledger`: whose errors; a series with few forecasts has its model's."
    )


class Importance(BaseModel):
    """How far the forecast moves with a channel or a covariate replaced.

    It measures what this forecast uses, not what causes what.
    """

    name: str
    kind: Literal["channel", "past", "future", "static"]
    change: float | list[float | None] | None = Field(
        description="Mean absolute change over the horizon, of each forecast channel, in its unit; "
        "null for a static number without a known training mean."
    )
    relative: float | list[float | None] | None = Field(
        description="`change` in standard deviations of the training rows; null if unknown."
    )


class ScenarioForecast(BaseModel):
    """The forecast of one scenario; fields as those of a forecast."""

    name: str
    mean_forecast: list[float] | list[list[float]]
    difference: list[float] | list[list[float]] = Field(
        description="`mean_forecast` less that of the first scenario."
    )
    quantiles: dict[str, list[float] | list[list[float]]] | None = optional("By level.")
    filled: dict[str, int] | None = optional("Number of filled missing values.")
    masked: dict[str, int] | None = optional("Number of masked missing values.")
    ill_conditioned: bool | None = optional("Rounding may decide the model's choices.")
    attention: list[Attention] | None = optional("Attention of the first pass.")


class Forecast(BaseModel):
    """The forecast of one input."""

    type: SeriesType
    name: str
    mean_forecast: list[float] | list[list[float]]
    frequency: Literal["S", "T", "H", "D", "W", "M", "Q", "Y"]
    frequency_multiple: int | None = optional("Units in a step, if not 1.")
    frequency_alias: str | None = optional("The pandas alias, if the letter alone is ambiguous.")
    start_timestamp: str = Field(description="The first forecast step; empty if unknown.")
    timestamps: list[str] | None = None
    channels: list[str] | None = optional(
        "Columns, if the input named them, or if the model does not forecast all channels that it "
        "reads."
    )
    quantiles: dict[str, list[float] | list[list[float]]] | None = optional(
        "Quantiles by level, such as `0.9`; each in the shape of `mean_forecast`."
    )
    calibration: Correction | None = optional(
        "Present if `options.calibration` is `history` or `ledger`."
    )
    rolled_from: int | None = optional(
        "If the horizon is over the model's: the first step, from 0, that was forecast from "
        "forecasts."
    )
    in_ledger: bool | None = optional(
        "Whether it was handed to the server's ledger, if it has one."
    )
    filled: dict[str, int] | None = optional(
        "Number of filled missing values in the model's input, by channel or covariate."
    )
    masked: dict[str, int] | None = optional(
        "If `options.missing` is `mask`: number of masked missing values in the model's "
        "input, by channel."
    )
    ill_conditioned: bool | None = optional(
        "Rounding may decide the model's choices for this history, such as its lags in a "
        "constant or exactly periodic series, or small movements are scaled up so much that "
        "rounding shows: another machine may return another forecast."
    )
    attention: list[Attention] | None = optional(
        "Attention of the first pass; with scenarios, it is in each of them."
    )
    scenarios: list[ScenarioForecast] | None = optional(
        "The scenarios of the input, in order; the other fields are those of the first."
    )
    importance: list[Importance] | None = optional("Present if `options.importance` is true.")


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
    content: list[Forecast] = Field(description="One forecast; empty if there is an error.")


class Warned(BaseModel):
    """A note on an answer that may differ from the intention."""

    type: Literal[
        "ignored_field",
        "outside_training_range",
        "forecast_outside_training_range",
        "rolled",
        "filled",
        "masked",
        "origins_left_out",
        "actual_covariates",
        "window_mean",
    ]
    message: str
    param: str | None = Field(description="The place in the request, as in errors.")


class _Response(BaseModel):
    """Fields of all answers; one output for each input, in order."""

    id: str
    created_at: int = Field(description="Seconds since 1970.")
    status: Status
    error: Error | None
    model: str
    model_version: str
    model_digest: Digest
    outputs: list[Any]
    warnings: list[Warned] | None = optional("Present if there are warnings.")
    metadata: dict[str, Any] | None = None


class ForecastResponse(_Response):
    """Forecasts, one output for each input, in order."""

    outputs: list[ForecastOutput]


class Errors(BaseModel):
    """Mean errors in the input's units; null if all actual values are missing."""

    mse: float | None
    mae: float | None


class Baseline(Errors):
    """Mean errors of a forecast without a model, from the same origins."""

    relative_mae: float | None = Field(
        description="The model's mean absolute error divided by the baseline's; null if that is 0."
    )


class SeasonalBaseline(Baseline):
    """Mean errors of repeating the last season."""

    season: int = Field(description="Steps in a season.")


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

    level: float = Field(description="Intended share of values inside.")
    coverage: float | None = Field(description="Observed share of values inside.")
    width: float | None = Field(description="Mean width, in the input's units.")
    steps: StepIntervals


class ChannelResult(Errors):
    """Errors of the forecasts of a channel."""

    name: str
    steps: StepErrors
    last_value: Baseline = Field(description="Repeating the last value.")
    seasonal_naive: SeasonalBaseline | None = Field(
        description="Repeating the last season, if the context holds one."
    )
    below: dict[str, float | None] | None = optional(
        "Share of values at or below each quantile, by level."
    )
    intervals: list[IntervalResult] | None = optional(
        "One for each pair of quantiles such as 0.1 and 0.9."
    )


class Backtest(BaseModel):
    """Errors of the forecasts of a history."""

    name: str
    horizon: int
    stride: int
    origins: int = Field(description="Number of forecasts that were compared with actual values.")
    first_origin: int | str = Field(
        description="The first row of the first forecast: its time, or without timestamps its "
        "number, counted from 0."
    )
    last_origin: int | str = Field(description="The first row of the last forecast.")
    calibration: Correction | None = optional(
        "Present if `options.calibration` is `history`: number of forecasts with quantiles, the "
        "latest ones with enough forecasts before them."
    )
    channels: list[ChannelResult]


class BacktestOutput(_Output):
    """The outcome of one input."""

    type: Literal["time_series_backtest"]
    content: list[Backtest] = Field(description="One backtest; empty if there is an error.")


class BacktestResponse(_Response):
    """Backtests, one output for each input, in order."""

    outputs: list[BacktestOutput]


class ModelExample(BaseModel):
    """A real window of a model's data, and the values that followed."""

    model: str = Field(description="`name@version`.")
    request: ForecastRequest = Field(description="Body of a POST to `/forecast`.")
    actual: list[list[float]] = Field(
        description="`[step][target]`: actual values over the model's horizon."
    )
    channels: list[str] = Field(description="Channels of the history.")
    targets: list[str] = Field(description="Channels that are forecast.")
