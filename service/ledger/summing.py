"""Computes the sums of errors of days from stored forecasts and actual values."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Select, func, select

from foretell.service.ledger.bodies import Bodies, Shape
from foretell.service.ledger.days import DAY, NO_DAY, Days
from foretell.service.ledger.scores import sums_by_day
from foretell.service.ledger.store import Store, among
from foretell.service.ledger.tables import (
    ACTUALS,
    CHANNELS,
    CONFIGURATIONS,
    FORECASTS,
    SERIES,
    SUMS,
    VERSIONS,
)
from foretell.service.ledger.totals import mark_outdated

# Most days whose forecasts are read together.
_SPAN = 32
# Forecasts that are in memory together.
_ROWS = 1000
# Bytes of sums that are in memory before they are written.
_BYTES = 1 << 24


class Known(NamedTuple):
    """Actual values of a series.

    Attributes:
        times: `[times]`, increasing, in microseconds.
        values: `[times, channels]`, NaN where unknown.
        channels: Names of the channels.
    """

    times: NDArray[np.int64]
    values: NDArray[np.float64]
    channels: list[str]

    def at(self, times: NDArray[np.int64], channels: Sequence[str]) -> NDArray[np.float64]:
        """Values at times `[forecasts, steps]`, `[forecasts, steps, channels]`."""
        found = np.full((*times.shape, len(channels)), np.nan)
        places = np.minimum(np.searchsorted(self.times, times), len(self.times) - 1)
        is_known = self.times[places] == times
        for place, channel in enumerate(channels):
            if channel in self.channels:
                values = self.values[:, self.channels.index(channel)]
                found[is_known, place] = values[places[is_known]]
        return found


def add_up(connection: Connection, store: Store, days: Days) -> set[tuple[int, int]]:
    """Compute the sums of days anew; returns the changed pairs of version and series."""
    changed: set[tuple[int, int]] = set()
    rows: list[dict[str, Any]] = []
    size = 0
    outdated: set[tuple[int, str, int]] = set()
    for series, namespace, own in _days_to_sum(connection, store, days):
        for span in _spans(own):
            first, end = span[0] * DAY, (span[-1] + 1) * DAY
            known = actuals(connection, series, first, end)
            if known is None:
                continue
            for configuration, version, sums in _sums(connection, series, known, span):
                changed.add((version, series))
                for day, values in sums.items():
                    outdated.add((configuration, namespace, day))
                    rows.append(
                        {
                            "series": series,
                            "day": day,
                            "configuration": configuration,
                            "sums": values.tobytes(),
                        }
                    )
                    size += values.nbytes
            if size >= _BYTES:
                _write(connection, store, rows)
                rows, size = [], 0
    if rows:
        _write(connection, store, rows)
    mark_outdated(connection, store, outdated)
    return changed


def _write(connection: Connection, store: Store, rows: list[dict[str, Any]]) -> None:
    keys = ("series", "day", "configuration")
    now = store.now(connection)
    statement = store.upsert(SUMS, keys, ("written", "sums"))
    connection.execute(statement, [{**row, "written": now} for row in rows])


def actuals(connection: Connection, series: int, first: int, end: int) -> Known | None:
    """The actual values of a series from `first` to before `end`; None without any."""
    rows = connection.execute(
        select(CHANNELS.c.name, ACTUALS.c.time, ACTUALS.c.value)
        .join(CHANNELS, ACTUALS.c.channel == CHANNELS.c.id)
        .where(CHANNELS.c.series == series, ACTUALS.c.time >= first, ACTUALS.c.time < end)
    ).all()
    if not rows:
        return None
    names, moments, numbers = zip(*rows, strict=True)
    channels = sorted(set(names))
    times, places = np.unique(np.array(moments, np.int64), return_inverse=True)
    values = np.full((len(times), len(channels)), np.nan)
    columns = {name: column for column, name in enumerate(channels)}
    values[places, [columns[name] for name in names]] = numbers
    return Known(times, values, channels)


class Stored(NamedTuple):
    """Stored forecasts of one configuration."""

    configuration: int
    version: int
    channels: list[str]
    levels: list[float]
    bodies: Bodies


def forecasts(rows: Iterable[Any]) -> Iterator[Stored]:
    """Read rows of `SELECT_FORECASTS`, one configuration after the other."""
    groups: defaultdict[int, list[Any]] = defaultdict(list)
    for row in rows:
        groups[row.configuration].append(row)
    for configuration, group in groups.items():
        first = group[0]
        channels, levels = json.loads(first.channels), json.loads(first.levels)
        shape = Shape(first.steps, len(channels), len(levels))
        bodies = Bodies.read([row.body for row in group], shape)
        yield Stored(configuration, first.version, channels, levels, bodies)


SELECT_FORECASTS = (
    select(
        FORECASTS.c.body,
        FORECASTS.c.configuration,
        FORECASTS.c.version,
        CONFIGURATIONS.c.steps,
        CONFIGURATIONS.c.levels,
        VERSIONS.c.channels,
    )
    .join(CONFIGURATIONS, FORECASTS.c.configuration == CONFIGURATIONS.c.id)
    .join(VERSIONS, FORECASTS.c.version == VERSIONS.c.id)
)


@lru_cache
def _known_series(*, is_sqlite: bool) -> Select[Any]:
    """The series of a list that have channels, and the time of the last actual value of each."""
    latest = (
        select(func.max(ACTUALS.c.time))
        .where(ACTUALS.c.channel == CHANNELS.c.id)
        .correlate(CHANNELS)
        .scalar_subquery()
    )
    return (
        select(SERIES.c.id, SERIES.c.namespace, SERIES.c.frozen, func.max(latest))
        .join(CHANNELS, CHANNELS.c.series == SERIES.c.id)
        .where(among(SERIES.c.id, "ids", is_sqlite=is_sqlite))
        .group_by(SERIES.c.id, SERIES.c.namespace, SERIES.c.frozen)
    )


def _days_to_sum(
    connection: Connection, store: Store, days: Days
) -> Iterator[tuple[int, str, list[int]]]:
    """Series, their namespaces, and their days with actual values and all their forecasts."""
    if not (ids := days.series):
        return
    found = connection.execute(_known_series(is_sqlite=store.is_sqlite), {"ids": ids}).all()
    every = days.of([row.id for row in found])
    for series, namespace, frozen, last in found:
        if last is None:
            continue
        # Sums of days with deleted forecasts stay as they are.
        after = NO_DAY if frozen is None else frozen
        if own := [day for day in every[series] if after < day <= last // DAY]:
            yield series, namespace, own


def _spans(days: list[int]) -> Iterator[list[int]]:
    """Parts of days that lie near each other."""
    part: list[int] = []
    for day in days:
        if part and day - part[0] >= _SPAN:
            yield part
            part = []
        part.append(day)
    if part:
        yield part


def _sums(
    connection: Connection, series: int, known: Known, days: list[int]
) -> Iterator[tuple[int, int, dict[int, NDArray[np.float64]]]]:
    """Configurations, their versions and their sums by day."""
    found = connection.execute(
        SELECT_FORECASTS.where(
            FORECASTS.c.series == series,
            FORECASTS.c.ends >= days[0] * DAY,
            FORECASTS.c.origin < (days[-1] + 1) * DAY,
        ),
        execution_options={"yield_per": _ROWS},
    )
    totals: defaultdict[tuple[int, int], dict[int, NDArray[np.float64]]] = defaultdict(dict)
    for rows in found.partitions():
        for stored in forecasts(rows):
            by_day = totals[stored.configuration, stored.version]
            for day, sums in _by_day(stored, known):
                # The forecasts also have steps in other days.
                if day in days:
                    by_day[day] = by_day[day] + sums if day in by_day else sums
    for (configuration, version), by_day in totals.items():
        yield configuration, version, by_day


def _by_day(stored: Stored, known: Known) -> Iterator[tuple[int, NDArray[np.float64]]]:
    bodies = stored.bodies
    actual = known.at(bodies.times, stored.channels)
    quantiles, day = bodies.quantiles.swapaxes(0, 1), bodies.times // DAY
    days, sums = sums_by_day(actual, bodies.mean, bodies.naive, quantiles, stored.levels, day)
    return zip(days.tolist(), sums, strict=True)
