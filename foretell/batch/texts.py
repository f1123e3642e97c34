"""Tables of separated values: read by blocks, with what is no number or time told by its row."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from csv import reader

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute as pc
from pyarrow import csv

# What to do with comments, which other commands pass over.
COMMENTS = (
    "a comment is no row here; take out the lines that begin with # and are no rows, or save the "
    "table as Parquet"
)
_COMMENT_BELOW = re.compile(r"Expected \d+ columns, got \d+: #")
# The column that tells what of a row is wrong, which has a null in its place; no channel's name.
WRONG = "\0wrong"
_WRONG_TYPE = pa.struct([("column", pa.string()), ("text", pa.string())])
_NULLS = pa.array(csv.ConvertOptions().null_values)
# Those that Arrow tries, in its order.
_TIMES = (
    pa.date32(),
    *(pa.timestamp(unit, zone) for unit in ("s", "ns") for zone in (None, "UTC")),
)
# Bytes that are parsed at a time, and that are searched for the end of a line.
_BYTES, _SEARCHED = 4 * 1024 * 1024, 64 * 1024


class Block(io.RawIOBase):
    """The rows of a text that begin in a block of its bytes, after the names of the columns.

    As Arrow has it where it reads by blocks, a row ends where a line does.

    Args:
        source: The text.
        number: Of the block, from 0.
        size: Bytes of a block.
    """

    def __init__(self, source: pa.NativeFile, number: int, size: int) -> None:
        named = _end_of_names(source)
        begin = max(_line(source, number * size), named if number else 0)
        end = max(_line(source, (number + 1) * size), named)
        source.seek(0)
        self._names = io.BytesIO(source.read(named) if number else b"")
        source.seek(begin)
        self._source = source
        self._left = end - begin

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Bytes that come next."""
        if names := self._names.read(size):
            return names
        found: bytes = self._source.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(found)
        return found


def _line(source: pa.NativeFile, at: int) -> int:
    """Where the first line begins after a byte, or the first of all; the end if none does."""
    if at == 0:
        return 0
    source.seek(at)
    while piece := source.read(_SEARCHED):
        if (found := piece.find(b"\n")) >= 0:
            return int(at + found + 1)
        at += len(piece)
    return at


def _end_of_names(source: pa.NativeFile) -> int:
    """Where the columns' names end, which have several lines where a quoted one has."""
    source.seek(0)
    quotes = end = 0
    for line in source.read(_SEARCHED).splitlines(keepends=True):
        quotes, end = quotes + line.count(b'"'), end + len(line)
        if line.strip() and quotes % 2 == 0:
            return end
    return _line(source, 1)


def begins_with_comment(source: pa.NativeFile, *, is_zipped: bool) -> bool:
    """Whether a text begins with a line of `#` that has other cells than those below have."""
    head = pa.input_stream(source, "gzip" if is_zipped else None).read(_SEARCHED)
    # The last line may be cut off.
    whole = head[: head.rfind(b"\n")] if len(head) == _SEARCHED else head
    above = []
    for line in whole.decode("utf-8-sig", "replace").splitlines():
        above.append(line)
        if line and not line.startswith("#"):
            break
    widths = [len(cells) for cells in reader(above) if cells]
    return any(width != widths[0] for width in widths)


def with_remedy(said: str) -> str:
    """Arrow's error, and what to do with a comment among the rows."""
    return f"{said}: {COMMENTS}" if _COMMENT_BELOW.search(said) else said


def open_text(
    source: pa.NativeFile,
    kinds: Mapping[str, pa.DataType],
    names: list[str] | None = None,
    *,
    is_zipped: bool,
) -> csv.CSVStreamingReader:
    """Read a text.

    Args:
        source: Its bytes.
        kinds: Types of columns; of the others, the first rows tell.
        names: Columns that are read; all if None.
        is_zipped: Whether it is gzipped.
    """
    return csv.open_csv(
        pa.input_stream(source, "gzip" if is_zipped else None),
        csv.ReadOptions(block_size=_BYTES, use_threads=False),
        convert_options=csv.ConvertOptions(column_types=kinds, include_columns=names),
    )


def converted(
    columns: Mapping[str, pa.Array], kinds: Mapping[str, pa.DataType]
) -> dict[str, pa.Array]:
    """Columns with what should be of another type made of it, and what is wrong with each row.

    Args:
        columns: `[rows]` each, by name; of the wrong type are texts alone.
        kinds: Types by name.
    """
    found = dict(columns)
    wrong: dict[int, dict[str, str]] = {}
    for name, kind in kinds.items():
        if columns[name].type != kind:
            found[name], rows = parsed(columns[name], kind)
            for row in np.flatnonzero(rows).tolist():
                wrong.setdefault(row, {"column": name, "text": columns[name][row].as_py()})
    count = len(next(iter(columns.values())))
    each = [wrong.get(row) for row in range(count)] if wrong else pa.nulls(count, _WRONG_TYPE)
    return {**found, WRONG: pa.array(each, _WRONG_TYPE)}


def kind_of_times(texts: pa.Array) -> pa.DataType:
    """The type of times that most of some texts say, of each but once; theirs if none says one."""
    each = pc.unique(texts)
    found = [len(each) - parsed(each, kind)[0].null_count for kind in _TIMES]
    return _TIMES[found.index(max(found))] if any(found) else texts.type


def parsed(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, NDArray[np.bool_]]:
    """What texts say, with nulls for those that say nothing, and which of them are wrong."""
    trimmed = pc.utf8_trim_whitespace(texts)
    given = pc.if_else(pc.is_in(trimmed, _NULLS), None, trimmed)
    values = _cast(given, kind)
    wrong = pc.and_(pc.is_valid(given), pc.is_null(values))
    return values, np.asarray(wrong.to_numpy(zero_copy_only=False))


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind)
        half = len(texts) // 2
        return pa.concat_arrays([_cast(texts[:half], kind), _cast(texts[half:], kind)])
