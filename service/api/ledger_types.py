"""The wire types of the ledger's routes."""

from __future__ import annotations

from datetime import date
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from foretell.service.ledger.scores import By
from foretell.service.validation import Storable

MOST_ROWS, MOST_FORECASTS = 10_000, 1000


class WindowQuery(BaseModel):
    """Parameters of the URL that choose windows."""

    model_config = ConfigDict(extra="forbid")

    since: date | None = Field(None, description="The first day of the actual values, in UTC.")
    until: date | None = Field(None, description="The last one.")
    namespace: Storable | None = Field(
        None, description="A namespace of keys, for admin keys; all of them if absent."
    )
    frequency: Storable | None = Field(
        None, description="A frequency of series, such as `h` or `15min`; all if absent."
    )


class ForecastQuery(WindowQuery):
    """Parameters of the URL that choose forecasts."""

    version: Storable | None = Field(None, description="A version; all if absent.")
    calibration: Storable | None = Field(
        None, description="Forecasts with this `options.calibration`; all if absent."
    )
    channel: Storable | None = Field(None, description="A forecast channel; all if absent.")


class AccuracyQuery(ForecastQuery):
    """Parameters of the URL of scores."""

    series: Storable | None = Field(None, description="The name of a series; all if absent.")
    by: By = Field("total", description="The groups of the rows.")
    limit: int = Field(
        1000,
        ge=1,
        le=MOST_ROWS,
        description="Most rows; of more series, those with the largest `mase` are answered, and of "
        "more days the newest.",
    )


class TrajectoryQuery(ForecastQuery):
    """Parameters of the URL of stored forecasts."""

    series: Storable = Field(description="The name of a series.")
    limit: int = Field(24, ge=1, le=MOST_FORECASTS, description="Most forecasts, the latest ones.")
    overlapping: bool = Field(
        True,
        description="Whether the times of a version's forecasts may overlap; otherwise the latest "
        "ones that do not.",
    )


class SeriesQuery(BaseModel):
    """Parameters of the URL that choose a series."""

    model_config = ConfigDict(extra="forbid")

    name: Storable = Field(description="The name of a series.")
    namespace: Storable | None = Field(
        None, description="A namespace of keys, for admin keys; that of the key if absent."
    )


class QuantileScore(BaseModel):
    """How good the quantiles of a level were."""

    pinball: float | None = Field(description="Mean pinball loss.")
    count: int


class IntervalScore(BaseModel):
    """How good the intervals of a level were."""

    coverage: float | None = Field(description="Share of the actual values inside.")
    width: float | None = Field(description="Mean width.")
    count: int


class AccuracyRow(BaseModel):
    """Scores of forecasts of a version, of the `step`, `channel`, `series` or `day` asked for."""

    version: str
    step: int | None = Field(None, description="Steps ahead, from 1.")
    channel: str | None = None
    series: str | None = None
    namespace: str | None = Field(None, description="The namespace of the `series`.")
    frequency: str | None = Field(None, description="The frequency of the `series`.")
    day: date | None = Field(None, description="The day of the actual values, in UTC.")
    count: int = Field(description="Forecast values whose actual value is known.")
    mae: float | None
    rmse: float | None
    bias: float | None = Field(description="Mean of forecast less actual value.")
    naive_mae: float | None = Field(description="MAE of repeating the last season.")
    mase: float | None = Field(description="MAE over that of repeating the last season.")
    quantiles: dict[str, QuantileScore] = Field(description="By level.")
    intervals: dict[str, IntervalScore] = Field(description="By level, such as `0.8`.")


class Accuracy(BaseModel):
    """Scores of a model's forecasts, from the ledger."""

    model: str
    by: By
    rows: list[AccuracyRow]
    left_out: int = Field(description="Rows over the limit.")


class Trajectory(BaseModel):
    """A stored forecast of a series."""

    id: str = Field(description="Its id in the answer of `POST /forecast`.")
    version: str
    calibration: str
    origin: str = Field(description="Time of the last row of its history.")
    timestamps: list[str]
    channels: list[str]
    mean: list[list[float]] = Field(description="`[step][channel]`.")
    naive: list[list[float | None]] = Field(description="The last season, repeated.")
    quantiles: dict[str, list[list[float]]] = Field(description="By level.")


class ActualValues(BaseModel):
    """Actual values of a series."""

    timestamps: list[str]
    values: dict[str, list[float | None]] = Field(description="By channel; null where unknown.")


class Trajectories(BaseModel):
    """Stored forecasts of a series, the oldest first, and its actual values."""

    model: str
    series: str
    namespace: str | None = Field(description="The series' namespace; null without forecasts.")
    frequency: str | None = Field(description="The series' frequency; null without forecasts.")
    forecasts: list[Trajectory]
    actuals: ActualValues


class CompareQuery(WindowQuery):
    """Parameters of the URL of a comparison."""

    a: Storable = Field(description="A version, such as the one that serves.")
    b: Storable = Field(description="Another version of the model.")
    series: Storable | None = Field(None, description="The name of a series; all if absent.")


class Compared(BaseModel):
    """The forecasts of two versions on the same windows, next to each other."""

    model: str
    a: str
    b: str
    windows: int = Field(description="Windows that both forecast, whose values are known by now.")
    origins: int = Field(description="Different origins of these windows.")
    series: int = Field(description="Different series of these windows.")
    loss_a: float | None = Field(
        description="Mean absolute error, in units of the naive forecast's."
    )
    loss_b: float | None
    relative: float | None = Field(description="`loss_b` less `loss_a`, over `loss_a`.")
    p_value: float | None = Field(
        description="Probability of so large a difference in favour of `b` if both were equal."
    )
    wait: int = Field(description="Origins to wait for, where there are too few.")
    verdict: Literal["better", "worse", "no difference", "too few"] = Field(
        description="The quality of `b` next to `a`, at 2.5% for each side."
    )
    sentence: str = Field(description="The verdict in words.")


class Deleted(BaseModel):
    """The number of deleted series."""

    series: int = Field(description="Series of that name: one for each frequency.")
