"""The quick way to read a request: simdjson puts the numbers of a series straight into an array.

What it is not sure to read as `foretell.service.forecast.parse` would, it leaves to that.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

import numpy as np
import simdjson

from foretell.service.http.compression import Body

# It holds the interpreter's lock while it parses, for 5 ms a MB. And it counts the elements of an
# array up to 16,777,215: of more, pysimdjson would write beyond the end of a list.
_MOST_BYTES = 2 * 1024 * 1024
# A parser keeps the memory that its largest document took, several times its size: a few are kept
# for small documents, and one for larger ones.
_SMALL = 1024 * 1024
# Looking up a key of an object compares all those before it.
_MOST_KEYS = 32
# Objects with next to nothing in them take longer than as Python's own.
_MOST_INPUTS = 4096
# Bytes of all but numbers, and what the lists in series take: of two each may be a list, which as
# one of Python's takes half a microsecond.
_MOST_OTHERS = 32 * 1024
# The text is searched for the rows of each.
_MOST_WIDTHS = 4
_MARK = b"\xef\xbb\xbf"
_SERIES = "series"
# What numbers are made of, and what may stand between them.
_NUMBERS = b"0123456789+-.eE \t\n\r"

# To ask the system for memory anew takes nearly as long as to parse what goes into it. As many as
# there are threads that parse.
_small: deque[simdjson.Parser] = deque(maxlen=3)
_large: deque[simdjson.Parser] = deque(maxlen=1)


def read(body: Body) -> dict[str, Any] | None:
    """Read a request.

    Returns:
        The JSON object, in which a `series` of numbers is an array of float64, `[time]` or
        `[time, channel]`, and any other one a list; None if the body should be read another way:
        it is no JSON, no request, large, or has what simdjson does not tell (integers beyond 64
        bits, metadata to be echoed, a key that comes twice).
    """
    if len(body) > _MOST_BYTES or body.startswith(_MARK):
        return None
    kept = _small if len(body) <= _SMALL else _large
    try:
        parser = kept.pop()
    except IndexError:
        parser = simdjson.Parser()
    try:
        return _read(parser, body)
    except (RuntimeError, TypeError, ValueError):
        return None
    finally:
        kept.append(parser)


def forget() -> None:
    """Keep no parser for the next requests."""
    _small.clear()
    _large.clear()


def _read(parser: simdjson.Parser, body: Body) -> dict[str, Any]:
    """The request.

    Raises:
        ValueError: it is not for this module; RuntimeError or TypeError likewise.
    """
    request = _members(parser.parse(body))
    inputs = request.pop("inputs", None)
    if request.get("metadata") or not isinstance(inputs, simdjson.Array):
        raise ValueError("no plain request")
    if len(inputs) > _MOST_INPUTS:
        raise ValueError("many inputs")
    lists = _Lists()
    entries = [*map(_members, inputs)]
    for entry in entries:
        if _SERIES in entry:
            entry[_SERIES] = lists.series(entry[_SERIES])
    form = body.translate(None, _NUMBERS)
    if len(form) - lists.marks > _MOST_OTHERS:
        raise ValueError("much besides numbers")
    for part in (request, *entries):
        for name, value in part.items():
            part[name] = lists.plain(value)
    request["inputs"] = entries
    if not lists.describe(form):
        raise ValueError("other lists")
    return request


def _members(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """The members of an object, not read yet."""
    if not isinstance(value, simdjson.Object):
        raise TypeError("no object")
    if len(value) > _MOST_KEYS:
        raise ValueError("many keys")
    names = list(value.keys())
    if len(set(names)) != len(names):
        raise ValueError("a key that comes twice")
    # What follows a zero would not count, and brackets are to be those of lists.
    text = "".join(names)
    if "\0" in text or "[" in text:
        raise ValueError("a key with a zero or a bracket")
    return {name: value[name] for name in names}


class _Lists:
    """Makes values of simdjson's, and takes down the lists that these are made of.

    simdjson makes an array of numbers of whatever lists of lists they are in. Whether these are the
    rows that they seem to be, the text tells, in less time than a look at each row takes.
    """

    def __init__(self) -> None:
        # The list of inputs is one.
        self._count = 1
        # How many lists have so many numbers and nothing else; an empty one counts as of one.
        self._of_numbers: defaultdict[int, int] = defaultdict(int)
        self._widths: set[int] = set()
        # Of those that are arrays: their commas and brackets.
        self.marks = 0

    def series(self, series: Any) -> Any:  # noqa: ANN401 - any JSON
        """Numbers as an array, `[time]` or `[time, channel]`; anything else is left for `plain`."""
        try:
            values = np.frombuffer(series.as_buffer(of_type="d"))
            if isinstance(series[0], simdjson.Array):
                values = values.reshape(len(series), len(series[0]))
                if not values.size:
                    raise ValueError("rows of nothing")
        except (AttributeError, IndexError, TypeError, ValueError):
            # No list, or an empty one, or rows of several lengths, or a value that is no number.
            return series
        if values.ndim == 1:
            self._count += 1
            self._of_numbers[len(values)] += 1
        else:
            rows, width = values.shape
            self._count += 1 + rows
            self._of_numbers[width] += rows
            self._widths.add(width)
            self.marks += 2 * rows
        self.marks += values.size + 1
        return values

    def plain(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        """The value as Python's own.

        Raises:
            ValueError: a text in it has a bracket, as lists have.
        """
        if isinstance(value, simdjson.Array):
            value = value.as_list()
        elif isinstance(value, simdjson.Object):
            value = value.as_dict()
        elif not (isinstance(value, str) and "[" in value):
            return value
        self._note(value)
        return value

    def _note(self, value: object) -> None:
        if isinstance(value, str):
            if "[" in value:
                raise ValueError("a text with a bracket")
        elif isinstance(value, dict):
            for name, part in value.items():
                self._note(name)
                self._note(part)
        elif isinstance(value, list):
            self._count += 1
            if {int, float}.issuperset(map(type, value)):
                self._of_numbers[len(value) or 1] += 1
            else:
                for part in value:
                    self._note(part)

    def describe(self, form: Body) -> bool:
        """Whether a body without its numbers has these lists and no others.

        Also False if it would take long to tell.

        Were there any more among the numbers of an array, it would have more lists. And with as
        many rows of every width as were seen, none is in the wrong table: those of the least width
        could make up only for each other, and so could then those of the next one.
        """
        if len(self._widths) > _MOST_WIDTHS:
            return False
        for width in self._widths:
            if form.count(b"[%s]" % (b"," * (width - 1))) != self._of_numbers[width]:
                return False
        return form.count(b"[") == self._count
