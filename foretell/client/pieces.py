"""Parts of a table of many series, within the limits of a server."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretell.client.frames import ID

_PLACE = re.compile(r"(.+)\[(\d+)\]$")


@dataclass(frozen=True)
class Limits:
    """Limits of a request: a server's defaults, with some room for overhead.

    Attributes:
        series: Largest number of series.
        size: Largest size of the table in bytes.
        values: Largest number of values in the answer.
    """

    series: int = 1024
    size: int = 48 * 1024 * 1024
    values: int = 10_000_000


@dataclass(frozen=True)
class Piece:
    """Whole series of a table.

    Attributes:
        whole: The whole table.
        ids: Names of the series, in order of appearance.
        rows: Rows of the series, one series after the other; None for all rows in their order.
        starts: Start of each series in `rows`, and the end of the last `[series + 1]`.
        codes: Number of the series of each row of the table `[rows]`.
    """

    whole: pa.Table
    ids: pa.Array
    rows: NDArray[np.int64] | None
    starts: NDArray[np.int64]
    codes: NDArray[np.int64]

    @property
    def table(self) -> pa.Table:
        """The rows."""
        return self.whole if self.rows is None else self.whole.take(self.rows)

    def halves(self) -> list[Piece]:
        """Both halves of the series; empty if there is one series."""
        series = len(self.starts) - 1
        if series < 2:
            return []
        return [self.part(0, series // 2), self.part(series // 2, series)]

    def part(self, first: int, last: int) -> Piece:
        """The series from `first` to before `last`."""
        start, end = self.starts[[first, last]]
        rows = np.argsort(self.codes, kind="stable") if self.rows is None else self.rows
        starts = self.starts[first : last + 1] - start
        return replace(self, ids=self.ids[first:last], rows=rows[start:end], starts=starts)

    def placed(self, place: str | None) -> str | None:
        """A place of the piece as a place of the whole table."""
        found = _PLACE.match(place or "")
        if self.rows is None or found is None or found[1] not in self.whole.column_names:
            return place
        return f"{found[1]}[{self.rows[int(found[2])]}]"


def by_series(table: pa.Table) -> Piece:
    """All series of a table; one unnamed series if the server will refuse the column of names."""
    ids = table[ID]
    try:
        if pa.types.is_dictionary(ids.type):
            ids = ids.cast(ids.type.value_type)
        coded = ids.combine_chunks().dictionary_encode()
    except pa.ArrowNotImplementedError:
        coded = pa.array([None]).dictionary_encode()
    if coded.null_count or not len(coded):
        rows = np.zeros(table.num_rows, np.int64)
        return Piece(table, pa.array([""]), None, np.array([0, table.num_rows]), rows)
    codes = coded.indices.to_numpy()
    return Piece(table, coded.dictionary, None, np.append(0, np.cumsum(np.bincount(codes))), codes)


def parts(piece: Piece, limits: Limits, values: int) -> list[Piece]:
    """Divide a piece.

    Args:
        piece: The piece.
        limits: Limits of each part.
        values: Number of values in the answer for each series.

    Returns:
        Parts with the series in order; the piece itself if it fits into one request.
    """
    ends, size = piece.starts[1:], piece.whole.nbytes
    most = max(1, min(limits.series, limits.values // max(values, 1)))
    if len(ends) <= most and size <= limits.size:
        return [piece]
    rows = limits.size * piece.whole.num_rows // max(size, 1)
    sorted_piece = piece.part(0, len(ends))
    found, first = [], 0
    while first < len(ends):
        fitting = np.searchsorted(ends, piece.starts[first] + rows, side="right")
        last = max(first + 1, min(int(fitting), first + most))
        found.append(sorted_piece.part(first, last))
        first = last
    return found
