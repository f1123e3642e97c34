"""The fast reader of requests: simdjson writes the numbers of a series into an array.

It is an optional extra. It leaves requests that it may read differently to
`foretell.service.forecast.parse`, so that answers are the same with it and without.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import orjson
import simdjson
from numpy.typing import NDArray

from foretell.service.http.compression import Body

# Parsing keeps the interpreter's lock for 2 to 5 ms a MB: 20 ms at most. simdjson counts the
# elements of an array only up to 16,777,215: with more, pysimdjson writes beyond the end of a list.
_MOST_BYTES = 4 * 1024 * 1024
# A parser keeps several times the memory of its largest document: some parsers are kept for
# documents up to this size, and one for larger ones.
_SMALL = 1024 * 1024
# Looking up a key of an object compares all keys before it.
_MOST_KEYS = 32
# orjson reads small objects faster.
_MOST_INPUTS = 4096
# Bytes besides numbers and the brackets and commas of series: two of them may be a list, which
# takes half a microsecond as a Python list.
_MOST_OTHERS = 32 * 1024
_MARK = b"\xef\xbb\xbf"
_SERIES = "series"
# Objects of lists, of numbers or not.
_NAMED = ("past_covariates", "future_covariates")
# The bytes of numbers and of blanks between them.
_NUMBERS = b"0123456789+-.eE \t\n\r"

# A parser for each thread that parses: new memory takes nearly as long as parsing.
_small: deque[simdjson.Parser] = deque(maxlen=3)
_large: deque[simdjson.Parser] = deque(maxlen=1)


def read(body: Body) -> dict[str, Any] | None:
    """The JSON object of a request, with each `series` of numbers as an array of float64.

    Returns None if another reader must read the body: it is not JSON, not a request, or large. Or
    simdjson would read it differently: integers beyond 64 bits, metadata to echo, a repeated key,
    or escapes in texts.
    """
    if len(body) > _MOST_BYTES or body.startswith(_MARK) or b"\\" in body:
        return None
    parsers = _small if len(body) <= _SMALL else _large
    try:
        parser = parsers.pop()
    except IndexError:
        parser = simdjson.Parser()
    try:
        return _read(parser, body)
    except (RuntimeError, TypeError, ValueError):
        return None
    finally:
        parsers.append(parser)


def forget() -> None:
    """Free the parsers that are kept for the next requests."""
    _small.clear()
    _large.clear()


def _read(parser: simdjson.Parser, body: Body) -> dict[str, Any]:
    """Read the request; RuntimeError, TypeError or ValueError if another reader must."""
    request = _members(parser.parse(body))
    inputs = request.get("inputs")
    if request.get("metadata") or not isinstance(inputs, simdjson.Array):
        raise ValueError("no plain request")
    if len(inputs) > _MOST_INPUTS:
        raise ValueError("many inputs")
    request["inputs"] = entries = [*map(_members, inputs)]
    form = body.translate(None, _NUMBERS)
    others = len(form)
    for entry in entries:
        others -= _make_arrays(entry)
    if others > _MOST_OTHERS:
        raise ValueError("much besides numbers")
    for part in (request, *entries):
        for name, value in part.items():
            part[name] = _plain(value)
    # simdjson makes arrays of numbers out of any lists of lists, and merges members of the same
    # name. If the result is written like the body, except for numbers, it was read correctly.
    if orjson.dumps(request, default=_form).translate(None, _NUMBERS) != form:
        raise ValueError("other lists or objects")
    return request


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, simdjson.Array):
        return value.as_list()
    if isinstance(value, simdjson.Object):
        return value.as_dict()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


def _members(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    if not isinstance(value, simdjson.Object):
        raise TypeError("no object")
    if len(value) > _MOST_KEYS:
        raise ValueError("many keys")
    return {name: value[name] for name in value}


def _make_arrays(entry: dict[str, Any]) -> int:
    """Replace the lists of numbers in an input by arrays; returns their size, as `_array`."""
    total = 0
    if _SERIES in entry:
        entry[_SERIES], total = _array(entry[_SERIES])
    for name in _NAMED:
        if isinstance(entry.get(name), simdjson.Object):
            entry[name] = lists = _members(entry[name])
            for each, values in lists.items():
                lists[each], size = _array(values)
                total += size
    return total


def _array(series: Any) -> tuple[Any, int]:  # noqa: ANN401 - any JSON
    """Numbers as an array, `[time]` or `[time, channel]`, and the size of its commas and brackets.

    Other values are returned as they are, with size 0.
    """
    try:
        values = np.frombuffer(series.as_buffer(of_type="d"))
        if isinstance(series[0], simdjson.Array):
            values = values.reshape(len(series), len(series[0]))
    except (AttributeError, IndexError, TypeError, ValueError):
        # Not a list, an empty list, rows of several lengths, or a value that is not a number.
        return series, 0
    if not values.size:
        return series, 0
    return values, values.size + 1 + (2 * len(values) if values.ndim > 1 else 0)


def _form(values: NDArray[np.float64]) -> orjson.Fragment:
    """An array as JSON without its numbers."""
    form = b"[%s]" % (b"," * (values.shape[-1] - 1))
    if values.ndim > 1:
        form = b"[%s]" % b",".join([form] * len(values))
    return orjson.Fragment(form)
