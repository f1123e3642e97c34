"""Backtests: errors of a model on the rows of a frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar, Unpack

import httpx
import numpy as np
import pyarrow as pa
from pydantic import Field, TypeAdapter

from foretell.client.answers import Floats, JsonAnswer, Notes, Part, by_name, together
from foretell.client.cards import chosen
from foretell.client.exchange import Steps, read_json
from foretell.client.forecasting import ForecastOptions
from foretell.client.frames import ID, read
from foretell.client.pieces import Limits, Piece, by_series, parts
from foretell.client.sending import send

Frame = TypeVar("Frame")

# Forecasts of all series of a request; a server's default limit.
_ORIGINS = 1024


class Baseline(Part):
    """Mean errors of a forecast that needs no model, from the same origins.

    Attributes:
        mse: Mean squared error, in the square of the frame's units.
        mae: Mean absolute error, in the frame's units.
        relative_mae: The model's `mae` divided by this one; below 1 the model is better.
        season: Steps of the season that the baseline repeats, if any.
    """

    mse: float | None
    mae: float | None
    relative_mae: float | None
    season: int | None = None


class StepErrors(Part):
    """Mean errors by step ahead, NaN where all values are missing.

    Attributes:
        mse: Mean squared errors `[step]`.
        mae: Mean absolute errors `[step]`.
    """

    mse: Floats
    mae: Floats


class StepIntervals(Part):
    """An interval by step ahead.

    Attributes:
        coverage: Share of values inside the interval `[step]`.
        width: Mean width `[step]`.
    """

    coverage: Floats
    width: Floats


class Interval(Part):
    """The interval between two of the quantiles.

    Attributes:
        level: Nominal coverage.
        coverage: Share of values inside the interval.
        width: Mean width, in the frame's units.
        steps: Coverage and width by step ahead.
    """

    level: float
    coverage: float | None
    width: float | None
    steps: StepIntervals


class ChannelBacktest(Part):
    """Errors of the forecasts of a channel; None if all actual values are missing.

    Attributes:
        name: Name of the channel.
        mse: Mean squared error over all origins and steps.
        mae: Mean absolute error, in the frame's units.
        steps: Both errors by step ahead.
        last_value: Errors of repeating the last value.
        seasonal_naive: Errors of repeating the last season, if the context holds one.
        below: Share of values at or below each quantile.
        intervals: Intervals between pairs of quantiles such as 0.1 and 0.9.
    """

    name: str
    mse: float | None
    mae: float | None
    steps: StepErrors
    last_value: Baseline
    seasonal_naive: Baseline | None = None
    below: dict[float, float | None] = Field(default_factory=dict)
    intervals: tuple[Interval, ...] = ()


class SeriesBacktest(Part):
    """Errors of the forecasts of a series.

    Attributes:
        horizon: Steps of each forecast.
        stride: Rows from one origin to the next.
        origins: Number of forecasts that were compared with actual values.
        first_origin: Time or number of the first row of the first forecast.
        last_origin: Time or number of the first row of the last forecast.
        channels: Errors by channel.
    """

    horizon: int
    stride: int
    origins: int
    first_origin: int | str
    last_origin: int | str
    channels: tuple[ChannelBacktest, ...]


@dataclass(frozen=True)
class Backtest(Generic[Frame]):
    """Errors of the forecasts of all series of a frame.

    Attributes:
        frame: A row for each series and channel, in the same kind of frame as the history:
            `channel`, `origins`, `mse`, `mae`, and for each baseline its `mae` and the model's
            `relative_mae`.
        series: Errors by name of the series; the name is empty if the frame has no names.
        notes: Model, warnings, and series that could not be forecast.
    """

    frame: Frame
    series: dict[str | int, SeriesBacktest]
    notes: Notes


_ANSWER = TypeAdapter(JsonAnswer[SeriesBacktest])


class BacktestOptions(ForecastOptions, total=False):
    """The options of `Client.backtest`."""

    stride: int | None
    origins: int | None


def backtest(
    frame: Frame, retry_for: float, **options: Unpack[BacktestOptions]
) -> Steps[Backtest[Frame]]:
    """Forecast rows of a frame from the rows before them; see `Client.backtest`."""
    given = read(frame, options.pop("id_column", None), options.pop("time_column", None))
    card = yield from chosen(options.get("model"), retry_for)
    whole = by_series(given.table)
    steps = options.get("horizon") or card.horizon
    halves = 2 if options.get("calibration") == "history" else 1
    stride = options.get("stride") or max(1, steps // halves)
    room = int(np.diff(whole.starts).max()) - card.context - steps
    forecasts = min(options.get("origins") or _ORIGINS, max(1, room // stride + 1))
    values = forecasts * steps * len(card.targets) * (1 + len(options.get("quantiles") or ()))
    pieces = parts(whole, Limits(series=max(1, _ORIGINS // forecasts)), values)
    answers = yield from send("backtest", given, pieces, options, retry_for, _read)
    series = {name: found for answer, _ in answers for name, found in answer.items()}
    notes = together([notes for _, notes in answers])
    return Backtest(given.back(_table(series)), series, notes)


def _read(response: httpx.Response, piece: Piece) -> tuple[dict[str | int, SeriesBacktest], Notes]:
    return by_name(read_json(response, _ANSWER), piece.ids.to_pylist())


def _table(series: Mapping[str | int, SeriesBacktest]) -> pa.Table:
    """A row of errors for each series and channel."""
    rows = []
    for name, found in series.items():
        for channel in found.channels:
            row: dict[str, object] = {ID: name, "channel": channel.name, "origins": found.origins}
            row |= {"mse": channel.mse, "mae": channel.mae}
            seasonal = channel.seasonal_naive
            for label, baseline in (
                ("last_value", channel.last_value),
                ("seasonal_naive", seasonal),
            ):
                row[f"{label}_mae"] = baseline and baseline.mae
                row[f"{label}_relative_mae"] = baseline and baseline.relative_mae
            rows.append(row)
    # Arrow gives a column without values the type null; it becomes a column of numbers.
    table = pa.Table.from_pylist(rows)
    kinds = [pa.float64() if pa.types.is_null(kind) else kind for kind in table.schema.types]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))
