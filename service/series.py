"""The numbers of a history: checked in bulk, and searched for the culprit only if there is one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from service.errors import InvalidInputError
from service.validation import shown

_LARGEST = float(np.finfo(np.float32).max)
_NUMBERS = {float, int}


def read_values(rows: list[Any], channels: Sequence[str], place: str) -> NDArray[np.float64]:
    """Turn parsed JSON into an array.

    Args:
        rows: `[time]` or `[time][channel]`, oldest first.
        channels: Names of the columns.
        place: Where the rows stand in the request, for errors.

    Returns:
        `[time, channels]`, every value finite in float32.

    Raises:
        InvalidInputError: a row or value is not what it should be; `param` is its place.
    """
    width = len(channels)
    flat = rows
    if is_multivariate(rows):
        if set(map(type, rows)) != {list} or set(map(len, rows)) != {width}:
            _refuse_row(rows, channels, place)
        flat = list(chain.from_iterable(rows))
    elif width != 1:
        raise InvalidInputError(
            f"expected a list of {width} values at every time ({_listed(channels)}), "
            f"got {shown(rows[0]) if rows else 'an empty list'}",
            param=f"{place}[0]" if rows else place,
        )
    if not _NUMBERS.issuperset(map(type, flat)):
        _refuse_value(rows, place)
    try:
        values = np.array(flat, np.float64)
    except OverflowError:
        _refuse_value(rows, place)
    if values.size and not np.abs(values).max() <= _LARGEST:
        _refuse_value(rows, place)
    return values.reshape(-1, width)


def is_multivariate(rows: list[Any]) -> bool:
    """Whether the shape is `[time][channel]`, as the first row tells."""
    return bool(rows) and isinstance(rows[0], list)


def _refuse_row(rows: list[Any], channels: Sequence[str], place: str) -> NoReturn:
    expected = f"expected a list of {len(channels)} values ({_listed(channels)})"
    for index, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(channels):
            raise InvalidInputError(f"{expected}, got {shown(row)}", param=f"{place}[{index}]")
    raise AssertionError("no row is wrong")


def _refuse_value(rows: list[Any], place: str) -> NoReturn:
    multivariate = is_multivariate(rows)
    for index, row in enumerate(rows):
        if multivariate:
            for column, value in enumerate(row):
                _check_value(value, f"{place}[{index}][{column}]")
        else:
            _check_value(row, f"{place}[{index}]")
    raise AssertionError("no value is wrong")


def _check_value(value: object, place: str) -> None:
    if value is None:
        raise InvalidInputError(
            "a value is missing (null), and options.missing is 'error'", param=place
        )
    if type(value) not in _NUMBERS:
        raise InvalidInputError(f"expected a number, got {shown(value)}", param=place)
    # Compared as they came: an integer may be too large even for float64.
    if not -_LARGEST <= value <= _LARGEST:  # type: ignore[operator]
        raise InvalidInputError(
            f"expected a finite number of at most 3.4e38 (float32), got {shown(value)}", param=place
        )


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f", … {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
