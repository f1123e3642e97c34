"""Chunks: some whole series of a part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretell.batch.errors import BatchError
from foretell.batch.plan import Part, plain, starts_of
from foretell.batch.tables import Table
from foretell.service.forecast.columns import ID


class Chunk(NamedTuple):
    """Whole series with their latest rows.

    Attributes:
        table: Times if there are any, channels, covariates, and for CSV the wrong cells `[rows]`;
            contiguous.
        names: Names of the series `[series]`.
        begins: First row of each series `[series]`.
        ends: Row after the last one of each series `[series]`.
        row: Number in the part of the first row of `table`.
    """

    table: pa.Table
    names: pa.Array
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    row: int


def read_chunks(table: Table, part: Part, last: int, most: int) -> Iterator[Chunk]:
    """Read the series of a part in order, `most` at a time, with the `last` rows of each.

    Raises:
        BatchError: the rows cannot be read.
    """
    held: pa.Table | None = None
    end = 0
    for rows in _rows(table, part):
        bounds = np.append(starts_of(rows.column(ID).chunk(0)), len(rows))
        if held is not None:
            if held.column(ID)[-1].as_py() == rows.column(ID)[0].as_py():
                held = pa.concat_tables([held, rows.slice(0, bounds[1])])
                held = held.slice(max(0, len(held) - last)).unify_dictionaries().combine_chunks()
                bounds = bounds[1:]
            if len(bounds) > 1:
                yield _chunk(held, np.array([0, len(held)]), last, end + bounds[0] - len(held))
        for first in range(0, len(bounds) - 2, most):
            own = bounds[first : min(first + most + 1, len(bounds) - 1)]
            yield _chunk(rows.slice(own[0], own[-1] - own[0]), own - own[0], last, end + own[0])
        if len(bounds) > 1:
            # The last series may continue in the next rows.
            held = rows.slice(max(bounds[-2], len(rows) - last))
        end += len(rows)
    if held is not None:
        yield _chunk(held, np.array([0, len(held)]), last, end - len(held))


def _rows(table: Table, part: Part) -> Iterator[pa.Table]:
    for span in part.spans:
        begin, end = span.skipped, span.skipped + span.rows
        at = 0
        for rows in table.rows(span.piece):
            some = rows.slice(max(begin - at, 0), max(min(end, at + len(rows)) - max(begin, at), 0))
            if len(some):
                yield some
            at += len(rows)
            if at >= end:
                break
        if at < end:
            raise BatchError(
                f"{table.place.of(span.piece.file)}: has fewer rows than when the run began"
            )


def _chunk(rows: pa.Table, bounds: NDArray[np.int64], last: int, row: int) -> Chunk:
    begins, ends = bounds[:-1], bounds[1:]
    names = plain(rows.column(ID).chunk(0).take(pa.array(begins)))
    return Chunk(rows.drop_columns([ID]), names, np.maximum(begins, ends - last), ends, row)
