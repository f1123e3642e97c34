"""Reads the stored forecasts of a series, and what came true."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Select, func, select

from foretell.service.errors import InvalidInputError
from foretell.service.ledger.reading import (
    COLUMNS,
    Configurations,
    Selection,
    names_of,
    of_times,
    of_versions,
    one_series,
)
from foretell.service.ledger.summing import SELECT_FORECASTS, actuals, forecasts
from foretell.service.ledger.tables import (
    ACTUALS,
    CHANNELS,
    CONFIGURATIONS,
    FORECASTS,
    VERSIONS,
)

# Most values in an answer: of all forecasts, and the actual values.
MOST_VALUES = 2_000_000
# Rows that are read together.
_ROWS = 1000


def trajectories(connection: Connection, selection: Selection, most: int) -> dict[str, Any]:
    """The latest forecasts of a series, and its actual values over their times.

    Returns:
        `namespace` and `frequency` of the series, None without one; `forecasts` and `actuals`, as
        of `api.ledger_types.Trajectories`.

    Raises:
        InvalidInputError: several series have the name, or the answer would be too large.
    """
    answer: dict[str, Any] = {
        "namespace": None,
        "frequency": None,
        "forecasts": [],
        "actuals": {"timestamps": [], "values": {}},
    }
    where = of_versions(selection)
    if selection.channel is not None:
        where.append(VERSIONS.c.id.in_(_with_channel(connection, selection)))
    series = one_series(connection, selection, _select(FORECASTS.c.series).where(*where))
    if series is None:
        return answer
    where += [FORECASTS.c.series == series, *of_times(selection)]
    [(_, answer["namespace"], answer["frequency"])] = names_of(connection, [series]).values()
    heads = _latest(connection, where, most, selection.overlapping)
    if not heads:
        return answer
    channels = None if selection.channel is None else [selection.channel]
    first, end = heads[0].origin, max(head.ends for head in heads) + 1
    configurations = Configurations()
    values = sum(
        head.steps * (len(each.levels) + 2) * len(channels or each.channels)
        for head in heads
        for each in [configurations.of(head)]
    )
    _check_size(values + _count_actuals(connection, series, first, end, channels))
    answer["forecasts"] = [_trajectory(connection, head, selection.channel) for head in heads]
    known = actuals(connection, series, first, end)
    if known is not None:
        shown = [name for name in known.channels if channels is None or name in channels]
        own = known.values[:, [known.channels.index(name) for name in shown]]
        is_shown = np.isfinite(own).any(axis=1)
        answer["actuals"] = {
            "timestamps": _labels(known.times[is_shown]),
            "values": {
                name: np.ascontiguousarray(own[is_shown, place]) for place, name in enumerate(shown)
            },
        }
    return answer


def _select(*columns: ColumnElement[Any]) -> Select[Any]:
    """Forecasts with their configurations and versions."""
    return (
        select(*columns)
        .join_from(FORECASTS, CONFIGURATIONS, FORECASTS.c.configuration == CONFIGURATIONS.c.id)
        .join(VERSIONS, CONFIGURATIONS.c.version == VERSIONS.c.id)
    )


def _with_channel(connection: Connection, selection: Selection) -> list[int]:
    """Ids of the model's versions that forecast the chosen channel."""
    rows = connection.execute(
        select(VERSIONS.c.id, VERSIONS.c.channels).where(VERSIONS.c.model == selection.model)
    )
    return [row.id for row in rows if selection.channel in json.loads(row.channels)]


def _check_size(values: int) -> None:
    if values > MOST_VALUES:
        raise InvalidInputError(
            f"the answer would have {values:,} values, at most {MOST_VALUES:,} are allowed; choose "
            "a channel, a smaller limit, or days by since and until",
            param="limit",
        )


def _count_actuals(
    connection: Connection, series: int, first: int, end: int, channels: list[str] | None
) -> int:
    where = [CHANNELS.c.series == series, ACTUALS.c.time >= first, ACTUALS.c.time < end]
    if channels is not None:
        where.append(CHANNELS.c.name.in_(channels))
    count = connection.execute(
        select(func.count())
        .select_from(ACTUALS)
        .join(CHANNELS, ACTUALS.c.channel == CHANNELS.c.id)
        .where(*where)
    ).scalar_one()
    return int(count)


def _trajectory(connection: Connection, head: Any, channel: str | None) -> dict[str, Any]:  # noqa: ANN401 - a row
    """A stored forecast, as of `api.ledger_types.Trajectory`."""
    row = connection.execute(
        SELECT_FORECASTS.add_columns(
            FORECASTS.c.answer,
            CONFIGURATIONS.c.calibration,
            VERSIONS.c.version.label("name"),
        ).where(FORECASTS.c.id == head.id)
    ).one()
    [stored] = forecasts([row])
    bodies = stored.bodies
    places = [
        place for place, name in enumerate(stored.channels) if channel is None or name == channel
    ]

    def of(values: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.ascontiguousarray(values[:, places])

    return {
        "id": row.answer,
        "version": row.name,
        "calibration": row.calibration,
        "origin": _labels(np.array([head.origin]))[0],
        "timestamps": _labels(bodies.times[0]),
        "channels": [stored.channels[place] for place in places],
        "mean": of(bodies.mean[0]),
        "naive": of(bodies.naive[0]),
        "quantiles": {
            f"{level:g}": of(values)
            for level, values in zip(stored.levels, bodies.quantiles[0], strict=True)
        },
    }


def _latest(
    connection: Connection, where: list[ColumnElement[bool]], most: int, overlapping: bool
) -> list[Any]:
    """The latest forecasts, the oldest first, without their bodies, which are large."""
    columns = (
        *(FORECASTS.c.id, FORECASTS.c.version, FORECASTS.c.origin, FORECASTS.c.ends),
        *(CONFIGURATIONS.c.steps, *COLUMNS),
    )
    statement = (
        _select(*columns).where(*where).order_by(FORECASTS.c.origin.desc(), FORECASTS.c.made.desc())
    )
    found: list[Any] = []
    # The origin of the oldest one so far, by version.
    oldest: dict[int, int] = {}
    with connection.execute(statement, execution_options={"yield_per": _ROWS}) as rows:
        for row in rows:
            if len(found) == most:
                break
            if overlapping or row.ends <= oldest.get(row.version, row.ends):
                found.append(row)
                oldest[row.version] = row.origin
    return found[::-1]


def _labels(moments: NDArray[np.int64]) -> list[str]:
    """Times in ISO 8601, without an offset: they are in UTC if the series has one."""
    return [str(each).removesuffix(".000000") for each in moments.view("datetime64[us]")]
