"""Metadata of requests, which answers echo, and JSON with numbers that not every parser reads."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from pydantic_core import from_json

from foretell.service.errors import InvalidInputError
from foretell.service.http.compression import Body

METADATA = "metadata"


class _Echo(msgspec.Struct):
    metadata: msgspec.Raw


_echo = msgspec.json.Decoder(_Echo)


def echo(request: dict[str, Any], text: Body | memoryview) -> None:
    """Replace the metadata of a request that orjson read with their text, if they are an object."""
    if isinstance(request.get(METADATA), dict):
        try:
            # orjson makes floats of integers beyond 64 bits.
            request[METADATA] = bytes(_echo.decode(text).metadata)
        except RecursionError:
            request[METADATA] = read_leniently(bytes(text))[METADATA]


def echoed(metadata: dict[str, Any] | bytes) -> bytes:
    """Metadata as JSON; NaN and Infinity are refused."""
    if isinstance(metadata, bytes):
        return metadata
    try:
        return json.dumps(metadata, allow_nan=False).encode()
    except ValueError:
        raise InvalidInputError(
            "expected JSON values, which NaN and Infinity are not", param=METADATA
        ) from None


def read_leniently(text: Body) -> Any:  # noqa: ANN401 - any JSON
    """Read JSON at half the speed, with integers of any size, NaN and Infinity; or ValueError."""
    return from_json(text, allow_inf_nan=True, cache_strings="keys")
