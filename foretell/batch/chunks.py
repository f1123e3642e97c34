"""The rows of a part as they are forecast: some hundred series at a time, and of each its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretell.batch.errors import RepeatedError
from foretell.batch.plan import plain, starts_of
from foretell.batch.tables import ROW
from foretell.service.api.forecast.table import ID

# Of series that are forecast together: enough to fill batches, and fewer than are read at a time.
_ROWS = 128 * 1024


def read_chunks(
    tables: Iterable[pa.Table], last: int, seen: set[object] | None = None, rows: int = _ROWS
) -> Iterator[pa.Table]:
    """Put tables together to chunks of whole series.

    Args:
        tables: Rows in their order, those of a series after each other.
        last: Rows that are kept of a series, the latest.
        seen: Series that are not to be there; takes all that are, which are not to begin twice. If
            None, that is known.
        rows: Rows of a chunk; more where a table has as many.

    Yields:
        Tables of one piece of memory each. A series that is in several tables comes late, so that
        the many others need not be copied.

    Raises:
        RepeatedError: a series begins twice.
    """
    whole: list[pa.Table] = []
    late: list[pa.Table] = []
    for table, is_whole in _split(tables, last, seen):
        held = whole if is_whole else late
        held.append(table)
        if sum(map(len, held)) >= rows:
            yield _together(held)
            held.clear()
    if whole or late:
        yield _together([*whole, *late])


def _split(
    tables: Iterable[pa.Table], last: int, seen: set[object] | None
) -> Iterator[tuple[pa.Table, bool]]:
    """The series that lie within a table together, and each of the others by itself."""
    begun: pa.Table | None = None
    for table in tables:
        starts = np.append(starts_of(table.column(ID).chunk(0)), len(table))
        if begun is not None and _name(begun, -1) == _name(table, 0):
            begun = _together([begun, table.slice(0, starts[1])])[-last:]
            starts = starts[1:]
        if seen is not None:
            _check_new(table, starts[:-1], seen)
        if len(starts) == 1:
            continue
        if begun is not None:
            yield begun, False
        if len(starts) > 2:
            yield _ends(table, starts[:-1], last), True
        begun = table.slice(max(starts[-2], len(table) - last))
    if begun is not None:
        yield begun, False


def _check_new(table: pa.Table, starts: NDArray[np.int64], seen: set[object]) -> None:
    """Make sure that the series that begin in a table did not before.

    Args:
        table: The table.
        starts: Where they begin.
        seen: Those before; takes these.

    Raises:
        RepeatedError: one did.
    """
    names = plain(table.column(ID).chunk(0).take(pa.array(starts))).to_pylist()
    new = set(names)
    if len(new) == len(names) and seen.isdisjoint(new):
        seen |= new
        return
    for name, start in zip(names, starts, strict=True):
        if name in seen:
            raise RepeatedError(name, table.column(ROW)[int(start)].as_py())
        seen.add(name)


def _name(table: pa.Table, row: int) -> object:
    return table.column(ID)[row].as_py()


def _ends(table: pa.Table, starts: NDArray[np.int64], last: int) -> pa.Table:
    """The latest rows of each series.

    Args:
        table: The table.
        starts: Where each begins, and where the last of them ends.
        last: How many.
    """
    lengths = np.diff(starts)
    if lengths.max() <= last:
        return table.slice(starts[0], starts[-1] - starts[0])
    kept = np.minimum(lengths, last)
    skipped = np.repeat(starts[1:] - np.cumsum(kept), kept)
    return table.take(pa.array(np.arange(kept.sum()) + skipped))


def _together(tables: list[pa.Table]) -> pa.Table:
    joined = pa.concat_tables(tables)
    return joined.unify_dictionaries().combine_chunks() if len(tables) > 1 else joined
