"""Writes actual values into the ledger."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from foretell.service.ledger.days import Days
from foretell.service.ledger.ids import Ids, Key
from foretell.service.ledger.store import Store
from foretell.service.ledger.summing import actuals
from foretell.service.ledger.tables import ACTUALS

# Values of a statement: each takes hundreds of bytes as Python's objects.
_PIECE = 10_000


class Observed(NamedTuple):
    """Actual values of a series.

    Attributes:
        key: Namespace, name and frequency of the series.
        channels: Names of its channels.
        times: `[times]`, increasing, in microseconds.
        values: `[times, channels]`, NaN where unknown.
    """

    key: Key
    channels: list[str]
    times: NDArray[np.int64]
    values: NDArray[np.float64]


@dataclass
class Written:
    """How many values were new, other than before, and the same as before."""

    new: int = 0
    changed: int = 0
    same: int = 0


def observe(
    connection: Connection,
    store: Store,
    ids: Ids,
    observed: list[Observed],
    *,
    of_requests: bool = False,
) -> tuple[Days, list[Written]]:
    """Write actual values; later ones win.

    Histories `of_requests` only add unknown values: a request may ask what would be if.

    Returns:
        The days whose sums may change, and how many values of each series were written.
    """
    days = Days()
    written = [Written() for _ in observed]
    series = ids.series(connection, [each.key for each in observed])
    pairs = [(series[each.key], name) for each in observed for name in each.channels]
    channels = ids.channels(connection, pairs)
    for each, count in zip(observed, written, strict=True):
        if not len(each.times):
            continue
        one = series[each.key]
        own = [channels[one, name] for name in each.channels]
        known = actuals(connection, one, int(each.times[0]), int(each.times[-1]) + 1)
        before = np.full(each.values.shape, np.nan)
        if known is not None:
            before = known.at(each.times[:, None], each.channels)[:, 0]
        is_given, is_unknown = ~np.isnan(each.values), np.isnan(before)
        is_new = is_given & is_unknown
        is_changed = is_given & ~is_unknown & (before != each.values) & (not of_requests)
        if (is_written := is_new | is_changed).any():
            _write(connection, store, own, each, is_written)
            days.add(one, each.times[is_written.any(axis=1)])
        count.new, count.changed = int(is_new.sum()), int(is_changed.sum())
        count.same = int(is_given.sum()) - count.new - count.changed
    return days, written


def _write(
    connection: Connection,
    store: Store,
    ids: list[int],
    observed: Observed,
    is_written: NDArray[np.bool_],
) -> None:
    now = int(time.time())
    statement = store.upsert(ACTUALS, ("channel", "time"), ("value", "written"))
    places = np.argwhere(is_written)
    for start in range(0, len(places), _PIECE):
        rows, columns = places[start : start + _PIECE].T
        values = zip(
            columns.tolist(),
            observed.times[rows].tolist(),
            observed.values[rows, columns].tolist(),
            strict=True,
        )
        connection.execute(
            statement,
            [
                {"channel": ids[column], "time": moment, "value": value, "written": now}
                for column, moment, value in values
            ],
        )
