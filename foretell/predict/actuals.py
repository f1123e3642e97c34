"""Actual values of a file, as tables for a server's ledger."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretell.bundle.nearness import listed, suggestion
from foretell.client import Client, Counts, ForetellError, ForetellWarning, Written
from foretell.client.answers import together
from foretell.client.cards import ModelCard
from foretell.client.frames import ID, TIME
from foretell.data.errors import DataError
from foretell.data.reading import Reading, read_known
from foretell.data.table import Table
from foretell.timeaxis.timestamps import Timestamps, offset_suffix

_UTC = "UTC"
_PLACE = re.compile(r"(.+)\[(\d+)\]")


class _Rows(NamedTuple):
    """Rows of a series whose times have one UTC offset.

    Attributes:
        series: Name of the series.
        clock: UTC offset of the times in Arrow's notation; None if unknown.
        times: Times in UTC `[rows]`, or of the wall clock if the offset is unknown.
        values: `[rows, channels]`, NaN where unknown.
    """

    series: str
    clock: str | None
    times: Timestamps
    values: NDArray[np.float64]


def read_actuals(
    path: Path, card: ModelCard, how: Reading, unnamed: str
) -> tuple[list[pa.Table], tuple[str, ...]]:
    """Read the actual values of a file, and notes on the file.

    Args:
        path: The file; it has a column for at least one channel that the model forecasts.
        card: Card of the model.
        how: Options for reading the file; the frequency is the model's.
        unnamed: Name of the only series of a file without names.

    Returns:
        A table for each UTC offset, of columns `unique_id`, `ds` and the channels. Rows without any
        value are left out.

    Raises:
        DataError: the file cannot be read, or has no such column or no value.
    """
    for name in how.channels or ():
        if name not in card.targets:
            raise DataError(
                f"{card.name} does not forecast channel {name!r}; {suggestion(name, card.targets)}"
            )
    panel = read_known(path, how.model_copy(update={"frequency": card.frequency}), card.targets)
    rows = [each for table in panel.tables for each in _parts(table, table.series or unnamed)]
    if not rows:
        raise DataError(f"{path}: no value of {listed(panel.channels)}")
    clocks = dict.fromkeys(each.clock for each in rows)
    tables = [
        _table([each for each in rows if each.clock == clock], clock, panel.channels)
        for clock in clocks
    ]
    notes = panel.notes
    if how.channels is None and (
        absent := [name for name in card.targets if name not in panel.channels]
    ):
        notes = (*notes, f"no column of {listed(absent)}")
    return tables, notes


def write_actuals(client: Client, model: str, tables: Iterable[pa.Table]) -> Written:
    """Write tables into the server's ledger.

    Args:
        client: Client of the server.
        model: Name of the model, or name@version.
        tables: Tables of `read_actuals`.

    Raises:
        ForetellError: nothing was written of a table; its place is a column and a time.
    """
    with warnings.catch_warnings():
        # They are in the notes.
        warnings.simplefilter("ignore", ForetellWarning)
        found = [_write(client, model, table) for table in tables]
    series: dict[str | int, Counts] = {}
    for each in found:
        for name, counts in each.series.items():
            series[name] = _sum(series[name], counts) if name in series else counts
    return Written(series, together([each.notes for each in found]))


def _write(client: Client, model: str, table: pa.Table) -> Written:
    try:
        written = client.actuals(table, model=model)
    except ForetellError as error:
        error.place = _placed(error.place, table)
        raise
    for each in written.notes.errors:
        each.place = _placed(each.place, table)
    return written


def _placed(place: str | None, table: pa.Table) -> str | None:
    """A place of a table as the time of its row, after the column of a value."""
    found = _PLACE.fullmatch(place or "")
    if found is None or found[1] not in table.column_names:
        return place
    time: str = table[TIME][int(found[2])].as_py().isoformat()
    return time if found[1] == TIME else f"{found[1]}, {time}"


def _sum(one: Counts, other: Counts) -> Counts:
    return Counts(
        new=one.new + other.new,
        changed=one.changed + other.changed,
        same=one.same + other.same,
    )


def _parts(table: Table, series: str) -> Iterator[_Rows]:
    """The rows of a table that have a value, by UTC offset."""
    values = table.known()
    there = ~np.isnan(values).all(axis=1)
    walls, values, offset = table.timestamps[there], values[there], table.utc_offset
    if not len(walls):
        return
    if offset is None:
        yield _Rows(series, None, walls, values)
        return
    offsets = np.broadcast_to(np.asarray(offset, "m8[us]"), there.shape)[there]
    moments = walls - offsets
    if table.frequency.sub_daily:
        yield _Rows(series, _UTC, moments, values)
        return
    # Days and longer steps are those of the wall clock.
    for own in np.unique(offsets):
        is_own = offsets == own
        yield _Rows(series, offset_suffix(own.item()), moments[is_own], values[is_own])


def _table(rows: Sequence[_Rows], clock: str | None, channels: Sequence[str]) -> pa.Table:
    codes = np.repeat(np.arange(len(rows)), [len(each.times) for each in rows])
    names = pa.array([each.series for each in rows], pa.string())
    times = pa.array(np.concatenate([each.times for each in rows]))
    values = np.concatenate([each.values for each in rows])
    columns = {
        ID: names.take(pa.array(codes)),
        TIME: times.cast(pa.timestamp("us", clock)),
        **{name: pa.array(values[:, place]) for place, name in enumerate(channels)},
    }
    return pa.table(columns)
