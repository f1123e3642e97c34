"""How a table is divided: parts of whole series, found by reading its column of names once."""

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

from foretell.batch.errors import BatchError, RowError
from foretell.batch.tables import Piece, Span, Tables

# What part of the others' rows the last parts have at least.
_SMALLEST = 4


class Part(NamedTuple):
    """Whole series that are forecast together, into one file.

    Attributes:
        number: From 0, in the order of the table.
        series: How many they are.
        spans: Their rows.
    """

    number: int
    series: int
    spans: tuple[Span, ...]

    @property
    def file(self) -> str:
        """The name of its files."""
        return f"part-{self.number:05d}.parquet"

    def place(self, row: int) -> tuple[str, int]:
        """The file that one of all rows is in, and its number there."""
        span = next(each for each in reversed(self.spans) if each.first <= row)
        return span.piece.file, span.row + row - span.first


class _Runs(NamedTuple):
    """Stretches of rows of a piece that are of one series each.

    Attributes:
        rows: Of the piece.
        starts: `[runs]`, their first rows.
        ids: Sums of their names, `[runs]`.
        names: The name of the first and of the last.
    """

    rows: int
    starts: NDArray[np.int64]
    ids: NDArray[np.uint64]
    names: tuple[object, object]


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
    pieces = [piece for file in files for piece in tables.pieces(file)]
    with ThreadPoolExecutor(threads) as pool:
        runs = list(_in_order(pieces, pool.map(partial(_runs, tables), pieces)))
    # Where each piece begins, and where in it the first series does that is not one before.
    first = np.cumsum([0, *(each.rows for each in runs)])
    begins: list[NDArray[np.int64]] = []
    sums: list[NDArray[np.uint64]] = []
    last: tuple[object, ...] = ()
    for at, each in zip(first, runs, strict=False):
        goes_on = bool(each.rows) and (each.names[0],) == last
        begins.append(at + each.starts[goes_on:])
        sums.append(each.ids[goes_on:])
        last = (each.names[1],) if each.rows else last
    _check_whole(tables, pieces, sums, begins, first)
    cuts = _cuts(begins, rows, int(first[-1]), workers)
    starts = np.concatenate(begins) if begins else np.empty(0, np.int64)
    ends = [*cuts[1:], *map(int, first[-1:])][: len(cuts)]
    return [
        Part(
            number,
            int(np.searchsorted(starts, end) - np.searchsorted(starts, begin)),
            tuple(_spans(pieces, first, begin, end)),
        )
        for number, (begin, end) in enumerate(zip(cuts, ends, strict=True))
    ]


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
            found.append(_plain(ids.take(pa.array(begins))))
            rows += len(ids)
    if not rows:
        return _Runs(0, np.empty(0, np.int64), np.empty(0, np.uint64), (None, None))
    names = pa.concat_arrays(found)
    # The same series at the end of what was read at a time and at the begin of what came next.
    new = starts_of(names)
    names = names.take(pa.array(new))
    ends = names[0].as_py(), names[-1].as_py()
    return _Runs(rows, np.concatenate(starts)[new], _sums_of(names), ends)


def _sums_of(names: pa.Array) -> NDArray[np.uint64]:
    if pa.types.is_integer(names.type):
        # They are as good, and Python's of -1 and -2 are the same.
        return np.asarray(names.to_numpy().astype(np.uint64))
    # Python's of a text differ between processes, and are compared within this one.
    return np.fromiter(map(hash, names.to_pylist()), np.int64, len(names)).view(np.uint64)


def _plain(ids: pa.Array) -> pa.Array:
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
    raise BatchError(
        f"{place}: the rows of series {name!r} do not follow each other: it begins again at row "
        f"{begin - _begins(pieces, first)[pieces[number].file]} (from 0); sort the table by "
        f"{tables.columns.id} and time"
    )


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
