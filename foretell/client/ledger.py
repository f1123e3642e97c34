"""Actual values for a server's ledger, and its scores and stored forecasts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter

from foretell.client.answers import JsonAnswer, Notes, Part, by_name, together
from foretell.client.exchange import Ask, Steps, call, parameters_of, read_json
from foretell.client.frames import read
from foretell.client.pieces import Limits, Piece, by_series, parts
from foretell.client.sending import send

if TYPE_CHECKING:
    import pandas as pd

By = Literal["total", "step", "channel", "series", "day"]


class Counts(Part):
    """How many actual values of a series were written.

    Attributes:
        new: Values of times without one before.
        changed: Values that replaced others.
        same: Values that were known.
    """

    new: int
    changed: int
    same: int


@dataclass(frozen=True)
class Written:
    """How many actual values were written.

    Attributes:
        series: Counts by name of the series; the name is empty if the frame has no names.
        notes: Model, warnings, and series of which nothing was written.
    """

    series: dict[str | int, Counts]
    notes: Notes

    @property
    def new(self) -> int:
        """Values of times without one before."""
        return sum(counts.new for counts in self.series.values())

    @property
    def changed(self) -> int:
        """Values that replaced others."""
        return sum(counts.changed for counts in self.series.values())

    @property
    def same(self) -> int:
        """Values that were known."""
        return sum(counts.same for counts in self.series.values())


class ActualsOptions(TypedDict, total=False):
    """The options of `Client.actuals`."""

    model: str | None
    id_column: str | None
    time_column: str | None


class _WindowOptions(TypedDict, total=False):
    version: str | None
    calibration: str | None
    channel: str | None
    since: str | date | None
    until: str | date | None
    namespace: str | None
    frequency: str | None
    limit: int | None


class AccuracyOptions(_WindowOptions, total=False):
    """The options of `Client.accuracy`."""

    by: By | None
    series: str | None


class TrajectoryOptions(_WindowOptions, total=False):
    """The options of `Client.trajectories`."""


@dataclass(frozen=True)
class Trajectories:
    """Stored forecasts of a series, and what came true.

    Attributes:
        forecasts: A row for each forecast, step and channel: `id`, `version`, `origin` (time of the
            last row of the history), `time`, `step` (from 1), `channel`, `mean`, `naive` (the last
            season, repeated), and `q<level>` for each quantile.
        actuals: A row for each time, with a column for each channel.
    """

    forecasts: pd.DataFrame
    actuals: pd.DataFrame


class _Rows(Part):
    rows: list[dict[str, Any]]


class _Forecast(Part):
    id: str
    version: str
    origin: str
    timestamps: list[str]
    channels: list[str]
    mean: list[list[float]]
    naive: list[list[float | None]]
    quantiles: dict[str, list[list[float]]]


class _Actual(Part):
    timestamps: list[str]
    values: dict[str, list[float | None]]


class _Stored(Part):
    forecasts: list[_Forecast]
    actuals: _Actual


class _Deleted(Part):
    series: int


_WRITTEN = TypeAdapter(JsonAnswer[Counts])
_ROWS, _STORED, _DELETED = TypeAdapter(_Rows), TypeAdapter(_Stored), TypeAdapter(_Deleted)


def actuals(frame: object, retry_for: float, **options: Unpack[ActualsOptions]) -> Steps[Written]:
    """Write actual values; see `Client.actuals`."""
    given = read(frame, options.pop("id_column", None), options.pop("time_column", None))
    pieces = parts(by_series(given.table), Limits(), 0)
    answers = yield from send("actuals", given, pieces, options, retry_for, _read)
    series = {name: counts for found, _ in answers for name, counts in found.items()}
    return Written(series, together([notes for _, notes in answers]))


def accuracy(
    model: str, retry_for: float, **options: Unpack[AccuracyOptions]
) -> Steps[pd.DataFrame]:
    """Request scores; see `Client.accuracy`."""
    ask = Ask("GET", f"models/{quote(model, safe='')}/accuracy", parameters_of(options))
    response = yield from call(ask, retry_for)
    rows = read_json(response, _ROWS).rows
    import pandas as pd

    group = options.get("by") or "total"
    groups = {"total": [], "series": ["series", "namespace", "frequency"]}
    heads = ["version", *groups.get(group, [group])]
    names = [*heads, "count", "mae", "rmse", "bias", "naive_mae", "mase"]
    found = []
    for row in rows:
        flat = {name: row[name] for name in names}
        for part, scores in (
            ("quantiles", ("pinball",)),
            ("intervals", ("coverage", "width")),
        ):
            for level, values in row[part].items():
                flat |= {f"{score}_{level}": values[score] for score in scores}
        found.append(flat)
    return pd.DataFrame(found, columns=None if found else names)


def trajectories(
    model: str, series: str, retry_for: float, **options: Unpack[TrajectoryOptions]
) -> Steps[Trajectories]:
    """Request stored forecasts; see `Client.trajectories`."""
    parameters = {**parameters_of(options), "series": series}
    ask = Ask("GET", f"models/{quote(model, safe='')}/trajectories", parameters)
    response = yield from call(ask, retry_for)
    stored = read_json(response, _STORED)
    import pandas as pd

    names = ["id", "version", "origin", "time", "step", "channel", "mean", "naive"]
    rows = [row for each in stored.forecasts for row in _rows_of(each)]
    forecasts = pd.DataFrame(rows, columns=None if rows else names)
    values = pd.DataFrame({"time": stored.actuals.timestamps, **stored.actuals.values})
    for frame, times in ((forecasts, ("origin", "time")), (values, ("time",))):
        for name in times:
            # Times at whole seconds have no fraction.
            frame[name] = pd.to_datetime(frame[name], format="ISO8601")
    return Trajectories(forecasts, values)


def delete_series(name: str, namespace: str | None, retry_for: float) -> Steps[int]:
    """Delete a series; see `Client.delete_series`."""
    parameters = parameters_of({"name": name, "namespace": namespace})
    response = yield from call(Ask("DELETE", "ledger/series", parameters), retry_for)
    return read_json(response, _DELETED).series


def _read(response: httpx.Response, piece: Piece) -> tuple[dict[str | int, Counts], Notes]:
    return by_name(read_json(response, _WRITTEN), piece.ids.to_pylist())


def _rows_of(forecast: _Forecast) -> list[dict[str, Any]]:
    return [
        {
            "id": forecast.id,
            "version": forecast.version,
            "origin": forecast.origin,
            "time": time,
            "step": step + 1,
            "channel": channel,
            "mean": forecast.mean[step][place],
            "naive": forecast.naive[step][place],
            **{f"q{level}": values[step][place] for level, values in forecast.quantiles.items()},
        }
        for step, time in enumerate(forecast.timestamps)
        for place, channel in enumerate(forecast.channels)
    ]
