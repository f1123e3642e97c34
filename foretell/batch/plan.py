"""Division of a table into parts of whole series, by its column of names."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute as pc

from foretell.batch.errors import BatchError
from foretell.batch.tables import Piece, Table
from foretell.service.forecast.columns import ID

# The last parts have at least this fraction of the rows of the others.
_SMALLEST = 4
# Rows at which runs begin (consecutive rows of one series), and names of their series.
_Runs = tuple[NDArray[np.int64], pa.Array]


class Span(NamedTuple):
    """Rows of a piece after `skipped` ones."""

    piece: Piece
    skipped: int
    rows: int


class Part(NamedTuple):
    """Whole series that are forecast into one file; numbered in the table's order."""

    number: int
    spans: tuple[Span, ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(span.rows for span in self.spans)

    @property
    def file(self) -> str:
        """Name of the part's files."""
        return f"part-{self.number:05d}.parquet"

    def place(self, row: int) -> tuple[str, int]:
        """File of a row of the part, and number of the row in it."""
        for span in self.spans:
            if row < span.rows:
                return span.piece.file, span.piece.row + span.skipped + row
            row -= span.rows
        raise IndexError(row)


def starts_of(ids: pa.Array) -> NDArray[np.int64]:
    """The rows at which a series begins, with the first row.

    Args:
        ids: Names `[rows]`; at least one, and no nulls.
    """
    if pa.types.is_integer(ids.type):
        keys = ids.to_numpy()
    else:
        is_text = not pa.types.is_dictionary(ids.type)
        keys = (ids.dictionary_encode() if is_text else ids).indices.to_numpy()
    return np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1])


def plain(ids: pa.Array) -> pa.Array:
    """Names without a dictionary."""
    return ids.dictionary_decode() if pa.types.is_dictionary(ids.type) else ids


def divide(table: Table, rows: int, threads: int, workers: int) -> list[Part]:
    """Divide a table into parts.

    Args:
        table: The table.
        rows: Smallest number of rows of a part. The last parts are smaller, down to a quarter, so
            that all workers end at about the same time.
        threads: Number of threads that read.
        workers: Expected number of workers.

    Raises:
        BatchError: a file cannot be read, there are no rows, or the rows of a series are not
            consecutive.
    """
    pieces = table.pieces()
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(partial(_runs, table), pieces))
    bounds = list(accumulate((rows for rows, _ in found), initial=0))
    some = [
        (begin + starts, names)
        for begin, (_, runs) in zip(bounds, found, strict=False)
        for starts, names in runs
    ]
    if not some:
        raise BatchError(f"{table.place}: there are no rows")
    starts, names = _joined(some)
    whole = Part(0, tuple(_spans(pieces, bounds, 0, bounds[-1])))
    _check_whole(table, names, starts, whole)
    of_piece = np.searchsorted(bounds, starts, "right")
    firsts = starts[np.unique(of_piece, return_index=True)[1]].tolist()
    cuts = [*_cuts(firsts, rows, whole.rows, workers), whole.rows]
    return [
        Part(number, tuple(_spans(pieces, bounds, *each)))
        for number, each in enumerate(pairwise(cuts))
    ]


def _runs(table: Table, piece: Piece) -> tuple[int, list[_Runs]]:
    """The number of rows of a piece, and its runs up to the first series that appears again."""
    rows, some, count, checked = 0, [], 0, 0
    for ids in table.ids(piece):
        if ids.null_count:
            row = piece.row + rows + pc.index(ids.is_null(), True).as_py()
            raise BatchError(
                f"{table.place.of(piece.file)}: row {row} (from 0): the series name is missing"
            )
        if len(ids):
            begins = starts_of(ids)
            some.append((begins + rows, _wide(plain(ids.take(pa.array(begins))))))
            rows += len(ids)
            count += len(begins)
            if count > 2 * checked:
                # A table sorted by time has a run for each row; stop before they fill memory.
                starts, names = _joined(some)
                if len(again := _again(names)):
                    upto = np.arange(again[0] + 1)
                    return rows, [(starts[upto], names.take(pa.array(upto)))]
                some, count, checked = [(starts, names)], len(names), len(names)
    return rows, some


def _wide(names: pa.Array) -> pa.Array:
    """Names with 64-bit offsets, so that joining them cannot overflow."""
    return names.cast(pa.large_string()) if pa.types.is_string(names.type) else names


def _joined(some: Sequence[_Runs]) -> _Runs:
    """Join consecutive lists of runs; the last run of a list may continue in the next list."""
    starts = np.concatenate([each for each, _ in some])
    names = pa.concat_arrays([each for _, each in some])
    new = starts_of(names)
    return starts[new], names.take(pa.array(new))


def _again(names: pa.Array) -> NDArray[np.int64]:
    """The runs whose series has an earlier run."""
    # Each name is numbered at its first appearance.
    numbers = names.dictionary_encode().indices.to_numpy()
    return np.flatnonzero(numbers != np.arange(len(numbers)))


def _check_whole(table: Table, names: pa.Array, starts: NDArray[np.int64], whole: Part) -> None:
    """Check that each series has one run in the whole table."""
    if len(again := _again(names)):
        file, row = whole.place(int(starts[again[0]]))
        raise BatchError(
            f"{table.place.of(file)}: the rows of series {names[int(again[0])].as_py()!r} are not "
            f"consecutive: it begins again at row {row} (from 0); sort the table by "
            f"{table.names[ID]} and time"
        )


def _cuts(firsts: list[int], rows: int, end: int, workers: int) -> Iterator[int]:
    """The rows at which parts begin, chosen from the first start of a series in each piece."""
    begin = firsts[0]
    yield begin
    for first in firsts[1:]:
        share = (end - begin) // (2 * workers)
        if first - begin >= min(rows, max(rows // _SMALLEST, share)):
            begin = first
            yield begin


def _spans(pieces: Sequence[Piece], bounds: Sequence[int], begin: int, end: int) -> Iterator[Span]:
    """The spans of the rows from `begin` to before `end`, in pieces with these bounds."""
    for at in range(bisect_right(bounds, begin) - 1, bisect_left(bounds, end)):
        low, high = max(begin, bounds[at]), min(end, bounds[at + 1])
        if low < high:
            yield Span(pieces[at], low - bounds[at], high - low)
