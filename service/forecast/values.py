"""The numbers of a series, from parsed JSON to an array.

All are checked at once; only after a failure one by one, to name the wrong value.

numpy releases the interpreter's lock for every loop over more than 500 values. On the event loop,
while inference threads wait for the lock, each release wakes one of them, mostly in vain, which
takes longer than the loop. `ordinary` keeps the lock for the few thousand numbers of a request, and
releases it for many.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Sequence
from itertools import chain
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.nearness import listed
from foretell.service.errors import InvalidInputError
from foretell.service.validation import shown

_LARGEST = float(np.finfo(np.float32).max)
_NUMBERS = {float, int}
# Values of one call: `struct` takes them as arguments, which is a second list.
_PIECE = 64 * 1024
# In arrays, null is NaN with a sign, so that an error can tell null from NaN.
NULL = -math.nan

Rows = list[Any] | NDArray[np.float64]

# With more values, other threads would wait too long for the lock.
MOST_KEPT = 16 * 1024
# The byte of a float64 that holds its sign and seven bits of the exponent.
_TOP = 7 if sys.byteorder == "little" else 0
_EXPONENT = 0x7F
# These bytes of values below 2 ** 113, well within float32.
_ORDINARY = bytes(top for top in range(256) if top & _EXPONENT < 0x47)


def read_values(
    rows: Rows, channels: Sequence[str], path: str, *, gaps: bool = False
) -> NDArray[np.float64]:
    """Make an array of the numbers of a series: `[time, channels]`, finite in float32, or NaN.

    `rows` are `[time]` or `[time][channel]`, oldest first; a list, or an array with `NULL`. With
    `gaps` values may be missing, as null or NaN.
    """
    if not isinstance(rows, np.ndarray):
        return _read_list(rows, channels, path, gaps=gaps)
    numbers = rows.reshape(len(rows), -1)
    if numbers.shape[1] != len(channels) or not len(rows):
        # The error is in the first row, if there is one.
        return _read_list(_plain(rows[:1]), channels, path, gaps=gaps)
    if not (ordinary(numbers) or _in_range(numbers, gaps=gaps)):
        is_wrong = ~(np.abs(numbers) <= _LARGEST)
        if gaps:
            is_wrong &= ~np.isnan(numbers)
        row, column = divmod(int(is_wrong.argmax()), len(channels))
        at = f"{path}[{row}]" + (f"[{column}]" if rows.ndim > 1 else "")
        _check_value(_plain(numbers[row, column : column + 1])[0], at, gaps=gaps)
    return numbers


def _plain(values: NDArray[np.float64]) -> list[Any]:
    """An array as parsed JSON; whole numbers are floats."""
    items = values.astype(object)
    items[np.isnan(values) & np.signbit(values)] = None
    plain: list[Any] = items.tolist()
    return plain


def _read_list(
    rows: list[Any], channels: Sequence[str], path: str, *, gaps: bool
) -> NDArray[np.float64]:
    width = len(channels)
    flat = rows
    if is_multivariate(rows):
        flat = _flatten(rows, channels, path)
    elif width != 1:
        raise InvalidInputError(
            f"expected a list of {width} values at every time ({listed(channels)}), "
            f"got {_shown(rows[0]) if rows else 'an empty list'}",
            param=f"{path}[0]" if rows else path,
        )
    values = pack(flat, "d")
    if values is None:
        values = _numbers_and_gaps(flat) if gaps else None
    if values is None or not (ordinary(values) or _in_range(values, gaps=gaps)):
        if is_multivariate(rows):
            _check_rows(rows, channels, path)
        _refuse_value(rows, path, gaps=gaps)
    return values.reshape(-1, width)


def pack(flat: list[Any], code: str) -> NDArray[Any] | None:
    """An array of a list of numbers, by a type code of `struct` and numpy; None for other items."""
    values = np.empty(len(flat), f"<{code}")
    for start in range(0, len(flat), _PIECE):
        part, packed = flat[start : start + _PIECE], values[start : start + _PIECE]
        try:
            # struct converts and checks types in a fifth of numpy's time.
            struct.pack_into(f"<{len(part)}{code}", packed.data, 0, *part)
        except (struct.error, OverflowError):
            return None
        # struct accepts true as 1 and false as 0.
        if ((packed == 0) | (packed == 1)).any() and bool in set(map(type, part)):
            return None
    return values


def is_multivariate(rows: Rows) -> bool:
    """Whether the shape is `[time][channel]`, judged by the first row."""
    if isinstance(rows, np.ndarray):
        return rows.ndim > 1
    return bool(rows) and isinstance(rows[0], list)


def width_of(rows: Rows) -> int:
    """The number of values at every time, judged by the first row."""
    if isinstance(rows, np.ndarray):
        return rows.shape[1] if rows.ndim > 1 else 1
    return len(rows[0]) if is_multivariate(rows) else 1


def _flatten(rows: list[Any], channels: Sequence[str], path: str) -> list[Any]:
    """The values of the rows; a text or an object of the right length gives texts."""
    flat: list[Any] = []
    for start in range(0, len(rows), _PIECE):
        part = rows[start : start + _PIECE]
        try:
            fits = set(map(len, part)) == {len(channels)}
        except TypeError:
            fits = False
        if not fits:
            _check_rows(rows, channels, path)
        flat.extend(chain.from_iterable(part))
    return flat


def _numbers_and_gaps(flat: list[Any]) -> NDArray[np.float64] | None:
    """The values, with NaN for null; None if any is not a number or null."""
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


def ordinary(values: NDArray[np.float64]) -> bool:
    """Whether all values are surely finite in float32; False if they need a check one by one."""
    if values.size > MOST_KEPT:
        return False
    return not values.tobytes()[_TOP::8].translate(None, _ORDINARY)


def _in_range(values: NDArray[np.float64], *, gaps: bool) -> bool:
    if not values.size:
        return True
    largest = np.fmax.reduce(np.abs(values), axis=None) if gaps else np.abs(values).max()
    return bool(largest <= _LARGEST or (gaps and np.isnan(largest)))


def _check_rows(rows: list[Any], channels: Sequence[str], path: str) -> None:
    for index, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(channels):
            raise InvalidInputError(
                f"expected a list of {len(channels)} values ({listed(channels)}), "
                f"got {_shown(row)}",
                param=f"{path}[{index}]",
            )


def _refuse_value(rows: list[Any], path: str, *, gaps: bool) -> NoReturn:
    multivariate = is_multivariate(rows)
    for index, row in enumerate(rows):
        for column, value in enumerate(row if multivariate else [row]):
            at = f"{path}[{index}]" + (f"[{column}]" if multivariate else "")
            _check_value(value, at, gaps=gaps)
    raise AssertionError("no value is wrong")


def _check_value(value: object, path: str, *, gaps: bool) -> None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        if gaps:
            return
        raise InvalidInputError(
            f"a value is missing ({shown(value)}), and options.missing is 'error'", param=path
        )
    if type(value) not in _NUMBERS:
        raise InvalidInputError(f"expected a number, got {shown(value)}", param=path)
    # Compared as they are: an integer may be too large even for float64.
    if not -_LARGEST <= value <= _LARGEST:  # type: ignore[operator]
        raise InvalidInputError(
            f"expected a finite number of at most 3.4e38 (float32), got {_shown(value)}", param=path
        )


def _shown(value: object) -> str:
    """A value in an error message, the same for 1 and 1.0, which arrays do not distinguish."""
    if type(value) not in _NUMBERS:
        return shown(value)
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        return shown(value)
    return str(int(number)) if number.is_integer() and abs(number) < 2**64 else shown(number)
