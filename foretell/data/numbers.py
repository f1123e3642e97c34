"""Columns of numbers, in common forms."""

from __future__ import annotations

from decimal import Decimal
from numbers import Real
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.data.missing import MISSING

Mark = Literal[".", ","]
MARKS: tuple[Mark, Mark] = (".", ",")

_SPACES = " '\u2019\u00a0\u202f"
# No group of thousands follows a 0: 0.050 is a fraction.
_GROUPED = {
    ".": rf"[+-]?[1-9]\d{{0,2}}(?:[,{_SPACES}]\d{{3}})+(?:\.\d*)?",
    ",": rf"[+-]?[1-9]\d{{0,2}}(?:[.{_SPACES}]\d{{3}})+(?:,\d*)?",
}
# Number of distinct cells that show whether a column holds numbers at all.
_TELLING = 1000
_LARGEST = float(np.finfo(np.float32).max)


class Numbers(NamedTuple):
    """A column as numbers.

    Attributes:
        values: `[rows]`, NaN where a cell is missing or wrong.
        wrong: `[rows]`, whether a cell is not a finite number within the range of float32.
        missing: `[rows]`, whether a cell is missing.
    """

    values: NDArray[np.float64]
    wrong: NDArray[np.bool_]
    missing: NDArray[np.bool_]

    @property
    def mostly(self) -> bool:
        """Whether at least half of the cells that are not missing are numbers."""
        return bool(2 * np.count_nonzero(self.wrong) <= np.count_nonzero(~self.missing))


def is_text(cells: pd.Series) -> bool:
    """Whether a column holds texts or other cells that are not numbers."""
    return not (pd.api.types.is_numeric_dtype(cells) or pd.api.types.is_bool_dtype(cells))


def read_numbers(cells: pd.Series, decimal: Mark) -> Numbers:
    """Read a column.

    True and false become 1 and 0; digits may be in groups of three.

    Args:
        cells: The column.
        decimal: The decimal mark of texts.
    """
    missing = cells.isna().to_numpy()
    if not is_text(cells):
        values = cells.to_numpy(np.float64, na_value=np.nan)
    else:
        there = cells[~missing]
        texts = there.map(str).astype("str").str.strip()
        values = np.full(len(cells), np.nan)
        values[~missing] = _read_texts(texts, decimal)
        if decimal == "," and cells.dtype == object:
            # Numbers among texts have no mark.
            typed = there.map(lambda cell: isinstance(cell, Real | Decimal)).to_numpy(bool)
            values[np.flatnonzero(~missing)[typed]] = there[typed].astype(np.float64)
        missing = missing.copy()
        missing[~missing] = texts.isin(MISSING).to_numpy()
    wrong = ~missing & ~(np.abs(values) <= _LARGEST)
    return Numbers(np.where(wrong, np.nan, values), wrong, missing)


def _read_texts(texts: pd.Series, decimal: Mark) -> NDArray[np.float64]:
    words = {"true": "1", "false": "0"}
    grouped = texts.str.fullmatch(_GROUPED[decimal]).to_numpy(np.bool_)
    plain = texts.str.lower().replace(words)
    group_marks = "[" + ("," if decimal == "." else ".") + _SPACES + "]"
    plain = plain.where(~grouped, plain.str.replace(group_marks, "", regex=True))
    if decimal == ",":
        # A remaining point does not separate thousands, so the cell is not a number.
        plain = plain.str.replace(".", "?", regex=False).str.replace(",", ".", regex=False)
    values: NDArray[np.float64] = pd.to_numeric(plain, errors="coerce").to_numpy(np.float64)
    return values


def find_mark(columns: list[pd.Series]) -> Mark | None:
    """The decimal mark with which more texts are numbers; None if both fit and differ.

    Args:
        columns: Columns that may hold numbers.
    """
    wrong = {".": 0, ",": 0}
    differ = False
    for column in columns:
        cells = column.drop_duplicates()
        if any(read_numbers(cells.head(_TELLING), mark).mostly for mark in MARKS):
            found = {mark: read_numbers(cells, mark) for mark in MARKS}
            for mark, numbers in found.items():
                wrong[mark] += int(np.count_nonzero(numbers.wrong))
            differ |= not np.array_equal(found["."].values, found[","].values, equal_nan=True)
    if wrong["."] == wrong[","]:
        return None if differ else "."
    return "." if wrong["."] < wrong[","] else ","
