"""Writes forecasts into the ledger."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from foretell.bundle.manifest import Manifest
from foretell.service.arrays import FORECAST, HISTORY, MOMENTS, QUANTILES, SPACING, Arrays
from foretell.service.engine.intervals import Intervals
from foretell.service.engine.ipc import Remember
from foretell.service.ledger.bodies import Bodies
from foretell.service.ledger.days import Days
from foretell.service.ledger.ids import Ids, Key
from foretell.service.ledger.inserting import Row, upsert
from foretell.service.ledger.scores import DECIMALS
from foretell.service.ledger.store import Store
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.season import season_of

_LARGEST = np.finfo(np.float32).max
# Levels of forecasts whose requests asked for none: the median, and the interval of 80%.
_LEVELS = (0.1, 0.5, 0.9)
# Rows of a history in the digest of an input: versions may read histories of different lengths.
_ROWS = 32


class Record(NamedTuple):
    """Forecasts of an answer, with what the ledger knows of their model."""

    message: Remember
    arrays: Arrays
    manifest: Manifest
    intervals: Intervals

    @property
    def shape(self) -> Key:
        """The key of records that are written together."""
        message = self.message
        forecast, history = self.arrays[FORECAST].shape[1:], self.arrays[HISTORY].shape[1:]
        return (
            id(self.manifest),
            message.levels,
            message.calibration,
            QUANTILES in self.arrays,
            SPACING in self.arrays,
            *forecast,
            *history,
        )

    @property
    def series(self) -> list[Key]:
        """The keys of its series."""
        message, frequency = self.message, _canonical(self.manifest.frequency)
        return [(message.namespace, name, frequency) for name in message.names]

    @property
    def origins(self) -> list[int]:
        """Times of the last rows of its histories."""
        origins: list[int] = moments([self], 1, self.arrays[FORECAST].shape[1])[:, 0].tolist()
        return origins


def moments(records: Sequence[Record], before: int, steps: int) -> NDArray[np.int64]:
    """Times of the last rows of the histories and of the steps, `[forecasts, before + steps]`."""
    if SPACING in records[0].arrays:
        last, distance = np.concatenate([record.arrays[SPACING] for record in records]).T[..., None]
        times: NDArray[np.int64] = last + distance * np.arange(1 - before, steps + 1)
        return times
    return np.concatenate([record.arrays[MOMENTS][:, -before - steps :] for record in records])


@lru_cache
def _canonical(frequency: str) -> str:
    return str(Frequency.parse(frequency).canonical)


def before_hindsight(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Cut records before each one that forecasts a series from an earlier origin than others did.

    Histories of the others may have what it forecasts.
    """
    part: list[Record] = []
    latest: dict[Key, int] = {}
    for record in records:
        own = [*zip(record.series, record.origins, strict=True)]
        if any(origin < latest.get(key, origin) for key, origin in own):
            yield part
            part, latest = [], {}
        part.append(record)
        for key, origin in own:
            latest[key] = max(origin, latest.get(key, origin))
    if part:
        yield part


def keep(
    connection: Connection, store: Store, ids: Ids, records: Sequence[Record]
) -> tuple[Days, int]:
    """Write forecasts (`inserting.upsert`).

    Returns:
        The days whose sums may change, and how many forecasts were late: they did not replace
        earlier ones.
    """
    groups: defaultdict[Key, list[int]] = defaultdict(list)
    for place, record in enumerate(records):
        groups[record.shape].append(place)
    days = Days()
    parts = [_rows(connection, ids, records, places, days) for places in groups.values()]
    # The places of the last of equal forecasts.
    last: dict[Key, int] = {}
    for part in parts:
        for key, (place, _) in part.items():
            last[key] = max(place, last.get(key, place))
    late = 0
    for part in parts:
        if rows := [row for key, (place, row) in part.items() if place == last[key]]:
            late += len(rows) - upsert(connection, store, rows)
    return days, late


def _rows(
    connection: Connection, ids: Ids, every: Sequence[Record], places: Sequence[int], days: Days
) -> dict[Key, tuple[int, Row]]:
    """Rows of records of one shape by one version, with their places.

    The keys are the version, the series and the origin; equal forecasts have the row of the last.
    """
    records = [every[place] for place in places]
    first = records[0]
    manifest = first.manifest
    steps = first.arrays[FORECAST].shape[1]
    times = moments(records, 1, steps)
    levels, bodies = _bodies(records, times[:, 1:])
    channels = json.dumps(manifest.targets)
    key = (manifest.name, manifest.version, channels, first.message.digest)
    version = ids.versions(connection, [key])[key]
    rounded = json.dumps([round(level, DECIMALS) for level in levels])
    setting = (version, steps, rounded, first.message.calibration)
    configuration = ids.configurations(connection, [setting])[setting]
    keys = [key for record in records for key in record.series]
    series = ids.series(connection, keys)
    answers = [
        f"{record.message.answer}-{index}" for record in records for index in record.message.indexes
    ]
    made = int(time.time())
    days.add_times(np.array([series[key] for key in keys]), times[:, 1:])
    return {
        (version, series[key], origin): (
            place,
            Row(version, series[key], origin, configuration, ends, answer, made, read, body),
        )
        for place, key, origin, ends, answer, read, body in zip(
            [place for place in places for _ in every[place].message.names],
            keys,
            times[:, 0].tolist(),
            times[:, -1].tolist(),
            answers,
            _inputs(records),
            bodies.write(),
            strict=True,
        )
    }


def _inputs(records: Sequence[Record]) -> list[int]:
    """Digests of the last rows of the histories, the same for each order of the channels."""
    targets = records[0].manifest.targets
    order = sorted(range(len(targets)), key=targets.__getitem__)
    own = [record.arrays[HISTORY][:, -_ROWS:, order] for record in records]
    # Products with odd numbers, modulo 2 ** 64.
    bits = np.concatenate(own).view(np.uint32).astype(np.uint64)
    factors = np.random.default_rng(0).integers(0, 1 << 63, bits.shape[1:], np.uint64)
    products = bits * (2 * factors + np.uint64(1))
    found: list[int] = products.sum(axis=(1, 2), dtype=np.uint64).view(np.int64).tolist()
    return found


def _bodies(
    records: Sequence[Record], times: NDArray[np.int64]
) -> tuple[tuple[float, ...], Bodies]:
    """The levels, and the arrays to store."""
    first = records[0]
    manifest, intervals = first.manifest, first.intervals
    history, forecast = (
        np.concatenate([record.arrays[name] for record in records]) for name in (HISTORY, FORECAST)
    )
    steps = forecast.shape[1]
    scales = np.full((len(history), 1, history.shape[2]), np.nan)
    if intervals.calibration is not None:
        scales = intervals.scale(history)
    levels = first.message.levels
    if QUANTILES in first.arrays:
        quantiles = np.concatenate([record.arrays[QUANTILES] for record in records])
    elif intervals.calibration is not None and steps <= intervals.steps:
        lowest, highest = intervals.extremes(steps)
        levels = tuple(level for level in _LEVELS if lowest <= level <= highest)
        around = intervals.around(forecast, scales, levels).swapaxes(0, 1)
        # The client asked for none of these, so they may be too large for float32.
        quantiles = np.clip(around, -_LARGEST, _LARGEST)
    else:
        levels = ()
        quantiles = np.empty((len(forecast), 0, *forecast.shape[1:]), np.float32)
    # Without a season the last value is repeated.
    season = season_of(manifest.step, history.shape[1]) or 1
    repeated = history[:, -season:][:, :steps]
    return levels, Bodies(scales[:, 0], times, forecast, repeated, quantiles)
