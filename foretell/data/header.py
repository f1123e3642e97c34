"""The start of the table in a text file: its separator and the names of its columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.data.cells import plain_name
from foretell.data.errors import DataError
from foretell.data.numbers import MARKS, Numbers, read_numbers
from foretell.data.roles import TIMES
from foretell.data.timestamps import looks_like_timestamp

SEPARATORS = ",;\t|"
COMMENT = "#"
# Number of records, without blank ones, that may hold the names of the columns.
_HEAD = 20
# Most lines of a record; more mean a quote that is never closed.
_MOST_LINES = 50
# Number of columns whose cells distinguish names from data.
_TELLING = 50


class Record(NamedTuple):
    """A row of a text file; a quoted cell may span several lines.

    Attributes:
        line: Number of the first line, from 0.
        start: Position of the row in the text.
        end: Position of the next row.
        cells: Cells of the row.
    """

    line: int
    start: int
    end: int
    cells: list[str]


@dataclass(frozen=True)
class Header:
    """The facts about a table that are known before its rows are read.

    Attributes:
        separator: Separator of the cells.
        names: Names of the columns; empty for columns without a name.
        line: Line of the names, from 0.
        first: First line of data, from 0.
        start: Position of the data in the text.
        notes: Notes on skipped lines.
        comments: Number of lines above the data that begin with `#`.
    """

    separator: str
    names: list[str]
    line: int
    first: int
    start: int
    notes: list[str]
    comments: int


def records(text: str, separator: str, start: int = 0) -> Iterator[Record]:
    """The rows of a text from a position on; a line with an unclosed quote is one row."""
    number, at = 0, start
    while at < len(text):
        ends = [at]
        reader = csv.reader(_lines(text, ends), delimiter=separator, skipinitialspace=True)
        try:
            for cells in reader:
                yield Record(number, at, ends[-1], cells)
                number, at = number + len(ends) - 1, ends[-1]
                ends[:] = [at]
        except csv.Error:
            cells = text[at : ends[1]].rstrip("\r\n").split(separator)
            yield Record(number, at, ends[1], cells)
            number, at = number + 1, ends[1]


def _lines(text: str, ends: list[int]) -> Iterator[str]:
    """Yield the lines of a record and append their ends to `ends`."""
    while (at := ends[-1]) < len(text):
        if len(ends) > _MOST_LINES:
            raise csv.Error
        ends.append(text.find("\n", at) + 1 or len(text))
        yield text[at : ends[-1]]


def find_header(path: Path, text: str) -> Header:
    """Find the names of the columns.

    They are in the first record, or below records that do not belong to the table. In that case
    they are in the first record that has as many cells as most later ones, more than a title, and
    no numbers. Records above it that begin with `#` are comments, except the last one before data.

    Raises:
        DataError: the text is empty.
    """
    heads = {separator: _head(text, separator) for separator in SEPARATORS}

    def fit(separator: str) -> tuple[int, int]:
        """The number of records with the most frequent width, and that width."""
        widths = [len(record.cells) for record in heads[separator][1]]
        width = max(widths, key=widths.count, default=0)
        return (widths.count(width), width) if width > 1 else (0, 1)

    separator = max(SEPARATORS, key=fit)
    width = fit(separator)[1]
    comments, found = heads[separator]
    if not found:
        raise DataError(f"{path}: the file is empty")
    whole = [
        i
        for i, (_, _, _, cells) in enumerate(found)
        if len(cells) == width
        and (not cells[0] or any(cells[1:]))
        and not cells[0].startswith(COMMENT)
    ]
    at = whole[0] if whole else 0
    above = [*comments, *found[:at]]
    notes = []
    marked = _marked_names(above, found[at], width)
    if marked:
        above.remove(marked[0])
        name = marked[0].cells[0].removeprefix(COMMENT).strip() or COMMENT
        below = found[at:]
        header = marked[0]._replace(cells=[name, *marked[0].cells[1:]])
        if len(marked) > 1:
            notes.append(
                f"{len(marked)} lines with {COMMENT} may be the columns' names, line "
                f"{header.line + 1} is read"
            )
    else:
        if len(found[0].cells) > width or holds_data(found[at].cells):
            at = 0
            above = list(comments)
        header, below = found[at], found[at + 1 :]
    if any(not record.cells[0].startswith(COMMENT) for record in above):
        notes.append(f"the columns' names are in line {header.line + 1}; lines above are skipped")
    names = header.cells
    more = _more_names(names, below)
    if more:
        names = _joined(names, [record.cells for record in more])
        lines = [str(record.line + 1) for record in more]
        place = f"line {lines[0]}" if len(lines) == 1 else f"lines {lines[0]} to {lines[-1]}"
        notes.append(f"{place} below the columns' names: no data, and passed over")
    # Lines between the names and the rows are skipped.
    end = max([*above[-1:], header, *more], key=lambda record: record.line)
    first = end.line + text.count("\n", end.start, end.end)
    passed = sum(record.cells[0].startswith(COMMENT) for record in above)
    passed += sum(is_comment(record, width) and record.line < end.line for record in below)
    names = [plain_name(name) for name in names]
    return Header(separator, names, header.line, first, end.end, notes, passed)


def _head(text: str, separator: str) -> tuple[list[Record], list[Record]]:
    """Records above the first one without `#`, and records from it on; blank ones are left out."""
    filled = (
        record._replace(cells=[cell.strip() for cell in record.cells])
        for record in records(text, separator)
        if not re.fullmatch(r'[\s,;|"]*', text[record.start : record.end])
    )
    comments: list[Record] = []
    for record in filled:
        if not record.cells[0].startswith(COMMENT):
            return comments, [record, *islice(filled, _HEAD - 1)]
        comments.append(record)
    # All rows of the table begin with `#`.
    return [], comments[:_HEAD]


def _marked_names(above: Sequence[Record], first: Record, width: int) -> list[Record]:
    """Lines that begin with `#` and may be the names of the columns, the likeliest first.

    Args:
        above: Lines before the data.
        first: The line after them; if it has no values, it holds the names itself.
        width: Number of columns.
    """
    if not any(values := _are_values(first.cells)):
        return []
    found = [
        record
        for record in above
        if len(record.cells) == width
        and record.cells[0].startswith(COMMENT)
        and not any(_are_values(record.cells))
    ]

    def fit(record: Record) -> tuple[bool, bool, int]:
        """Whether a name means times, whether all names differ, and the line."""
        names = [cell.removeprefix(COMMENT).strip().lower() for cell in record.cells]
        is_time = any(name in TIMES and known for name, known in zip(names, values, strict=False))
        return is_time, len({*names} - {""}) == width, record.line

    return sorted(found, key=fit, reverse=True)


def _more_names(names: Sequence[str], below: Sequence[Record]) -> list[Record]:
    """Records without values directly below the names, such as units or tickers."""
    below = [each for each in below if not is_comment(each, len(names))]
    if not below or any(_are_numbers(below[0].cells)):
        return []
    is_value = [_are_values(record.cells) for record in below]
    count = next((i for i, values in enumerate(is_value) if any(values)), 0)
    rest = [values for values in is_value[count:] if any(values)]
    if not count or len(rest) < 2 or 2 * len(rest) <= len(below) - count:
        return []
    columns = [
        all(i < len(values) and values[i] for values in rest)
        for i in range(min(len(names), _TELLING))
    ]
    more = list(below[:count])
    for record in more:
        if not any(cell and known for cell, known in zip(record.cells, columns, strict=False)):
            return []
    return more


def _joined(names: Sequence[str], more: list[list[str]]) -> list[str]:
    """The names; where two are equal, joined with the cells below."""
    last = more[-1]
    joined = list(names)
    if not any(last[1:]) and _is_name_of_times(last[0], names[0]):
        joined[0] = last[0]
    if len(set(names)) < len(names):
        for i in range(0 if names.count(names[0]) > 1 else 1, len(names)):
            parts = [names[i], *(cells[i] for cells in more if i < len(cells))]
            joined[i] = " ".join(part for part in parts if part)
    return joined


def _is_name_of_times(name: str, above: str) -> bool:
    """Whether a single cell below a name is the real name, as in a frame of several levels."""
    return not above or (name.lower() in TIMES and above.lower() not in TIMES)


def is_comment(record: Record, width: int) -> bool:
    """Whether a line below the names is a comment: `#` first, and not `width` cells."""
    return record.cells[0].startswith(COMMENT) and len(record.cells) != width


def _are_values(cells: Sequence[str]) -> list[bool]:
    """Whether each of the first cells is a number or a time."""
    numbers = _are_numbers(cells)
    return [
        found or looks_like_timestamp(cell) for found, cell in zip(numbers, cells, strict=False)
    ]


def _are_numbers(cells: Sequence[str]) -> list[bool]:
    given = pd.Series(cells[:_TELLING], dtype="str")
    found = [_are_there(read_numbers(given, mark)) for mark in MARKS]
    return [bool(one) for one in np.any(found, axis=0)]


def _are_there(numbers: Numbers) -> NDArray[np.bool_]:
    return ~numbers.wrong & ~numbers.missing


def holds_data(names: Sequence[str]) -> bool:
    """Whether all names, or all but one, are numbers."""
    given = pd.Series([name for name in names if name], dtype="str")
    count = np.count_nonzero(_are_there(read_numbers(given, ".")))
    return len(given) > 1 and bool(count >= len(given) - 1)
