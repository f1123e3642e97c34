"""Reads scores and forecasts from the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, FromClause, Select, func, or_, select

from foretell.service.errors import InvalidInputError
from foretell.service.ledger.days import DAY
from foretell.service.ledger.scores import By, Scores, fields
from foretell.service.ledger.store import MOST_KEYS
from foretell.service.ledger.tables import (
    CONFIGURATIONS,
    FORECASTS,
    SERIES,
    SUMS,
    TOTALS,
    VERSIONS,
)
from foretell.service.ledger.totals import add_up

# Rows that are read together, and names in a message.
_ROWS, _SHOWN = 1000, 8


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
        served: Digests of the manifests of the model's served versions. Forecasts of a version are
            those of this bundle, else those of the newest one.
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
    served: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Configuration:
    """How a version forecast."""

    id: int
    version: str
    channels: list[str]
    levels: list[float]

    def read(self, sums: bytes) -> NDArray[np.float64]:
        """Sums `[steps, channels, fields]`."""
        return np.frombuffer(sums, np.float64).reshape(
            -1, len(self.channels), len(fields(self.levels))
        )


class Configurations:
    """Configurations by their id; clients choose levels, so that a model may have any number."""

    def __init__(self) -> None:
        self._known: dict[int, Configuration] = {}

    def of(self, row: Any) -> Configuration:  # noqa: ANN401 - a row
        """The configuration of a row with `COLUMNS`."""
        known = self._known.get(row.configuration)
        if known is None:
            channels, levels = json.loads(row.channels), json.loads(row.levels)
            known = Configuration(row.configuration, row.name, channels, levels)
            self._known[known.id] = known
        return known


# The columns that `Configurations` reads.
COLUMNS = (
    CONFIGURATIONS.c.id.label("configuration"),
    CONFIGURATIONS.c.levels,
    VERSIONS.c.channels,
    VERSIONS.c.version.label("name"),
)


def accuracy(connection: Connection, selection: Selection, by: By) -> list[dict[str, Any]]:
    """Rows of `Scores.rows`; those by series also have its `namespace` and `frequency`.

    Raises:
        InvalidInputError: several series have the name.
    """
    channels = None if selection.channel is None else [selection.channel]
    scores = Scores(by, channels)
    if by == "series":
        return _by_series(connection, selection, scores)
    if selection.series is not None or selection.frequency is not None:
        found = _of_series(connection, selection)
    else:
        found = _of_all(connection, selection)
    for configuration, day, sums in found:
        scores.add(
            sums,
            configuration.levels,
            configuration.channels,
            version=configuration.version,
            series="",
            day=iso_day(day),
        )
    return scores.rows()


def newest_or_worst(rows: list[dict[str, Any]], by: By, most: int) -> list[dict[str, Any]]:
    """The newest days, the series with the largest errors, or the first rows, `most` of them."""
    if len(rows) <= most:
        return rows
    if by == "day":
        places = sorted(range(len(rows)), key=lambda place: str(rows[place]["day"]))
        return [rows[place] for place in sorted(places[-most:])]
    if by == "series":
        rows = sorted(rows, key=lambda row: (row["mase"] or 0.0, row["mae"] or 0.0), reverse=True)
    return rows[:most]


def is_known(connection: Connection, model: str) -> bool:
    """Whether the ledger has a version of a model."""
    statement = select(VERSIONS.c.id).where(VERSIONS.c.model == model).limit(1)
    return connection.execute(statement).first() is not None


def latest(connection: Connection, selection: Selection) -> dict[str, int]:
    """The last day of sums by version, within the days of the selection."""
    rows = connection.execute(
        select(VERSIONS.c.version, func.max(TOTALS.c.day).label("day"))
        .join(CONFIGURATIONS, CONFIGURATIONS.c.version == VERSIONS.c.id)
        .join(TOTALS, TOTALS.c.configuration == CONFIGURATIONS.c.id)
        .where(*of_bundles(selection), *_within(selection, TOTALS.c.day))
        .group_by(VERSIONS.c.version)
    )
    return {row.version: row.day for row in rows}


def iso_day(day: int) -> str:
    return str(np.datetime64(day, "D"))


def of_versions(selection: Selection) -> list[ColumnElement[bool]]:
    """Conditions of the chosen versions and their configurations."""
    where = of_bundles(selection)
    if selection.calibration is not None:
        where.append(CONFIGURATIONS.c.calibration == selection.calibration)
    return where


def of_bundles(selection: Selection) -> list[ColumnElement[bool]]:
    """Conditions of the chosen versions: one bundle of each."""
    other = VERSIONS.alias()
    newest = (
        select(func.max(other.c.id))
        .where(other.c.model == selection.model)
        .group_by(other.c.version)
    )
    served = [
        (VERSIONS.c.version == version) & (VERSIONS.c.digest == digest)
        for version, digest in selection.served.items()
        if selection.version in (None, version)
    ]
    is_newest = VERSIONS.c.version.not_in([*selection.served]) & VERSIONS.c.id.in_(newest)
    where = [VERSIONS.c.model == selection.model, or_(is_newest, *served)]
    if selection.version is not None:
        where.append(VERSIONS.c.version == selection.version)
    return where


# Sums of a day `[steps, channels, fields]`.
_Found = Iterator[tuple[Configuration, int, NDArray[np.float64]]]


def _of_all(connection: Connection, selection: Selection) -> _Found:
    """Totals over series."""
    where = [*of_versions(selection), *_within(selection, TOTALS.c.day)]
    if selection.namespace is not None:
        where.append(TOTALS.c.namespace == selection.namespace)
    rows = connection.execute(
        select(*COLUMNS, TOTALS.c.namespace, TOTALS.c.day, TOTALS.c.sums)
        .join_from(TOTALS, CONFIGURATIONS, TOTALS.c.configuration == CONFIGURATIONS.c.id)
        .join(VERSIONS, CONFIGURATIONS.c.version == VERSIONS.c.id)
        .where(*where),
        execution_options={"yield_per": _ROWS},
    )
    configurations = Configurations()
    for row in rows:
        known = row.sums or add_up(connection, row.configuration, row.namespace, row.day)
        if known:
            configuration = configurations.of(row)
            yield configuration, row.day, configuration.read(known)


def _select_sums(selection: Selection, *columns: ColumnElement[Any]) -> Select[Any]:
    """Sums of the chosen versions and days."""
    return (
        select(*columns)
        .join_from(SUMS, CONFIGURATIONS, SUMS.c.configuration == CONFIGURATIONS.c.id)
        .join(VERSIONS, CONFIGURATIONS.c.version == VERSIONS.c.id)
        .where(*of_versions(selection), *_within(selection, SUMS.c.day))
    )


def _of_series(connection: Connection, selection: Selection) -> _Found:
    """Sums of the chosen series."""
    if selection.series is not None:
        one_series(connection, selection, _select_sums(selection, SUMS.c.series))
    rows = connection.execute(
        _select_sums(selection, *COLUMNS, SUMS.c.day, SUMS.c.sums)
        .join(SERIES, SUMS.c.series == SERIES.c.id)
        .where(*of_names(selection)),
        execution_options={"yield_per": _ROWS},
    )
    configurations = Configurations()
    for row in rows:
        configuration = configurations.of(row)
        yield configuration, row.day, configuration.read(row.sums)


def _by_series(
    connection: Connection, selection: Selection, scores: Scores
) -> list[dict[str, Any]]:
    """Rows by series; sums over steps and channels are all that is kept of each series."""
    rows = connection.execute(
        _select_sums(selection, *COLUMNS, SUMS.c.series, SUMS.c.sums)
        .join(SERIES, SUMS.c.series == SERIES.c.id)
        .where(*of_names(selection)),
        execution_options={"yield_per": _ROWS},
    )
    configurations = Configurations()
    for each in rows:
        configuration = configurations.of(each)
        scores.add(
            configuration.read(each.sums),
            configuration.levels,
            configuration.channels,
            version=configuration.version,
            series=each.series,
            day="",
        )
    found = scores.rows()
    names = names_of(connection, {row["series"] for row in found})
    for row in found:
        row["series"], row["namespace"], row["frequency"] = names[row["series"]]
    order = [*dict.fromkeys(row["version"] for row in found)]
    found.sort(
        key=lambda row: (
            *(order.index(row["version"]), row["series"]),
            *(row["namespace"], row["frequency"]),
        )
    )
    return found


def names_of(connection: Connection, ids: Iterable[int]) -> dict[int, tuple[str, str, str]]:
    """Name, namespace and frequency of series."""
    wanted, found = [*ids], {}
    for start in range(0, len(wanted), MOST_KEYS):
        part = wanted[start : start + MOST_KEYS]
        for row in connection.execute(select(SERIES).where(SERIES.c.id.in_(part))):
            found[row.id] = row.name, row.namespace, row.frequency
    return found


def one_series(connection: Connection, selection: Selection, ids: Select[int]) -> int | None:
    """The only chosen series among those of a statement; None without one.

    Raises:
        InvalidInputError: there are several.
    """
    rows = connection.execute(
        select(SERIES.c.id, SERIES.c.namespace, SERIES.c.frequency).where(
            *of_names(selection), SERIES.c.id.in_(ids)
        )
    ).all()
    for name in ("namespace", "frequency"):
        every = sorted({getattr(row, name) for row in rows})
        if len(every) > 1:
            shown = ", ".join(map(repr, every[:_SHOWN])) + ", …" * (len(every) > _SHOWN)
            raise InvalidInputError(
                f"several series have the name {selection.series!r}; choose one by {name}: {shown}",
                param=name,
            )
    return rows[0].id if rows else None


def of_names(selection: Selection) -> list[ColumnElement[bool]]:
    """Conditions of the chosen series."""
    where: list[ColumnElement[bool]] = []
    if selection.namespace is not None:
        where.append(SERIES.c.namespace == selection.namespace)
    if selection.series is not None:
        where.append(SERIES.c.name == selection.series)
    if selection.frequency is not None:
        where.append(SERIES.c.frequency == selection.frequency)
    return where


def of_times(selection: Selection, forecasts: FromClause = FORECASTS) -> list[ColumnElement[bool]]:
    """Conditions of forecasts with a step in the chosen days."""
    where: list[ColumnElement[bool]] = []
    if selection.since is not None:
        where.append(forecasts.c.ends >= selection.since * DAY)
    if selection.until is not None:
        where.append(forecasts.c.origin < (selection.until + 1) * DAY)
    return where


def _within(selection: Selection, day: ColumnElement[int]) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = []
    if selection.since is not None:
        where.append(day >= selection.since)
    if selection.until is not None:
        where.append(day <= selection.until)
    return where
