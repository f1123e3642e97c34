"""The rows of a part as they are forecast: some hundred series at a time, and of each its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretell.batch.errors import RepeatedError
from foretell.batch.plan import plain, starts_of
from foretell.batch.rows import Rows
from foretell.service.forecast.table import ID

# Of series that are forecast together: enough to fill batches, and fewer than are read at a time.
_ROWS = 128 * 1024


def read_chunks(
    tables: Iterable[Rows], last: int, seen: set[object] | None = None, rows: int = _ROWS
) -> Iterator[Rows]:
    """Put tables together to chunks of whole series.

    Args:
        tables: Rows in their order, those of a series after each other; of one stretch each.
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
    whole: list[Rows] = []
    late: list[Rows] = []
    for table, is_whole in _split(tables, last, seen):
        held = whole if is_whole else late
        held.append(table)
        if sum(map(len, held)) >= rows:
            yield Rows.joined(held)
            held.clear()
    if whole or late:
        yield Rows.joined([*whole, *late])


def _split(
    tables: Iterable[Rows], last: int, seen: set[object] | None
) -> Iterator[tuple[Rows, bool]]:
    """The series that lie within a table together, and each of the others by itself."""
    begun: Rows | None = None
    for rows in tables:
        ids = rows.table.column(ID)
        starts = np.append(starts_of(ids.chunk(0)), len(rows))
        if begun is not None and begun.table.column(ID)[-1].as_py() == ids[0].as_py():
            begun = Rows.joined([begun, rows.part(0, starts[1])])
            begun = begun.part(max(0, len(begun) - last), len(begun))
            starts = starts[1:]
        if seen is not None:
            _check_new(rows, starts[:-1], seen)
        if len(starts) == 1:
            continue
        if begun is not None:
            yield begun, False
        if len(starts) > 2:
            yield _ends(rows, starts[:-1], last), True
        begun = rows.part(max(starts[-2], len(rows) - last), len(rows))
    if begun is not None:
        yield begun, False


def _check_new(rows: Rows, starts: NDArray[np.int64], seen: set[object]) -> None:
    """Make sure that the series that begin in a table did not before.

    Args:
        rows: The table.
        starts: Where they begin.
        seen: Those before; takes these.

    Raises:
        RepeatedError: one did.
    """
    names = plain(rows.table.column(ID).chunk(0).take(pa.array(starts))).to_pylist()
    new = set(names)
    if len(new) == len(names) and seen.isdisjoint(new):
        seen |= new
        return
    for name, start in zip(names, starts.tolist(), strict=True):
        if name in seen:
            raise RepeatedError(name, rows.number(start))
        seen.add(name)


def _ends(rows: Rows, starts: NDArray[np.int64], last: int) -> Rows:
    """The latest rows of each series.

    Args:
        rows: The table.
        starts: Where each begins, and where the last of them ends.
        last: How many.
    """
    lengths = np.diff(starts)
    if lengths.max() <= last:
        return rows.part(starts[0], starts[-1])
    kept = np.minimum(lengths, last)
    begins = np.cumsum(kept) - kept
    skipped = starts[1:] - kept - begins
    taken = rows.table.take(pa.array(np.arange(kept.sum()) + np.repeat(skipped, kept)))
    return Rows(taken, begins, rows.firsts[0] + begins + skipped)
