"""A table of many series in parts that a server takes."""

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
    """What a request may have: the defaults of a server, less some room for what is around it.

    Attributes:
        series: At most.
        size: Bytes of its table.
        values: Of its answer.
    """

    series: int = 1024
    size: int = 48 * 1024 * 1024
    values: int = 10_000_000


@dataclass(frozen=True)
class Piece:
    """Whole series of a table.

    Attributes:
        whole: The table.
        ids: Of the series, in order of appearance.
        rows: Theirs, one series after the other; None if they are the whole table, in its order.
        starts: `[series + 1]`, where each begins in `rows`, and the end of the last.
        codes: `[rows of the table]`, of which series each is.
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
        """Two of them; none if it has one series."""
        series = len(self.starts) - 1
        if series < 2:
            return []
        return [self.part(0, series // 2), self.part(series // 2, series)]

    def part(self, first: int, last: int) -> Piece:
        """Some of its series."""
        start, end = self.starts[[first, last]]
        rows = np.argsort(self.codes, kind="stable") if self.rows is None else self.rows
        starts = self.starts[first : last + 1] - start
        return replace(self, ids=self.ids[first:last], rows=rows[start:end], starts=starts)

    def placed(self, place: str | None) -> str | None:
        """A place in its table as one in the whole table."""
        found = _PLACE.match(place or "")
        if self.rows is None or found is None or found[1] not in self.whole.column_names:
            return place
        return f"{found[1]}[{self.rows[int(found[2])]}]"


def told_apart(table: pa.Table) -> Piece:
    """All series of a table; one without a name where the server will refuse the column."""
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
    """Part a piece.

    Args:
        piece: Of a table.
        limits: Of a part.
        values: Of each series, in the answer.

    Returns:
        Parts with the series in order; the piece itself if one request takes it.
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
