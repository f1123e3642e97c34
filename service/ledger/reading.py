"""Reads scores and forecasts from the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, func, select

from foretell.service.ledger.days import DAY
from foretell.service.ledger.scores import By, Scores, fields
from foretell.service.ledger.summing import SELECT_FORECASTS, actuals, forecasts
from foretell.service.ledger.tables import (
    CONFIGURATIONS,
    FORECASTS,
    SERIES,
    SUMS,
    TOTALS,
    VERSIONS,
)
from foretell.service.ledger.totals import add_up


@dataclass(frozen=True)
class Selection:
    """A choice of forecasts; None is all of them.

    Attributes:
        namespace: Namespace of the series.
        frequency: Frequency of the series, as the ledger names it.
        since: First day since 1970 of the actual values.
        until: The last one.
        overlapping: Whether the times of a version's forecasts may overlap; otherwise the latest
            ones that do not.
    """

    model: str
    namespace: str | None = None
    version: str | None = None
    calibration: str | None = None
    series: str | None = None
    frequency: str | None = None
    channel: str | None = None
    since: int | None = None
    until: int | None = None
    overlapping: bool = True


@dataclass(frozen=True)
class _Configuration:
    id: int
    version: str
    channels: list[str]
    levels: list[float]

    def read(self, sums: bytes) -> NDArray[np.float64]:
        """Sums `[steps, channels, fields]`."""
        return np.frombuffer(sums, np.float64).reshape(
            -1, len(self.channels), len(fields(self.levels))
        )


def accuracy(connection: Connection, selection: Selection, by: By) -> list[dict[str, Any]]:
    """Rows of `Scores.rows`."""
    channels = None if selection.channel is None else [selection.channel]
    scores = Scores(by, channels)
    configurations = {each.id: each for each in _configurations(connection, selection)}
    if by == "series" or selection.series is not None:
        found = _of_series(connection, selection, configurations)
    else:
        found = _of_all(connection, selection, configurations)
    for configuration, series, day, sums in found:
        scores.add(
            sums,
            configuration.levels,
            configuration.channels,
            version=configuration.version,
            series=series,
            day=iso_day(day),
        )
    return scores.rows()


def latest(connection: Connection, selection: Selection) -> dict[str, int]:
    """The last day of sums by version, within the days of the selection."""
    rows = connection.execute(
        select(VERSIONS.c.version, func.max(TOTALS.c.day).label("day"))
        .join(CONFIGURATIONS, CONFIGURATIONS.c.version == VERSIONS.c.id)
        .join(TOTALS, TOTALS.c.configuration == CONFIGURATIONS.c.id)
        .where(VERSIONS.c.model == selection.model, *_within(selection, TOTALS.c.day))
        .group_by(VERSIONS.c.version)
    )
    return {row.version: row.day for row in rows}


def iso_day(day: int) -> str:
    return str(np.datetime64(day, "D"))


def trajectories(connection: Connection, selection: Selection, most: int) -> dict[str, Any]:
    """The latest forecasts of a series, and its actual values over their times.

    Returns:
        `forecasts` and `actuals`, as of `answers.Trajectories`.
    """
    ids = [*connection.execute(select(SERIES.c.id).where(*_of_names(selection))).scalars()]
    where: list[ColumnElement[bool]] = [
        VERSIONS.c.model == selection.model,
        FORECASTS.c.series.in_(ids),
    ]
    if selection.version is not None:
        where.append(VERSIONS.c.version == selection.version)
    if selection.calibration is not None:
        where.append(CONFIGURATIONS.c.calibration == selection.calibration)
    if selection.since is not None:
        where.append(FORECASTS.c.ends >= selection.since * DAY)
    if selection.until is not None:
        where.append(FORECASTS.c.origin < (selection.until + 1) * DAY)
    rows = connection.execute(
        SELECT_FORECASTS.add_columns(
            FORECASTS.c.origin,
            FORECASTS.c.ends,
            FORECASTS.c.series,
            FORECASTS.c.answer,
            CONFIGURATIONS.c.calibration,
            VERSIONS.c.version.label("name"),
        )
        .where(FORECASTS.c.id.in_(_latest_ids(connection, where, most, selection.overlapping)))
        .order_by(FORECASTS.c.origin.desc())
    ).all()
    found = []
    for row in reversed(rows):
        [stored] = forecasts([row])
        bodies = stored.bodies
        found.append(
            {
                "id": row.answer,
                "version": row.name,
                "calibration": row.calibration,
                "origin": _labels(np.array([row.origin]))[0],
                "timestamps": _labels(bodies.times[0]),
                "channels": stored.channels,
                "mean": bodies.mean[0],
                "naive": bodies.naive[0],
                "quantiles": {
                    f"{level:g}": values
                    for level, values in zip(stored.levels, bodies.quantiles[0], strict=True)
                },
            }
        )
    known = None
    if found:
        first, last = min(row.origin for row in rows), max(row.ends for row in rows)
        known = actuals(connection, rows[0].series, first, last + 1)
    values: dict[str, Any] = {"timestamps": [], "values": {}}
    if known is not None:
        values["timestamps"] = _labels(known.times)
        for place, channel in enumerate(known.channels):
            values["values"][channel] = np.ascontiguousarray(known.values[:, place])
    return {"forecasts": found, "actuals": values}


def _latest_ids(
    connection: Connection, where: list[ColumnElement[bool]], most: int, overlapping: bool
) -> list[int]:
    """The ids of the latest forecasts, without their bodies, which are large."""
    columns = (
        FORECASTS.c.id,
        FORECASTS.c.version,
        FORECASTS.c.series,
        FORECASTS.c.origin,
        FORECASTS.c.ends,
    )
    rows = connection.execute(
        select(*columns)
        .join(CONFIGURATIONS, FORECASTS.c.configuration == CONFIGURATIONS.c.id)
        .join(VERSIONS, FORECASTS.c.version == VERSIONS.c.id)
        .where(*where)
        .order_by(FORECASTS.c.origin.desc())
    )
    found: list[int] = []
    # The origin of the oldest one so far, by version and series.
    oldest: dict[tuple[int, int], int] = {}
    for row in rows:
        if len(found) == most:
            break
        key = row.version, row.series
        if overlapping or row.ends <= oldest.get(key, row.ends):
            found.append(row.id)
            oldest[key] = row.origin
    return found


def _configurations(connection: Connection, selection: Selection) -> Iterator[_Configuration]:
    where = [VERSIONS.c.model == selection.model]
    if selection.version is not None:
        where.append(VERSIONS.c.version == selection.version)
    if selection.calibration is not None:
        where.append(CONFIGURATIONS.c.calibration == selection.calibration)
    rows = connection.execute(
        select(
            CONFIGURATIONS.c.id,
            VERSIONS.c.version,
            VERSIONS.c.channels,
            CONFIGURATIONS.c.levels,
        )
        .join(VERSIONS, CONFIGURATIONS.c.version == VERSIONS.c.id)
        .where(*where)
        .order_by(CONFIGURATIONS.c.id)
    )
    for number, version, channels, levels in rows:
        yield _Configuration(number, version, json.loads(channels), json.loads(levels))


_Found = Iterator[tuple[_Configuration, str, int, NDArray[np.float64]]]


def _of_all(
    connection: Connection, selection: Selection, configurations: dict[int, _Configuration]
) -> _Found:
    """Totals over series."""
    where = [TOTALS.c.configuration.in_(configurations), *_within(selection, TOTALS.c.day)]
    if selection.namespace is not None:
        where.append(TOTALS.c.namespace == selection.namespace)
    columns = (TOTALS.c.configuration, TOTALS.c.namespace, TOTALS.c.day, TOTALS.c.sums)
    for number, namespace, day, sums in connection.execute(select(*columns).where(*where)).all():
        known = sums or add_up(connection, number, namespace, day)
        if known:
            yield configurations[number], "", day, configurations[number].read(known)


def _of_series(
    connection: Connection, selection: Selection, configurations: dict[int, _Configuration]
) -> _Found:
    """Sums of each series: by day of one, or over all days of all."""
    where = [SUMS.c.configuration.in_(configurations), *_within(selection, SUMS.c.day)]
    rows = connection.execute(
        select(SUMS.c.configuration, SERIES.c.namespace, SERIES.c.name, SUMS.c.day, SUMS.c.sums)
        .join(SERIES, SUMS.c.series == SERIES.c.id)
        .where(*where, *_of_names(selection)),
        execution_options={"yield_per": 1000},
    )
    if selection.series is not None:
        for number, _, name, day, sums in rows:
            yield configurations[number], name, day, configurations[number].read(sums)
        return
    totals: dict[tuple[int, str], NDArray[np.float64]] = {}
    for number, namespace, name, _, sums in rows:
        values = np.frombuffer(sums, np.float64)
        is_shown = namespace and selection.namespace is None
        key = number, f"{namespace}/{name}" if is_shown else name
        totals[key] = totals[key] + values if key in totals else values
    for (number, name), total in totals.items():
        yield configurations[number], name, 0, configurations[number].read(total.tobytes())


def _of_names(selection: Selection) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = []
    if selection.namespace is not None:
        where.append(SERIES.c.namespace == selection.namespace)
    if selection.series is not None:
        where.append(SERIES.c.name == selection.series)
    return where


def _within(selection: Selection, day: ColumnElement[int]) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = []
    if selection.since is not None:
        where.append(day >= selection.since)
    if selection.until is not None:
        where.append(day <= selection.until)
    return where


def _labels(moments: NDArray[np.int64]) -> list[str]:
    """Times in ISO 8601, without an offset: they are in UTC if the series has one."""
    return [str(each).removesuffix(".000000") for each in moments.view("datetime64[us]")]
