"""Losses of two versions on the same windows, from stored forecasts and actual values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from foretell.service.errors import InvalidInputError
from foretell.service.ledger.bodies import Bodies, Shape
from foretell.service.ledger.positions import positions
from foretell.service.ledger.reading import Selection, of_bundles, of_names, of_times
from foretell.service.ledger.summing import Known, actuals
from foretell.service.ledger.tables import (
    ACTUALS,
    CHANNELS,
    CONFIGURATIONS,
    FORECASTS,
    SERIES,
    VERSIONS,
)
from foretell.timeaxis.frequency import Frequency

# Most windows of a comparison.
MOST_WINDOWS = 1_000_000
# Most pairs of forecasts, and most of their values, that are in memory together.
_PART, _VALUES = 200, 4_000_000
_ROWS = 10_000


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


class _Heads(NamedTuple):
    """Pairs of forecasts without their arrays, in the order of series and origins.

    Attributes:
        series: `[pairs]`, ids of the series.
        origins: `[pairs]`, in microseconds.
        ends: `[pairs]`, the time of the last step of both.
        configurations: `[pairs, 2]`, ids.
        forecasts: `[pairs, 2]`, ids.
    """

    series: NDArray[np.int64]
    origins: NDArray[np.int64]
    ends: NDArray[np.int64]
    configurations: NDArray[np.int64]
    forecasts: NDArray[np.int64]

    def take(self, places: NDArray[Any] | slice) -> _Heads:
        return _Heads(*(each[places] for each in self))


class _Form(NamedTuple):
    """Shape and channels of a configuration's forecasts."""

    shape: Shape
    channels: list[str]

    @property
    def values(self) -> int:
        """Values of a forecast."""
        steps, channels, levels = self.shape
        return steps * channels * (levels + 2)


class _Part(NamedTuple):
    """Pairs of a series; arrays are `[windows]`, and `naive` has the naive forecasts' errors."""

    losses: NDArray[np.float64]
    naive: NDArray[np.float64]
    origins: NDArray[np.int64]
    horizon: int


def read_pairs(connection: Connection, selection: Selection, versions: tuple[str, str]) -> Pairs:
    """Pairs of forecasts of two versions of a model, whose windows are over and known.

    Raises:
        InvalidInputError: there are more than `MOST_WINDOWS`.
    """
    named = select(VERSIONS.c.version, VERSIONS.c.id).where(*of_bundles(selection))
    known = {row.version: row.id for row in connection.execute(named)}
    nothing = Pairs(np.empty((2, 0)), [], np.empty(0, np.int64), 0)
    if not known.keys() >= {*versions}:
        return nothing
    ids = known[versions[0]], known[versions[1]]
    heads, forms = _heads(connection, selection, ids), _forms(connection, ids)
    earliest = int(heads.origins.min()) if len(heads.origins) else 0
    losses, names, origins = [], [], []
    horizon = 0
    edges = np.flatnonzero(np.diff(heads.series, prepend=-1, append=-1))
    for start, end in pairwise(edges.tolist()):
        own = heads.take(slice(start, end))
        parts = [*_parts(connection, own, forms, earliest)]
        naive = np.concatenate([part.naive for part in parts]) if parts else np.empty(0)
        unit = float(np.nanmean(naive)) if np.isfinite(naive).any() else 0.0
        for part in parts:
            is_known = np.isfinite(part.losses).all(axis=0)
            losses.append(part.losses[:, is_known] / (unit or 1.0))
            origins.append(part.origins[is_known])
            names += [str(own.series[0])] * int(is_known.sum())
            horizon = max(horizon, part.horizon)
    if not names:
        return nothing._replace(horizon=horizon)
    return Pairs(np.concatenate(losses, axis=1), names, np.concatenate(origins), horizon)


def _heads(connection: Connection, selection: Selection, ids: tuple[int, int]) -> _Heads:
    """Pairs of forecasts of an origin by two versions.

    Both are of one request, or of equal histories: a later request may know more.
    """
    one, other = FORECASTS.alias("one"), FORECASTS.alias("other")
    source = one.join(
        other, (one.c.series == other.c.series) & (one.c.origin == other.c.origin)
    ).join(SERIES, SERIES.c.id == one.c.series)
    columns = [
        *(one.c.series, one.c.origin, one.c.ends, other.c.ends),
        *(one.c.configuration, other.c.configuration, one.c.id, other.c.id),
    ]
    statement = (
        select(*(column.label(f"column{place}") for place, column in enumerate(columns)))
        .select_from(source)
        .where(
            (one.c.version == ids[0]) & (other.c.version == ids[1]),
            (one.c.answer == other.c.answer) | (one.c.input == other.c.input),
            *of_names(selection),
            *of_times(selection, one),
        )
        .order_by(one.c.series, one.c.origin)
    )
    parts, count = [np.empty((0, len(columns)), np.int64)], 0
    with connection.execute(statement, execution_options={"yield_per": _ROWS}) as rows:
        for part in rows.partitions():
            parts.append(np.array([tuple(row) for row in part], np.int64))
            count += len(part)
            if count > MOST_WINDOWS:
                raise InvalidInputError(
                    f"both versions forecast more than {MOST_WINDOWS:,} windows, the most of a "
                    "comparison; choose a series, or days by since and until",
                    param="since",
                )
    table = np.concatenate(parts)
    return _Heads(table[:, 0], table[:, 1], table[:, 2:4].max(axis=1), table[:, 4:6], table[:, 6:8])


def _forms(connection: Connection, ids: tuple[int, int]) -> dict[int, _Form]:
    """Forms of the configurations of two versions, by id."""
    rows = connection.execute(
        select(
            CONFIGURATIONS.c.id,
            CONFIGURATIONS.c.steps,
            CONFIGURATIONS.c.levels,
            VERSIONS.c.channels,
        )
        .join(VERSIONS, CONFIGURATIONS.c.version == VERSIONS.c.id)
        .where(VERSIONS.c.id.in_(ids))
    )
    found = {}
    for number, steps, levels, channels in rows:
        names = json.loads(channels)
        found[number] = _Form(Shape(steps, len(names), len(json.loads(levels))), names)
    return found


def _parts(
    connection: Connection, heads: _Heads, forms: dict[int, _Form], earliest: int
) -> Iterator[_Part]:
    """The pairs of a series that are over, a part at a time; each has pairs of equal forms.

    A window is over once a value at its end or later is known.
    """
    series = int(heads.series[0])
    frequency, latest = connection.execute(
        select(SERIES.c.frequency, func.max(ACTUALS.c.time))
        .join(CHANNELS, CHANNELS.c.series == SERIES.c.id)
        .join(ACTUALS, ACTUALS.c.channel == CHANNELS.c.id)
        .where(SERIES.c.id == series)
        .group_by(SERIES.c.frequency)
    ).one_or_none() or ("", None)
    if latest is None:
        return
    steps = positions(heads.origins, Frequency.parse(frequency), earliest)
    is_over = heads.ends <= latest
    heads, steps = heads.take(is_over), steps[is_over]
    start = 0
    while start < len(steps):
        own = tuple(forms[number] for number in heads.configurations[start].tolist())
        most = min(_PART, max(1, _VALUES // sum(form.values for form in own)))
        window = heads.configurations[start : start + most]
        is_other = (window != window[0]).any(axis=1)
        end = start + (int(is_other.argmax()) if is_other.any() else len(window))
        part = heads.take(slice(start, end))
        known = actuals(connection, series, int(part.origins[0]), int(part.ends.max()) + 1)
        if known is not None:
            bodies = _bodies(connection, part, own)
            yield _part(bodies, own, known, steps[start:end])
        start = end


def _bodies(connection: Connection, heads: _Heads, forms: tuple[_Form, ...]) -> list[Bodies]:
    """The arrays of both forecasts of each pair."""
    ids = heads.forecasts.T.tolist()
    rows = connection.execute(
        select(FORECASTS.c.id, FORECASTS.c.body).where(FORECASTS.c.id.in_({*ids[0], *ids[1]}))
    )
    found: dict[int, bytes] = {row.id: row.body for row in rows}
    return [
        Bodies.read([found[number] for number in own], form.shape)
        for own, form in zip(ids, forms, strict=True)
    ]


def _part(
    bodies: list[Bodies], forms: tuple[_Form, ...], known: Known, origins: NDArray[np.int64]
) -> _Part:
    """Losses of pairs of one form."""
    channels = [form.channels for form in forms]
    common = [name for name in channels[0] if name in channels[1]]
    horizon = min(form.shape.steps for form in forms)
    actual = known.at(bodies[0].times[:, :horizon], common)

    def errors(forecast: NDArray[np.float32], of: int) -> NDArray[np.float64]:
        places = [channels[of].index(name) for name in common]
        return _mean(np.abs(forecast[:, :horizon, places] - actual))

    losses = [errors(each.mean, of) for of, each in enumerate(bodies)]
    return _Part(np.stack(losses), errors(bodies[0].naive, 0), origins, horizon)


def _mean(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over the known errors of each window; NaN without any."""
    known = np.isfinite(errors)
    count = known.sum(axis=(1, 2))
    total = np.where(known, errors, 0.0).sum(axis=(1, 2))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
