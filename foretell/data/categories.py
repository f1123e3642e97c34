"""Names of categories, and cells that stand for them in other tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.data.errors import DataError

# Most categories of a column: each is a feature of the network.
MOST = 1000
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_WORDS = {"false": 0.0, "true": 1.0}
# Whole numbers from here on have no float of their own.
_LARGEST = 2.0**53


def check_count(name: str, count: int) -> None:
    """Refuse a column of too many categories.

    Raises:
        DataError: names the column and remedies.
    """
    if count > MOST:
        raise DataError(
            f"column {name!r} has {count:,} categories, and at most {MOST:,} are read; if it names "
            "the series, give it as --id-column; otherwise join rare ones, or leave it out"
        )


def cells_of(
    values: NDArray[np.float64], *, is_boolean: bool
) -> tuple[list[float] | list[bool], NDArray[np.intp]]:
    """The different cells of numbers or booleans, and the place among them of each value."""
    found, places = np.unique(values, return_inverse=True)
    return (found > 0).tolist() if is_boolean else found.tolist(), places


def meant(cells: Iterable[str | float | bool], categories: Sequence[str]) -> list[str]:
    """The categories that different cells stand for; other cells as texts.

    A text stands for the category of its name. A number, or the text of one, stands for the
    category with this value, so that 1, 1.0 and "01" are the same if one category is. True and
    false stand for their names in any case.

    Raises:
        DataError: a number stands for several categories.
    """
    by_number: dict[float, list[str]] = {}
    by_word: dict[float, list[str]] = {}
    for each in categories:
        if (number := _number(each)) is not None:
            by_number.setdefault(number, []).append(each)
        if (word := _WORDS.get(each.lower())) is not None:
            by_word.setdefault(word, []).append(each)
    known = {*categories}
    return [_meant(cell, known, by_word if isinstance(cell, bool) else by_number) for cell in cells]


def _meant(cell: str | float | bool, known: set[str], by_value: dict[float, list[str]]) -> str:
    if isinstance(cell, str) and cell in known:
        return cell
    value = _number(cell) if isinstance(cell, str) else float(cell)
    found = by_value.get(value, []) if value is not None and abs(value) < _LARGEST else []
    if len(found) == 1:
        return found[0]
    text = _text(cell)
    if found and not isinstance(cell, str):
        raise DataError(
            f"{text} may be the category {' or '.join(map(repr, found))}; train the model with "
            "names that are no numbers, such as 'A1'"
        )
    return text


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _text(cell: str | float | bool) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).lower() if isinstance(cell, bool) else str(cell)
