"""Checks the tensors of requests against the model, and reads JSON or binary to float32."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.covariates import (
    FUTURE_COVARIATES,
    HISTORY_COVARIATES,
    NO_COVARIATES,
    STATIC_COVARIATES,
    Covariate,
)
from foretell.bundle.manifest import Manifest
from foretell.bundle.nearness import listed
from foretell.service.arrays import HISTORY, Arrays, input_shapes
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.forecast.values import pack
from foretell.service.inference.wire import InputTensor
from foretell.service.validation import shown

Floats = NDArray[np.float32]

_BF16 = "BF16"
# The codes of `struct` and numpy, by the protocol's names.
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
    # The upper half of a float32, read as float32: neither has a code for it.
    _BF16: "f",
}
# Items of a list that one call checks.
_PIECE = 64 * 1024
_NAMES = {np.dtype(code): name for name, code in _CODES.items() if name != _BF16}


class Inputs:
    """Reads the inputs of one request with at most `most` windows; `data` follows the JSON."""

    def __init__(self, manifest: Manifest, most: int, data: memoryview) -> None:
        self._shapes = input_shapes(manifest)
        known = manifest.covariates or NO_COVARIATES
        self._covariates = {
            HISTORY_COVARIATES: known.future,
            FUTURE_COVARIATES: known.future,
            STATIC_COVARIATES: known.static,
        }
        self._most = most
        self._data = data
        self._used = 0
        self._feeds: Arrays = {}

    def read(self, inputs: list[InputTensor]) -> Arrays:
        """Read all inputs: `[windows, …]` by name, in float32, perhaps views of the data."""
        for index, tensor in enumerate(inputs):
            place = f"inputs[{index}]"
            if tensor.name not in self._shapes:
                raise InvalidInputError(
                    f"expected one of {', '.join(self._shapes)}, got {shown(tensor.name)}",
                    param=f"{place}.name",
                )
            if tensor.name in self._feeds:
                raise InvalidInputError(f"{tensor.name} is given twice", param=f"{place}.name")
            self._feeds[tensor.name] = values = self._tensor(tensor, place)
            for column, covariate in enumerate(self._covariates.get(tensor.name, ())):
                _check_codes(values, column, covariate, place)
        if missing := [name for name in self._shapes if name not in self._feeds]:
            raise InvalidInputError(f"{', '.join(missing)}: required, but missing", param="inputs")
        if left := len(self._data) - self._used:
            raise InvalidInputError(f"{left} bytes follow the last of the tensors", param="inputs")
        return self._feeds

    def read_raw(self) -> Arrays:
        """Take the data for the model's only input."""
        if len(self._shapes) > 1:
            raise NotSupportedError(
                f"the model takes {', '.join(self._shapes)}: a body without JSON holds one input"
            )
        size = binary_size("FP32", self._shapes[HISTORY])
        windows, rest = divmod(len(self._data), size)
        if rest or not windows:
            raise InvalidInputError(
                f"expected a body of {size} bytes for each {list(self._shapes[HISTORY])} of FP32, "
                f"got {len(self._data)}"
            )
        self._check_count(windows, HISTORY)
        shape = (windows, *self._shapes[HISTORY])
        return {HISTORY: from_binary(self._data, "FP32", shape, HISTORY)}

    def _tensor(self, tensor: InputTensor, place: str) -> Floats:
        if tensor.parameters.shared_memory_region is not None:
            raise NotSupportedError(
                "shared memory is not supported", param=f"{place}.parameters.shared_memory_region"
            )
        check_datatype(tensor.datatype, place)
        shape = self._shape(tensor, place)
        size = tensor.parameters.binary_data_size
        if (size is None) == (tensor.data is None):
            raise InvalidInputError(
                "expected either data or parameters.binary_data_size", param=place
            )
        if tensor.data is not None:
            return from_json(tensor.data, tensor.datatype, shape, place)
        expected = binary_size(tensor.datatype, shape)
        if size != expected:
            raise InvalidInputError(
                f"expected {expected} bytes of {tensor.datatype} for {list(shape)}, got {size}",
                param=f"{place}.parameters.binary_data_size",
            )
        data = self._data[self._used : self._used + expected]
        if len(data) < expected:
            raise InvalidInputError(
                f"expected {expected} bytes of data, of which the body holds {len(data)}; "
                "Inference-Header-Content-Length says where the JSON ends and the data begins",
                param=place,
            )
        self._used += expected
        return from_binary(data, tensor.datatype, shape, place)

    def _shape(self, tensor: InputTensor, place: str) -> tuple[int, ...]:
        expected = self._shapes[tensor.name]
        windows, *rest = tensor.shape or [0]
        if tuple(rest) != expected or windows < 1:
            given = str(tensor.shape) if len(str(tensor.shape)) < 60 else shown(tensor.shape)
            raise InvalidInputError(
                f"expected [batch, {', '.join(map(str, expected))}], got {given}",
                param=f"{place}.shape",
            )
        first = next(iter(self._feeds.values()), None)
        if first is not None and len(first) != windows:
            raise InvalidInputError(
                f"expected a batch of {len(first)}, as in the inputs before, got {windows}",
                param=f"{place}.shape[0]",
            )
        self._check_count(windows, f"{place}.shape[0]")
        return (windows, *expected)

    def _check_count(self, windows: int, place: str) -> None:
        if windows > self._most:
            raise InvalidInputError(
                f"expected a batch of at most {self._most} (max_inputs), got {shown(windows)}",
                param=place,
            )


def check_datatype(datatype: str, place: str) -> None:
    """Refuse a tensor that does not hold numbers."""
    if datatype not in _CODES:
        raise InvalidInputError(
            f"expected a datatype of numbers, one of {', '.join(_CODES)}, got {shown(datatype)}",
            param=f"{place}.datatype",
        )


def datatype_of(values: NDArray[Any]) -> str:
    return _NAMES[values.dtype]


def binary_size(datatype: str, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * (2 if datatype == _BF16 else _dtype(datatype).itemsize)


def from_binary(data: memoryview, datatype: str, shape: tuple[int, ...], place: str) -> Floats:
    """Read a row-major tensor of `binary_size` bytes; aligned float32 is not copied."""
    if datatype == _BF16:
        values = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        values = np.frombuffer(data, _dtype(datatype))
    return _checked(values.reshape(shape), place)


def from_json(data: list[Any], datatype: str, shape: tuple[int, ...], place: str) -> Floats:
    """Read a tensor from one row-major list, or from lists nested in its shape."""
    is_nested, code = bool(data) and isinstance(data[0], list), _CODES[datatype]
    flat = _flattened(data, shape) if is_nested else data
    if flat is None or len(flat) != math.prod(shape):
        raise InvalidInputError(
            f"expected a list of {math.prod(shape)} numbers, or lists nested as {list(shape)}, got "
            f"{shown(data)}{' lists' if is_nested else ''}",
            param=f"{place}.data",
        )
    values = pack(flat, code)
    if values is None:
        index = _first_refused(flat, code)
        where = _position(index, shape) if is_nested else [index]
        raise InvalidInputError(
            f"expected a number of {datatype}, got {shown(flat[index])}",
            param=f"{place}.data" + "".join(f"[{part}]" for part in where),
        )
    return _checked(values.reshape(shape), place)


def _dtype(datatype: str) -> np.dtype[Any]:
    # Little-endian, as in the protocol.
    return np.dtype(f"<{_CODES[datatype]}")


def _flattened(data: list[Any], shape: tuple[int, ...]) -> list[Any] | None:
    """The values of nested lists in one list; None if the lists have another shape."""
    if len(data) != shape[0]:
        return None
    flat = data
    for size in shape[1:]:
        inner: list[Any] = []
        for start in range(0, len(flat), _PIECE):
            part = flat[start : start + _PIECE]
            if not all(issubclass(kind, list) for kind in set(map(type, part))):
                return None
            if set(map(len, part)) != {size}:
                return None
            inner.extend(chain.from_iterable(part))
        flat = inner
    return flat


def _first_refused(flat: list[Any], code: str) -> int:
    """The index of the first value that is not of a type; at least one must be."""
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


def _check_codes(values: Floats, column: int, covariate: Covariate, place: str) -> None:
    """Refuse codes of a boolean or a category, in a column of the last axis, that mean nothing."""
    if covariate.type == "number":
        return
    names = ["false", "true"]
    if covariate.type == "category":
        names = [*covariate.categories, *(["any other"] if covariate.other else [])]
    codes = values[..., column]
    is_wrong = ~np.isin(codes, np.arange(len(names)))
    if is_wrong.any():
        where = [*_position(int(is_wrong.argmax()), codes.shape), column]
        known = listed([f"{code} ({name})" for code, name in enumerate(names)])
        value = values[tuple(where)]
        raise InvalidInputError(
            f"expected a code of {covariate.name!r}, {known}, got {value} at {where}",
            param=place,
        )


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
