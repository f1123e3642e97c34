"""The quick way to read a request: simdjson puts the numbers of a series straight into an array.

What it is not sure to read as `foretell.service.api.forecast.parsing` would, it leaves to that.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np
import simdjson

# simdjson holds several times the size of a document. And it counts the elements of an array up to
# 16,777,215, which pysimdjson does not know: of more it would write beyond the end of a list.
_MOST_BYTES = 16 * 1024 * 1024
# A parser keeps the memory that its largest document took: each thread has one for small documents.
# One for larger ones is kept for all threads, and freed when there is nothing to do.
_SMALL = 1024 * 1024
# A parser keeps several times as much; what the largest take is given back.
_MIDDLE = 4 * 1024 * 1024
# Looking up a key of an object compares all those before it.
_MOST_KEYS = 32
# Objects with next to nothing in them take longer than as Python's own.
_MOST_INPUTS = 4096
_MARK = b"\xef\xbb\xbf"
_SERIES = "series"

_local = threading.local()
# To ask the system for memory anew takes nearly as long as to parse what goes into it.
_large: deque[simdjson.Parser] = deque(maxlen=1)


def read(body: bytes) -> dict[str, Any] | None:
    """Read a request.

    Returns:
        The JSON object, in which a `series` of numbers is an array of float64, `[time]` or
        `[time, channel]`, and any other one a list; None if the body should be read another way:
        it is no JSON, no request, large, or has what simdjson does not tell (integers beyond 64
        bits, metadata to be echoed, a key that comes twice).
    """
    if len(body) > _MOST_BYTES or body.startswith(_MARK):
        return None
    parser = _parser(len(body))
    try:
        request, lists = _read(parser, body)
    except (RuntimeError, TypeError, ValueError):
        return None
    finally:
        if _SMALL < len(body) <= _MIDDLE:
            _large.append(parser)
    # The array of a series has no place for further lists among its numbers: were there any, the
    # body would have more of them than were seen. Brackets in texts only make it go another way.
    brackets = np.count_nonzero(np.frombuffer(body, np.uint8) == ord("["))
    return request if brackets == lists else None


def _parser(size: int) -> simdjson.Parser:
    if size > _MIDDLE:
        return simdjson.Parser()
    if size > _SMALL:
        try:
            return _large.pop()
        except IndexError:
            return simdjson.Parser()
    if not hasattr(_local, "parser"):
        _local.parser = simdjson.Parser()
    parser: simdjson.Parser = _local.parser
    return parser


def _read(parser: simdjson.Parser, body: bytes) -> tuple[dict[str, Any], int]:
    """The request, and how many lists it has.

    Raises:
        ValueError: it is not for this module; RuntimeError or TypeError likewise.
    """
    request = _members(parser.parse(body))
    inputs = request.pop("inputs", None)
    if request.get("metadata") or not isinstance(inputs, simdjson.Array):
        raise ValueError("no plain request")
    if len(inputs) > _MOST_INPUTS:
        raise ValueError("many inputs")
    request = {name: _plain(value) for name, value in request.items()}
    entries: list[dict[str, Any]] = []
    lists = 1 + _lists(request)
    for part in inputs:
        entry = _members(part)
        found = {name: _plain(value) for name, value in entry.items() if name != _SERIES}
        lists += _lists(found)
        if _SERIES in entry:
            found[_SERIES], count = _series(entry[_SERIES])
            lists += count
        entries.append(found)
    return {**request, "inputs": entries}, lists


def _members(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """The members of an object, not read yet."""
    if not isinstance(value, simdjson.Object):
        raise TypeError("no object")
    names = list(value.keys())
    if len(names) > _MOST_KEYS or len(set(names)) != len(names):
        raise ValueError("many keys, or one that comes twice")
    # What follows a zero would not count.
    if "\0" in "".join(names):
        raise ValueError("a key with a zero")
    return {name: value[name] for name in names}


def _series(series: Any) -> tuple[Any, int]:  # noqa: ANN401 - any JSON
    """Numbers as an array, anything else as it is; and how many lists it has."""
    try:
        values = np.frombuffer(series.as_buffer(of_type="d"))
        if not isinstance(series[0], simdjson.Array):
            return values, 1
        (width,) = set(map(len, series))
        return values.reshape(-1, width), 1 + len(series)
    except (AttributeError, IndexError, TypeError, ValueError):
        # No list, or an empty one, or rows of several lengths, or a value that is no number.
        value = _plain(series)
        return value, _lists(value)


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, simdjson.Array):
        return value.as_list()
    if isinstance(value, simdjson.Object):
        return value.as_dict()
    return value


def _lists(value: object) -> int:
    """How many lists there are in a JSON value."""
    if isinstance(value, dict):
        return sum(map(_lists, value.values()))
    if not isinstance(value, list):
        return 0
    if {list, dict}.isdisjoint(map(type, value)):
        return 1
    return 1 + sum(map(_lists, value))
