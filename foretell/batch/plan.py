"""How a table is divided: parts of whole series, found by what is in its column of names.

Where files tell that names ascend from one piece to the next, it is enough to read with which each
begins. Otherwise the column is read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute as pc

from foretell.batch.errors import RepeatedError, RowError
from foretell.batch.tables import Name, Piece, Range, Span, Tables

# Rows that are read to find with which series a piece begins, if it is no longer.
_FIRST_ROWS = 8 * 1024
# What part of the others' rows the last parts have at least.
_SMALLEST = 4


class Part(NamedTuple):
    """Whole series that are forecast together, into one file.

    Attributes:
        number: From 0, in the order of the table.
        spans: Their rows.
        is_read: Whether it is known that no series of it begins twice.
        before: The series of the part before that ends where this one begins, if that is inside of
            a piece.
    """

    number: int
    spans: tuple[Span, ...]
    is_read: bool = True
    before: Name | None = None

    @property
    def rows(self) -> int:
        """How many they are."""
        return sum(span.rows for span in self.spans)

    @property
    def file(self) -> str:
        """The name of its files."""
        return f"part-{self.number:05d}.parquet"

    def place(self, row: int) -> tuple[str, int]:
        """The file that one of all rows is in, and its number there."""
        span = next(each for each in reversed(self.spans) if each.first <= row)
        return span.piece.file, span.row + row - span.first


class _Runs(NamedTuple):
    """Stretches of rows of a piece that are of one series each; at least the first two of them.

    Attributes:
        rows: Of the piece.
        starts: `[runs]`, their first rows.
        ids: Sums of their names, `[runs]`; none where not all runs were looked for.
        first: The name of the first; None of a piece without rows.
        last: The only one that may go on in the next piece.
    """

    rows: int
    starts: NDArray[np.int64]
    ids: NDArray[np.uint64]
    first: Name | None
    last: Name | None


_NO_RUNS = _Runs(0, np.empty(0, np.int64), np.empty(0, np.uint64), None, None)


def starts_of(ids: pa.Array) -> NDArray[np.int64]:
    """The rows at which another series begins; the first row is one.

    Args:
        ids: `[rows]`, at least one, none of them null.
    """
    if pa.types.is_integer(ids.type):
        keys = ids.to_numpy()
    else:
        is_text = not pa.types.is_dictionary(ids.type)
        keys = (ids.dictionary_encode() if is_text else ids).indices.to_numpy()
    return np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1])


def divide(
    tables: Tables, files: Sequence[str], rows: int, threads: int, workers: int
) -> list[Part]:
    """Divide a table into parts.

    Args:
        tables: The table.
        files: Its files, in their order.
        rows: That a part has at least, but for the last ones, which have down to a quarter of it:
            all workers end at about the same time.
        threads: That read at a time.
        workers: Who forecast at a time, as far as that is known.

    Raises:
        BatchError: a file cannot be read, or the rows of a series do not follow each other.
    """
    found = [each for file in files for each in tables.pieces(file)]
    pieces = [piece for piece, _ in found]
    with ThreadPoolExecutor(threads) as pool:
        told = _told(tables, found, pool)
        runs = told or list(_in_order(pieces, pool.map(partial(_runs, tables), pieces)))
    # Where each piece begins, and where in it the first series does that is not one before.
    first = np.cumsum([0, *(each.rows for each in runs)])
    begins: list[NDArray[np.int64]] = []
    sums: list[NDArray[np.uint64]] = []
    before: dict[int, Name | None] = {}
    last: Name | None = None
    for at, each in zip(first.tolist(), runs, strict=False):
        goes_on = bool(each.rows) and each.first == last
        begins.append(at + each.starts[goes_on:])
        sums.append(each.ids[goes_on:])
        if goes_on and len(begins[-1]):
            before[int(begins[-1][0])] = last
        last = each.last if each.rows else last
    _check_whole(tables, pieces, sums, begins, first)
    cuts = _cuts(begins, rows, int(first[-1]), workers)
    ends = [*cuts[1:], *map(int, first[-1:])][: len(cuts)]
    return [
        Part(number, tuple(_spans(pieces, first, begin, end)), not told, before.get(begin))
        for number, (begin, end) in enumerate(zip(cuts, ends, strict=True))
    ]


def _told(
    tables: Tables, found: Sequence[tuple[Piece, Range | None]], pool: ThreadPoolExecutor
) -> list[_Runs] | None:
    """With what pieces begin whose names ascend from one to the next, by what files tell of them.

    None if they do not.

    A series may be in several of them only if it is the last of one and the first of the next. What
    a piece has besides is looked at by who forecasts it.
    """
    ranges = [each for _, each in found if each is not None]
    some = [each for each in ranges if each.rows]
    # Names of one table are of one type.
    if len(ranges) < len(found) or any(
        a.high > b.low  # type: ignore[operator]
        for a, b in pairwise(some)
    ):
        return None
    runs = list(pool.map(partial(_begin, tables), [piece for piece, _ in found], ranges))
    last: Name | None = None
    for each, its in zip(runs, ranges, strict=True):
        if each.rows and its.low == last != each.first:
            return None
        last = each.last if each.rows else last
    return runs


def _begin(tables: Tables, piece: Piece, told: Range) -> _Runs:
    if not told.rows:
        return _NO_RUNS
    starts, rows = [0], 0
    name: Name | None = None
    for ids in tables.ids(piece, _FIRST_ROWS):
        name = ids[0].as_py() if name is None else name
        others = [at for at in starts_of(ids)[:2].tolist() if ids[at].as_py() != name]
        if others:
            starts.append(rows + others[0])
            break
        rows += len(ids)
    return _Runs(told.rows, np.array(starts), _NO_RUNS.ids, name, told.high)


def _in_order(pieces: Iterable[Piece], found: Iterator[_Runs]) -> Iterator[_Runs]:
    """What was found of pieces; an error names the row of the file, which only those before tell.

    Raises:
        RowError: a row cannot be read.
    """
    before = 0
    for piece in pieces:
        before = before if piece.group else 0
        try:
            runs = next(found)
        except RowError as error:
            raise error.after(before) from None
        before += runs.rows
        yield runs


def _runs(tables: Tables, piece: Piece) -> _Runs:
    rows, starts, found = 0, [], []
    for ids in tables.ids(piece):
        if ids.null_count:
            row = rows + pc.index(ids.is_null(), True).as_py()
            raise RowError(tables.place.of(piece.file), row, "it has no name of its series")
        if len(ids):
            begins = starts_of(ids)
            starts.append(begins + rows)
            found.append(plain(ids.take(pa.array(begins))))
            rows += len(ids)
    if not rows:
        return _NO_RUNS
    names = pa.concat_arrays(found)
    # The same series at the end of what was read at a time and at the begin of what came next.
    new = starts_of(names)
    names = names.take(pa.array(new))
    first, last = names[0].as_py(), names[-1].as_py()
    return _Runs(rows, np.concatenate(starts)[new], _sums_of(names), first, last)


def _sums_of(names: pa.Array) -> NDArray[np.uint64]:
    if pa.types.is_integer(names.type):
        # They are as good, and Python's of -1 and -2 are the same.
        return np.asarray(names.to_numpy().astype(np.uint64))
    # Python's of a text differ between processes, and are compared within this one.
    return np.fromiter(map(hash, names.to_pylist()), np.int64, len(names)).view(np.uint64)


def plain(ids: pa.Array) -> pa.Array:
    """The same without a dictionary."""
    return ids.dictionary_decode() if pa.types.is_dictionary(ids.type) else ids


def _check_whole(
    tables: Tables,
    pieces: list[Piece],
    sums: list[NDArray[np.uint64]],
    begins: list[NDArray[np.int64]],
    first: NDArray[np.int64],
) -> None:
    """Make sure that no series begins twice.

    Raises:
        BatchError: one does.
    """
    every = np.concatenate([*sums, np.empty(0, np.uint64)])
    order = np.argsort(every, kind="stable")
    again = np.flatnonzero(every[order][1:] == every[order][:-1]) + 1
    if not len(again):
        return
    begin = int(np.concatenate(begins)[order[again].min()])
    number = int(np.searchsorted(first, begin, "right")) - 1
    row = begin - int(first[number])
    at = 0
    for ids in tables.ids(pieces[number]):
        if row < at + len(ids):
            break
        at += len(ids)
    place = tables.place.of(pieces[number].file)
    name = ids[row - at].as_py()
    row = begin - _begins(pieces, first)[pieces[number].file]
    raise RepeatedError(name, begin).at(place, row, tables.columns.id)


def _begins(pieces: list[Piece], first: NDArray[np.int64]) -> dict[str, int]:
    """The row with which each file begins."""
    files = [piece.file for piece in pieces]
    return dict(zip(reversed(files), reversed(first[:-1].tolist()), strict=True))


def _cuts(begins: list[NDArray[np.int64]], rows: int, end: int, workers: int) -> list[int]:
    """The rows at which parts begin; see `divide`."""
    firsts = [int(each[0]) for each in begins if len(each)]
    cuts = firsts[:1]
    for begin in firsts[1:]:
        share = (end - cuts[-1]) // (2 * workers)
        if begin - cuts[-1] >= min(rows, max(rows // _SMALLEST, share)):
            cuts.append(begin)
    return cuts


def _spans(pieces: list[Piece], first: NDArray[np.int64], begin: int, end: int) -> Iterator[Span]:
    begins = _begins(pieces, first)
    for piece, (start, stop) in zip(pieces, pairwise(first.tolist()), strict=True):
        row = start - begins[piece.file]
        low, high = max(begin, start), min(end, stop)
        if low < high:
            yield Span(piece, low - start, high - low, row + low - start, low)
