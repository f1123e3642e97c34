"""Losses of two versions on the same windows, from stored forecasts and actual values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, FromClause, func, select

from foretell.service.ledger.bodies import Bodies, Shape
from foretell.service.ledger.days import DAY
from foretell.service.ledger.reading import Selection
from foretell.service.ledger.summing import Known, actuals
from foretell.service.ledger.tables import (
    ACTUALS,
    CHANNELS,
    CONFIGURATIONS,
    FORECASTS,
    SERIES,
    VERSIONS,
)

# Pairs of forecasts that are read together.
_PART = 200


class Pairs(NamedTuple):
    """Losses on the same windows.

    A loss is the mean absolute error of a window over the steps and channels that both versions
    forecast, divided by the mean absolute error of the naive forecasts of its series.

    Attributes:
        losses: `[2, windows]`, of the two versions.
        series: `[windows]`, keys of the series.
        origins: `[windows]`, in steps on one time axis.
        horizon: Most steps that both forecast; 0 without windows.
    """

    losses: NDArray[np.float64]
    series: list[str]
    origins: NDArray[np.int64]
    horizon: int


class _Part(NamedTuple):
    """Pairs of a series; arrays are `[windows]`, and `naive` has the naive forecasts' errors."""

    losses: NDArray[np.float64]
    naive: NDArray[np.float64]
    origins: NDArray[np.int64]
    horizon: int


def read_pairs(connection: Connection, selection: Selection, versions: tuple[str, str]) -> Pairs:
    """Pairs of forecasts of two versions of a model, whose windows are over and known."""
    losses, names, origins = [], [], []
    horizon = 0
    for series, group in groupby(_rows(connection, selection, versions), lambda row: row.series):
        parts = [*_parts(connection, series, [*group])]
        naive = np.concatenate([part.naive for part in parts]) if parts else np.empty(0)
        unit = float(np.nanmean(naive)) if np.isfinite(naive).any() else 0.0
        for part in parts:
            is_known = np.isfinite(part.losses).all(axis=0)
            losses.append(part.losses[:, is_known] / (unit or 1.0))
            origins.append(part.origins[is_known])
            names += [str(series)] * int(is_known.sum())
            horizon = max(horizon, part.horizon)
    if not names:
        return Pairs(np.empty((2, 0)), [], np.empty(0, np.int64), horizon)
    return Pairs(np.concatenate(losses, axis=1), names, np.concatenate(origins), horizon)


def _rows(connection: Connection, selection: Selection, versions: tuple[str, str]) -> Iterator[Any]:
    """Pairs of stored forecasts, series by series, in the order of their origins."""
    one, other = FORECASTS.alias("one"), FORECASTS.alias("other")
    columns = []
    source = one.join(
        other, (one.c.series == other.c.series) & (one.c.origin == other.c.origin)
    ).join(SERIES, SERIES.c.id == one.c.series)
    where: list[ColumnElement[bool]] = []
    for place, (forecast, version) in enumerate(zip((one, other), versions, strict=True)):
        own = VERSIONS.alias(f"version{place}")
        configuration = CONFIGURATIONS.alias(f"configuration{place}")
        source = source.join(own, own.c.id == forecast.c.version)
        source = source.join(configuration, configuration.c.id == forecast.c.configuration)
        where += [own.c.model == selection.model, own.c.version == version]
        columns += _columns(forecast, own, configuration, place)
    if selection.namespace is not None:
        where.append(SERIES.c.namespace == selection.namespace)
    if selection.series is not None:
        where.append(SERIES.c.name == selection.series)
    if selection.since is not None:
        where.append(one.c.ends >= selection.since * DAY)
    if selection.until is not None:
        where.append(one.c.origin < (selection.until + 1) * DAY)
    statement = (
        select(one.c.series, one.c.origin, *columns)
        .select_from(source)
        .where(*where)
        .order_by(one.c.series, one.c.origin)
    )
    yield from connection.execute(statement.execution_options(yield_per=_PART))


def _columns(
    forecast: FromClause, version: FromClause, configuration: FromClause, place: int
) -> list[ColumnElement[Any]]:
    named = {
        "body": forecast.c.body,
        "ends": forecast.c.ends,
        "steps": configuration.c.steps,
        "levels": configuration.c.levels,
        "channels": version.c.channels,
    }
    return [column.label(f"{name}{place}") for name, column in named.items()]


def _parts(connection: Connection, series: int, rows: Sequence[Any]) -> Iterator[_Part]:
    """The pairs of a series, a part at a time; each part has pairs of equal shapes."""
    latest = connection.execute(
        select(func.max(ACTUALS.c.time))
        .join(CHANNELS, CHANNELS.c.id == ACTUALS.c.channel)
        .where(CHANNELS.c.series == series)
    ).scalar()
    if latest is None:
        return
    shapes: Any = ("steps0", "steps1", "levels0", "levels1", "channels0", "channels1")
    for _, group in groupby(rows, lambda row: [getattr(row, name) for name in shapes]):
        every = [*group]
        for start in range(0, len(every), _PART):
            part = every[start : start + _PART]
            last = max(max(row.ends0, row.ends1) for row in part)
            known = actuals(connection, series, part[0].origin, last + 1)
            if known is not None:
                yield _part(part, known, latest)


def _part(rows: Sequence[Any], known: Known, latest: int) -> _Part:
    """Pairs of one shape; a window is over once a value at its end or later is known."""
    first = rows[0]
    bodies = [_bodies(rows, place) for place in (0, 1)]
    channels = [json.loads(each) for each in (first.channels0, first.channels1)]
    common = [name for name in channels[0] if name in channels[1]]
    horizon = min(first.steps0, first.steps1)
    actual = known.at(bodies[0].times[:, :horizon], common)
    ends = np.array([max(row.ends0, row.ends1) for row in rows])
    actual[ends > latest] = np.nan

    def errors(forecast: NDArray[np.float32], of: int) -> NDArray[np.float64]:
        places = [channels[of].index(name) for name in common]
        return _mean(np.abs(forecast[:, :horizon, places] - actual))

    losses = [errors(each.mean, of) for of, each in enumerate(bodies)]
    step = (first.ends0 - first.origin) / first.steps0
    origins = np.round(np.array([row.origin for row in rows]) / step).astype(np.int64)
    return _Part(np.stack(losses), errors(bodies[0].naive, 0), origins, horizon)


def _bodies(rows: Sequence[Any], place: int) -> Bodies:
    def of(row: Any, name: str) -> Any:  # noqa: ANN401 - a column of a row
        return getattr(row, f"{name}{place}")

    channels, levels = json.loads(of(rows[0], "channels")), json.loads(of(rows[0], "levels"))
    shape = Shape(of(rows[0], "steps"), len(channels), len(levels))
    return Bodies.read([of(row, "body") for row in rows], shape)


def _mean(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over the known errors of each window; NaN without any."""
    known = np.isfinite(errors)
    count = known.sum(axis=(1, 2))
    total = np.where(known, errors, 0.0).sum(axis=(1, 2))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
