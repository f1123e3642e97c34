"""Where a text's table begins: its separator, and the names of its columns."""

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
from foretell.data.moments import looks_like_timestamp
from foretell.data.numbers import MARKS, Numbers, read_numbers
from foretell.data.roles import TIMES

SEPARATORS = ",;\t|"
COMMENT = "#"
# Records with something in them, among which the names of the columns are looked for.
_HEAD = 20
# Lines of a record; more are those of a quote that is never closed.
_MOST_LINES = 50
# Columns of which the cells tell names from data.
_TELLING = 50


class Record(NamedTuple):
    """A row of a text, which has several lines where a quoted cell has.

    Attributes:
        line: Its first line, from 0.
        start: Where it begins in the text.
        end: Where the next begins.
        cells: What it holds.
    """

    line: int
    start: int
    end: int
    cells: list[str]


@dataclass(frozen=True)
class Header:
    """What is known of a table before its rows are read.

    Attributes:
        separator: Of cells.
        names: Of the columns; empty for those without one.
        line: That of the names, from 0.
        first: The first line of data, from 0.
        start: Where the data begins in the text.
        notes: What was passed over.
        comments: Lines above that begin with `#`.
    """

    separator: str
    names: list[str]
    line: int
    first: int
    start: int
    notes: list[str]
    comments: int


def records(text: str, separator: str, start: int = 0) -> Iterator[Record]:
    """The rows of a text from a place on; a line with a quote that is not closed is one itself."""
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
    """The lines of a record, whose ends are added to those that are known."""
    while (at := ends[-1]) < len(text):
        if len(ends) > _MOST_LINES:
            raise csv.Error
        ends.append(text.find("\n", at) + 1 or len(text))
        yield text[at : ends[-1]]


def find_header(path: Path, text: str) -> Header:
    """Find the names of the columns.

    They are in the first record, or below those that are no part of the table: in the first that
    has as many cells as most of the records after it, more than a title alone in them, and no
    numbers. Records that begin with `#` above it are comments, but for the last before data.

    Raises:
        DataError: the text is empty.
    """
    heads = {separator: _head(text, separator) for separator in SEPARATORS}

    def fit(separator: str) -> tuple[int, int]:
        """How many records have as many cells as most have, and how many cells that are."""
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
            notes.append(f"of {len(marked)} lines with {COMMENT} that may be the columns' names, ")
            notes[-1] += f"line {header.line + 1} is"
    else:
        if len(found[0].cells) > width or holds_data(found[at].cells):
            at = 0
            above = list(comments)
        header, below = found[at], found[at + 1 :]
    if any(not record.cells[0].startswith(COMMENT) for record in above):
        notes.append(f"the columns' names are in line {header.line + 1}; above is no table")
    names = header.cells
    more = _more_names(names, below)
    if more:
        names = _joined(names, [record.cells for record in more])
        lines = [str(record.line + 1) for record in more]
        told = f"line {lines[0]}" if len(lines) == 1 else f"lines {lines[0]} to {lines[-1]}"
        notes.append(f"{told} below the columns' names: no data, and passed over")
    # Lines between the names and the rows are passed over.
    end = max([*above[-1:], header, *more], key=lambda record: record.line)
    first = end.line + text.count("\n", end.start, end.end)
    passed = sum(record.cells[0].startswith(COMMENT) for record in above)
    passed += sum(is_comment(record, width) and record.line < end.line for record in below)
    names = [plain_name(name) for name in names]
    return Header(separator, names, header.line, first, end.end, notes, passed)


def _head(text: str, separator: str) -> tuple[list[Record], list[Record]]:
    """Records before the first that does not begin with `#`, and from it on, none of them blank."""
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
    # A table of which all rows begin so.
    return [], comments[:_HEAD]


def _marked_names(above: Sequence[Record], first: Record, width: int) -> list[Record]:
    """Lines that begin with `#` and may be the names of the columns of data, the likeliest first.

    Args:
        above: Lines before the data.
        first: The first that is not among them; where it has no values, the names are there.
        width: How many columns there are.
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
        """Whether a value is called as times are, all names differ, and how late it stands."""
        names = [cell.removeprefix(COMMENT).strip().lower() for cell in record.cells]
        is_time = any(name in TIMES and known for name, known in zip(names, values, strict=False))
        return is_time, len({*names} - {""}) == width, record.line

    return sorted(found, key=fit, reverse=True)


def _more_names(names: Sequence[str], below: Sequence[Record]) -> list[Record]:
    """Records under the names that hold no value, where most others have values: units, tickers."""
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
    """The names; with what stands below where two are the same."""
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
    """Whether what stands alone below a name is the column's, as of a frame of several levels."""
    return not above or (name.lower() in TIMES and above.lower() not in TIMES)


def is_comment(record: Record, width: int) -> bool:
    """Whether a line below the names of so many columns begins with `#` and is no row."""
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
    """Whether all but one are numbers, in place of names."""
    given = pd.Series([name for name in names if name], dtype="str")
    count = np.count_nonzero(_are_there(read_numbers(given, ".")))
    return len(given) > 1 and bool(count >= len(given) - 1)
