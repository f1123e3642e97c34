"""The numbers of one tensor: from JSON or binary to float32, and back."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from foretell.service.errors import InvalidInputError
from foretell.service.forecast.series import pack
from foretell.service.validation import shown

Floats = NDArray[np.float32]

_BF16 = "BF16"
# What `struct` and numpy both call them.
_CODES = {
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
    # The upper half of a float32, which neither `struct` nor numpy has: read as one.
    _BF16: "f",
}
# Items of a list that are looked at by one call.
_PIECE = 64 * 1024
_NAMES = {np.dtype(code): name for name, code in _CODES.items() if name != _BF16}


def check_datatype(datatype: str, place: str) -> None:
    """Make sure that a tensor holds numbers.

    Raises:
        InvalidInputError: it does not.
    """
    if datatype not in _CODES:
        raise InvalidInputError(
            f"expected a datatype of numbers, one of {', '.join(_CODES)}, got {shown(datatype)}",
            param=f"{place}.datatype",
        )


def datatype_of(values: NDArray[Any]) -> str:
    """The protocol's name of an array's type."""
    return _NAMES[values.dtype]


def binary_size(datatype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor."""
    return math.prod(shape) * (2 if datatype == _BF16 else _dtype(datatype).itemsize)


def from_binary(data: memoryview, datatype: str, shape: tuple[int, ...], place: str) -> Floats:
    """Read a tensor of `binary_size` bytes, without a copy if it is float32 and aligned.

    Args:
        data: The bytes, row-major.
        datatype: One of numbers.
        shape: As the model has it.
        place: Where the tensor stands in the request, for errors.

    Raises:
        InvalidInputError: a value is not finite in float32.
    """
    if datatype == _BF16:
        values = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        values = np.frombuffer(data, _dtype(datatype))
    return _checked(values.reshape(shape), place)


def from_json(data: list[Any], datatype: str, shape: tuple[int, ...], place: str) -> Floats:
    """Read a tensor.

    Args:
        data: Parsed JSON: every value in one list, row-major, or lists nested as the shape says.
        datatype: One of numbers.
        shape: As the model has it.
        place: Where the tensor stands in the request, for errors.

    Raises:
        InvalidInputError: the lists are not of the shape, or a value is no number of the datatype
            or not finite in float32.
    """
    flat = _flattened(data, shape)
    if flat is None:
        raise InvalidInputError(
            f"expected a list of {math.prod(shape)} numbers, or lists nested as {list(shape)}, got "
            f"{shown(data)}{' lists' if _is_nested(data) else ''}",
            param=f"{place}.data",
        )
    values = pack(flat, _CODES[datatype])
    if values is None:
        _refuse(data, flat, datatype, shape, place)
    return _checked(values.reshape(shape), place)


def _dtype(datatype: str) -> np.dtype[Any]:
    # Little-endian, as the protocol has it.
    return np.dtype(f"<{_CODES[datatype]}")


def _flattened(data: list[Any], shape: tuple[int, ...]) -> list[Any] | None:
    """Every value in one list; None if the lists are not of the shape."""
    flat = data
    if _is_nested(data):
        if len(data) != shape[0]:
            return None
        for size in shape[1:]:
            inner: list[Any] = []
            for start in range(0, len(flat), _PIECE):
                part = flat[start : start + _PIECE]
                kinds = set(map(type, part))
                if not all(issubclass(kind, list) for kind in kinds):
                    return None
                if set(map(len, part)) != {size}:
                    return None
                inner.extend(chain.from_iterable(part))
            flat = inner
    return flat if len(flat) == math.prod(shape) else None


def _is_nested(data: list[Any]) -> bool:
    return bool(data) and isinstance(data[0], list)


def _refuse(
    data: list[Any], flat: list[Any], datatype: str, shape: tuple[int, ...], place: str
) -> NoReturn:
    index = _first_of_another(flat, _CODES[datatype])
    where = _position(index, shape) if _is_nested(data) else [index]
    raise InvalidInputError(
        f"expected a number of {datatype}, got {shown(flat[index])}",
        param=f"{place}.data" + "".join(f"[{part}]" for part in where),
    )


def _first_of_another(flat: list[Any], code: str) -> int:
    """Where the first value is that is not of a type; there is one."""
    start, end = 0, len(flat)
    while end - start > 1:
        middle = (start + end) // 2
        if pack(flat[start:middle], code) is None:
            end = middle
        else:
            start = middle
    return start


def _position(index: int, shape: tuple[int, ...]) -> list[int]:
    return [int(part) for part in np.unravel_index(index, shape)]


def _checked(values: NDArray[Any], place: str) -> Floats:
    with np.errstate(over="ignore"):
        floats: Floats = np.require(values, np.float32, ["C", "A"])
    finite = np.isfinite(floats)
    if not finite.all():
        where = _position(int(finite.argmin()), values.shape)
        raise InvalidInputError(
            f"expected finite numbers of at most 3.4e38 (float32), got {values[tuple(where)]} "
            f"at {where}",
            param=place,
        )
    return floats
