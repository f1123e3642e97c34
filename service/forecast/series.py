"""The numbers of a history: checked in bulk, and searched for the culprit only if there is one."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.nearness import listed
from foretell.service.errors import InvalidInputError
from foretell.service.gil import ordinary
from foretell.service.validation import shown

_LARGEST = float(np.finfo(np.float32).max)
_NUMBERS = {float, int}
# `struct` takes the values as arguments, which are one more list of them.
_PIECE = 64 * 1024
# What a missing value is in arrays, so that a refusal can tell it from NaN.
NULL = -math.nan

Rows = list[Any] | NDArray[np.float64]


def read_values(
    rows: Rows, channels: Sequence[str], place: str, *, gaps: bool = False
) -> NDArray[np.float64]:
    """Turn parsed JSON into an array.

    Args:
        rows: `[time]` or `[time][channel]`, oldest first; numbers and `NULL` may be an array.
        channels: Names of the columns.
        place: Where the rows stand in the request, for errors.
        gaps: Whether values may be missing: null or NaN.

    Returns:
        `[time, channels]`, every value finite in float32; NaN where it is missing.

    Raises:
        InvalidInputError: a row or value is not what it should be; `param` is its place.
    """
    if not isinstance(rows, np.ndarray):
        return _read_list(rows, channels, place, gaps=gaps)
    numbers = rows.reshape(len(rows), -1)
    if numbers.shape[1] != len(channels) or not len(rows):
        # The first row tells; of none, nothing is wrong.
        return _read_list(_plain(rows[:1]), channels, place, gaps=gaps)
    if not _in_range(numbers, gaps=gaps):
        is_wrong = ~(np.abs(numbers) <= _LARGEST)
        if gaps:
            is_wrong &= ~np.isnan(numbers)
        row, column = divmod(int(is_wrong.argmax()), len(channels))
        where = f"{place}[{row}]" + (f"[{column}]" if rows.ndim > 1 else "")
        _check_value(_plain(numbers[row, column : column + 1])[0], where, gaps=gaps)
    return numbers


def _plain(values: NDArray[np.float64]) -> list[Any]:
    """An array as parsed JSON; whole numbers are floats."""
    found = values.astype(object)
    found[np.isnan(values) & np.signbit(values)] = None
    plain: list[Any] = found.tolist()
    return plain


def _read_list(
    rows: list[Any], channels: Sequence[str], place: str, *, gaps: bool
) -> NDArray[np.float64]:
    width = len(channels)
    flat = rows
    if is_multivariate(rows):
        flat = _flatten(rows, channels, place)
    elif width != 1:
        raise InvalidInputError(
            f"expected a list of {width} values at every time ({listed(channels)}), "
            f"got {shown(rows[0]) if rows else 'an empty list'}",
            param=f"{place}[0]" if rows else place,
        )
    values = pack(flat, "d")
    if values is None:
        values = _numbers_and_gaps(flat) if gaps else None
    if values is None or not _in_range(values, gaps=gaps):
        if is_multivariate(rows):
            _check_rows(rows, channels, place)
        _refuse_value(rows, place, gaps=gaps)
    return values.reshape(-1, width)


def pack(flat: list[Any], code: str) -> NDArray[Any] | None:
    """Turn parsed JSON into an array.

    Args:
        flat: The values.
        code: The type, as `struct` and numpy call it; little-endian.

    Returns:
        `[values]`; None if one of them is no number, or none of that type.
    """
    values = np.empty(len(flat), f"<{code}")
    for start in range(0, len(flat), _PIECE):
        part, packed = flat[start : start + _PIECE], values[start : start + _PIECE]
        try:
            # Checks and converts, in a fifth of the time that numpy takes to convert.
            struct.pack_into(f"<{len(part)}{code}", packed.data, 0, *part)
        except (struct.error, OverflowError):
            return None
        # It takes true for 1 and false for 0.
        if ((packed == 0) | (packed == 1)).any() and bool in set(map(type, part)):
            return None
    return values


def is_multivariate(rows: Rows) -> bool:
    """Whether the shape is `[time][channel]`, as the first row tells."""
    if isinstance(rows, np.ndarray):
        return rows.ndim > 1
    return bool(rows) and isinstance(rows[0], list)


def _flatten(rows: list[Any], channels: Sequence[str], place: str) -> list[Any]:
    """The values of rows of the right length.

    Of a row that is no list but has that length, a text or an object, these are texts, no numbers.
    """
    flat: list[Any] = []
    for start in range(0, len(rows), _PIECE):
        part = rows[start : start + _PIECE]
        try:
            fits = set(map(len, part)) == {len(channels)}
        except TypeError:
            fits = False
        if not fits:
            _check_rows(rows, channels, place)
        flat.extend(chain.from_iterable(part))
    return flat


def _numbers_and_gaps(flat: list[Any]) -> NDArray[np.float64] | None:
    """The values, NaN for null, if each is a number or null."""
    values = np.empty(len(flat))
    for start in range(0, len(flat), _PIECE):
        part = flat[start : start + _PIECE]
        if not {*_NUMBERS, type(None)}.issuperset(map(type, part)):
            return None
        try:
            values[start : start + _PIECE] = part
        except OverflowError:
            return None
    return values


def _in_range(values: NDArray[np.float64], *, gaps: bool) -> bool:
    if not values.size or ordinary(values):
        return True
    largest = np.fmax.reduce(np.abs(values)) if gaps else np.abs(values).max()
    return bool(largest <= _LARGEST or (gaps and np.isnan(largest)))


def _check_rows(rows: list[Any], channels: Sequence[str], place: str) -> None:
    expected = f"expected a list of {len(channels)} values ({listed(channels)})"
    for index, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(channels):
            raise InvalidInputError(f"{expected}, got {shown(row)}", param=f"{place}[{index}]")


def _refuse_value(rows: list[Any], place: str, *, gaps: bool) -> NoReturn:
    multivariate = is_multivariate(rows)
    for index, row in enumerate(rows):
        for column, value in enumerate(row if multivariate else [row]):
            where = f"{place}[{index}]" + (f"[{column}]" if multivariate else "")
            _check_value(value, where, gaps=gaps)
    raise AssertionError("no value is wrong")


def _check_value(value: object, place: str, *, gaps: bool) -> None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        if gaps:
            return
        raise InvalidInputError(
            f"a value is missing ({shown(value)}), and options.missing is 'error'", param=place
        )
    if type(value) not in _NUMBERS:
        raise InvalidInputError(f"expected a number, got {shown(value)}", param=place)
    # Compared as they came: an integer may be too large even for float64.
    if not -_LARGEST <= value <= _LARGEST:  # type: ignore[operator]
        raise InvalidInputError(
            f"expected a finite number of at most 3.4e38 (float32), got {shown(value)}", param=place
        )
