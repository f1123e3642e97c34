"""Ways from the JSON of a request to the array of its only series."""

from __future__ import annotations

import importlib.util
import json
import struct
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic_core import from_json

CHANNELS = 7

Read = Callable[[bytes], NDArray[np.float32]]


def _check_width(rows: list[Any]) -> None:
    if set(map(type, rows)) != {list} or set(map(len, rows)) != {CHANNELS}:
        raise ValueError("a row")


def with_pydantic(body: bytes) -> NDArray[np.float32]:
    rows = from_json(body, allow_inf_nan=True, cache_strings="keys")["inputs"][0]["series"]
    _check_width(rows)
    flat = list(chain.from_iterable(rows))
    if not {float, int}.issuperset(map(type, flat)):
        raise ValueError("a value")
    return np.array(flat, np.float64).reshape(-1, CHANNELS).astype(np.float32)


def with_json(body: bytes) -> NDArray[np.float32]:
    rows = json.loads(body)["inputs"][0]["series"]
    _check_width(rows)
    flat = list(chain.from_iterable(rows))
    if not {float, int}.issuperset(map(type, flat)):
        raise ValueError("a value")
    return np.array(flat, np.float64).reshape(-1, CHANNELS).astype(np.float32)


def with_orjson(body: bytes) -> NDArray[np.float32]:
    rows = orjson.loads(body)["inputs"][0]["series"]
    if set(map(len, rows)) != {CHANNELS}:
        raise ValueError("a row")
    flat = list(chain.from_iterable(rows))
    values = np.empty(len(flat))
    struct.pack_into(f"{len(flat)}d", values.data, 0, *flat)
    doubtful = np.flatnonzero((values == 0) | (values == 1))
    if any(isinstance(flat[index], bool) for index in doubtful.tolist()):
        raise ValueError("a value")
    return values.reshape(-1, CHANNELS).astype(np.float32)


def msgspec_reader() -> Read:
    import msgspec

    entry = msgspec.defstruct("Entry", [("series", list[list[float]])])
    decoder = msgspec.json.Decoder(msgspec.defstruct("Request", [("inputs", list[entry])]))

    def read(body: bytes) -> NDArray[np.float32]:
        rows = decoder.decode(body).inputs[0].series
        if set(map(len, rows)) != {CHANNELS}:
            raise ValueError("a row")
        flat = list(chain.from_iterable(rows))
        values = np.frombuffer(struct.pack(f"{len(flat)}d", *flat))
        return values.reshape(-1, CHANNELS).astype(np.float32)

    return read


def with_simdjson(body: bytes) -> NDArray[np.float32]:
    from foretell.service.forecast import simd

    request = simd.read(body)
    series = request["inputs"][0]["series"] if request else None
    if not isinstance(series, np.ndarray) or series.ndim != 2 or series.shape[1] != CHANNELS:
        raise ValueError("a row or a value")
    return series.astype(np.float32)


def parsers() -> dict[str, Read]:
    found = {
        "json, numpy": with_json,
        "pydantic_core.from_json, numpy": with_pydantic,
        "orjson, struct (the service, where there is no simdjson)": with_orjson,
    }
    if importlib.util.find_spec("msgspec"):
        found["msgspec (typed), struct"] = msgspec_reader()
    if importlib.util.find_spec("simdjson"):
        found["simdjson, buffer (the service)"] = with_simdjson
    return found
