"""From the bytes of a request to its envelope."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import orjson
from pydantic_core import from_json

from foretell.service.errors import UnreadableError
from foretell.service.requests.schemas import Envelope
from foretell.service.validation import validate

# It has no wheels for the latest Python.
_simd = import_module("foretell.service.requests.simd") if find_spec("simdjson") else None

# Our examples, and most clients, name the model first.
_NAMED = re.compile(rb'\s*\{\s*"model"\s*:\s*"([^"\\]*)"')


def named_model(body: bytes | bytearray) -> str | None:
    """The model that a request names first of all, found without reading it; None if it does not.

    What `parse` finds is what counts.
    """
    found = _NAMED.match(body)
    return found[1].decode(errors="replace") if found else None


def parse(body: bytes | bytearray) -> Envelope:
    """Read a request as far as it can be read without knowing its model.

    Raises:
        UnreadableError: the body is no JSON.
        InvalidInputError: the request does not fit the interface.
    """
    return validate(Envelope, _read(body))


def forget() -> None:
    """Free the memory that is kept for the next large request."""
    if _simd is not None:
        _simd.forget()


def _read(body: bytes | bytearray) -> Any:  # noqa: ANN401 - any JSON
    if _simd is not None and (request := _simd.read(body)) is not None:
        return request
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _read_leniently(body)
    if isinstance(value, dict) and value.get("metadata"):
        # It is echoed digit by digit, and orjson makes floats of integers beyond 64 bits.
        return _read_leniently(body)
    return value


def _read_leniently(body: bytes | bytearray) -> Any:  # noqa: ANN401 - any JSON
    """Read JSON at half the speed, with integers of any size, and NaN and Infinity as numbers.

    `read_values` knows what to make of them, or refuses them with their place.
    """
    try:
        return from_json(body, allow_inf_nan=True, cache_strings="keys")
    except ValueError as error:
        raise UnreadableError(f"the body is not JSON: {error}") from None
