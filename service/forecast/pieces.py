"""Large JSON, read in pieces: no call holds the interpreter's lock for long.

A body is cut at commas. Each piece is completed with the brackets that are open around it, parsed
by itself, and merged with the pieces before it. A list or an object that spans several pieces is
only kept if `Form` has it.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic_core import from_json

from foretell.service.errors import InvalidInputError
from foretell.service.forecast.values import NULL, pack
from foretell.service.http.compression import Body
from foretell.service.validation import MOST_UNKNOWN

# Bytes of a piece, which take at most 2 ms to parse.
_PIECE = 64 * 1024
# Most open brackets that parsers accept.
_DEEPEST = 1024
# Items that are freed at a time; each may be as large as a piece.
_FREED = 8
# Most items of a valid list that holds neither data nor objects of the request, and most names.
_MOST_ITEMS = 64 * 1024

_COMMA, _LIST, _OBJECT, _END, _QUOTE, _BACKSLASH = range(1, 7)
_KINDS = np.zeros(256, np.uint8)
for _kind, _marks in enumerate((b",", b"[", b"{", b"]}", b'"', b"\\"), start=1):
    _KINDS[[*_marks]] = _kind

# Names of members that stand for the JSON before and after a piece; no client can know them.
_BEFORE, _AFTER = (secrets.token_hex(8) for _ in range(2))
_CONTINUED = {_LIST: "[", _OBJECT: f'{{"{_BEFORE}":'}
_INTERRUPTED = {_LIST: "null]", _OBJECT: f'"{_AFTER}":null}}'}
_CLOSED = {_LIST: "]", _OBJECT: "}"}
METADATA = "metadata"
ANY = "*"
_PLACE = re.compile(r"line (\d+) column (\d+)")


@dataclass(frozen=True)
class Form:
    """The fields of a request that are read.

    Paths are the levels of `KnownFields`: `` is the request, `inputs[]` one of its inputs.

    Attributes:
        objects: Fields of objects by path. The first unknown fields are kept without values.
        texts: Lists of any length, without lists and objects in them.
        nested: Lists of any length, or of such lists.
        numbers: Lists of any length that become arrays of float64, `[time]` or `[time, channel]`,
            if they only hold numbers and nulls; null becomes `NULL`.
        named: Objects with any names; `ANY` stands for a name in the path of its value.
    """

    objects: Mapping[str, Mapping[str, Any]]
    texts: Set[str] = frozenset()
    nested: Set[str] = frozenset()
    numbers: Set[str] = frozenset()
    named: Set[str] = frozenset()


def read_pieces(body: memoryview, form: Form, most: int) -> Any:  # noqa: ANN401 - any JSON
    """Read the JSON of the form's fields, with at most `most` items in a list of objects.

    Metadata become bytes, as by `echo`. A longer list keeps its length, but one item stands for all
    items beyond the limit. ValueError: the body is not JSON, with the place.
    """
    merged = _Merged(form, most, body)
    for piece in _pieces(body):
        is_strict = True
        try:
            value = orjson.loads(piece.text)
        except orjson.JSONDecodeError:
            is_strict = False
            try:
                value = read_leniently(piece.text)
            except ValueError as error:
                raise ValueError(_moved(str(error), body, piece)) from None
        merged.add(value, piece, is_strict=is_strict)
    return merged.value


class _Opened(NamedTuple):
    """A bracket that a piece opens and does not close; `key` is the text since the last mark."""

    kind: int
    key: bytes
    start: int


@dataclass
class _Piece:
    # JSON: `added` bytes of brackets, then the part of the body from `start` on.
    text: bytes
    start: int
    added: int
    is_last: bool
    # Number of earlier brackets that stay open; the additional brackets that it opens.
    kept: int
    opened: list[_Opened]
    # `[brackets]`: their places in the part, and the change of depth after each.
    brackets: NDArray[np.int64]
    depths: NDArray[np.int64]

    def end_of(self, depth: int) -> int:
        """Where in the body an earlier bracket is closed; depth -1 is the innermost."""
        return self.start + int(self.brackets[np.argmax(self.depths == depth)]) + 1


def _pieces(body: memoryview) -> Iterator[_Piece]:
    start, stack = 0, list[int]()
    while start < len(body):
        end, at, kinds = _part(body, start)
        piece = _piece(body, start, end, at, kinds, stack)
        yield piece
        stack = stack[: piece.kept] + [each.kind for each in piece.opened]
        start = end


def _part(body: memoryview, start: int) -> tuple[int, NDArray[np.int64], NDArray[np.uint8]]:
    """The end of the part from `start` on, and its structure without the final comma.

    Only its last `_PIECE` bytes have commas. Before them is one text, number or blank, or too many
    brackets for JSON that a parser accepts.
    """
    end, is_quoted, brackets = start, False, 0
    found: list[tuple[NDArray[np.int64], NDArray[np.uint8]]] = []
    while end < len(body):
        begin, end = end, min(end + _PIECE, len(body))
        text = bytes(body[begin:end])
        if (len(text) - len(text.rstrip(b"\\"))) % 2:
            # The last backslash escapes the next byte.
            end = min(end + 1, len(body))
        at, kinds, is_quoted = _structure(np.frombuffer(body[begin:end], np.uint8), is_quoted)
        at += begin - start
        commas = np.flatnonzero(kinds == _COMMA)
        if len(commas) and end < len(body):
            cut = int(commas[-1])
            end = start + int(at[cut]) + 1
            found.append((at[:cut], kinds[:cut]))
            break
        found.append((at, kinds))
        brackets += len(kinds)
        if brackets > 2 * _DEEPEST:
            break
    at, kinds = (np.concatenate(each) for each in zip(*found, strict=True))
    return end, at, kinds


def _structure(
    text: NDArray[np.uint8], is_quoted: bool
) -> tuple[NDArray[np.int64], NDArray[np.uint8], bool]:
    """Places and kinds of brackets and commas outside of strings, and whether a string is open.

    `is_quoted`: a string is open at the start of the text. The text is a piece at most, as this
    takes many times its memory.
    """
    kinds = _KINDS[text]
    at = np.flatnonzero(kinds)
    kinds = kinds[at]
    if not is_quoted and not (kinds >= _QUOTE).any():
        return at, kinds, False
    quotes = kinds == _QUOTE
    slashes = at[kinds == _BACKSLASH]
    if len(slashes):
        # Every other backslash of a run escapes the next byte.
        order = np.arange(len(slashes))
        firsts = np.maximum.accumulate(np.where(np.diff(slashes, prepend=-2) != 1, order, 0))
        escaped = np.zeros(len(text) + 1, bool)
        escaped[slashes[(order - firsts) % 2 == 0] + 1] = True
        quotes &= ~escaped[at]
    before = np.cumsum(quotes) + is_quoted
    outside = (kinds < _QUOTE) & (before % 2 == 0)
    return at[outside], kinds[outside], bool((quotes.sum() + is_quoted) % 2)


def _piece(
    body: memoryview,
    start: int,
    end: int,
    at: NDArray[np.int64],
    kinds: NDArray[np.uint8],
    stack: list[int],
) -> _Piece:
    """The piece of a part; `stack` has the kinds of the brackets that are open before it."""
    ranks = np.flatnonzero(kinds != _COMMA)
    steps = np.where(kinds[ranks] == _END, -1, 1)
    depths = np.cumsum(steps)
    kept = max(0, len(stack) + int(depths.min(initial=0)))
    # A bracket stays open if no later depth is below its own.
    lowest = np.minimum.accumulate(depths[::-1])[::-1]
    opened = []
    # With more, no parser reads the piece.
    for rank in ranks[(steps > 0) & (depths == lowest)][: _DEEPEST + 1].tolist():
        before = int(at[rank - 1]) + 1 if rank else 0
        position = start + int(at[rank])
        opened.append(_Opened(int(kinds[rank]), bytes(body[start + before : position]), position))
    prefix = "".join([_CONTINUED[kind] for kind in stack]) + ("null," if stack else "")
    suffix, is_last = "", end == len(body)
    if not is_last and (now := stack[:kept] + [each.kind for each in opened]):
        suffix = _INTERRUPTED[now[-1]] + "".join([_CLOSED[kind] for kind in now[-2::-1]])
    text = b"".join((prefix.encode(), body[start:end], suffix.encode()))
    return _Piece(text, start, len(prefix), is_last, kept, opened, at[ranks], depths)


def _moved(message: str, body: memoryview, piece: _Piece) -> str:
    """The message of an error in a piece, with its place in the body."""
    before = bytes(body[: piece.start])
    lines, columns = before.count(b"\n"), piece.start - (before.rfind(b"\n") + 1)

    def move(found: re.Match[str]) -> str:
        line, column = int(found[1]), int(found[2])
        if line == 1:
            column = columns + max(1, column - piece.added)
        return f"line {lines + line} column {column}"

    return _PLACE.sub(move, message)


class _Merged:
    """The merged pieces; its value is complete after the last one."""

    def __init__(self, form: Form, most: int, body: memoryview) -> None:
        self._form = form
        self._most = most
        self._body = body
        self._open: list[_Skipped] = []
        self.value: Any = None

    def add(self, value: Any, piece: _Piece, *, is_strict: bool) -> None:  # noqa: ANN401 - any JSON
        """Merge a parsed piece."""
        if not self._open and not piece.opened:
            self.value = value
            return
        # The parts of containers that were open before, and of those that stay open.
        parts, rest = [], value
        for container in self._open:
            parts.append(rest)
            rest = rest.pop(container.before)
        opened: list[Any] = []
        last = parts[piece.kept - 1] if piece.kept else value
        for each in piece.opened:
            if opened or piece.kept:
                last = last.pop() if isinstance(last, list) else last.pop(_name(each.key))
            opened.append(last)
        if not piece.is_last:
            last.pop(*(() if isinstance(last, list) else (_AFTER,)))
        if is_strict and isinstance(value, dict):
            echo(value, piece.text)
        self._close(piece, parts, is_strict=is_strict)
        if piece.kept:
            self._open[-1].add(parts[piece.kept - 1], is_strict=is_strict)
        for each, part in zip(piece.opened, opened, strict=True):
            self._open.append(self._container(each))
            self._open[-1].add(part, is_strict=is_strict)

    def _close(self, piece: _Piece, parts: list[Any], *, is_strict: bool) -> None:
        """End the containers that a piece closes, innermost first."""
        count = len(self._open)
        for index in range(count - 1, piece.kept - 1, -1):
            container = self._open.pop()
            container.add(parts[index], is_strict=is_strict)
            value = container.value
            if container.start is not None:
                value = bytes(self._body[container.start : piece.end_of(index - count)])
            if self._open:
                self._open[-1].put(container.name, value)
            else:
                self.value = value

    def _container(self, opened: _Opened) -> _Skipped:
        """The container for a list or an object, by its path."""
        form, is_list = self._form, opened.kind == _LIST
        if not self._open:
            return _Items("", "", _MOST_ITEMS) if is_list else _Members("", "", form.objects[""])
        parent = self._open[-1]
        name = "" if parent.before == 0 else _name(opened.key)
        path = _inside(parent, name)
        if path is None:
            return _Skipped(is_list, name, is_echoed=parent.is_echoed)
        if not is_list:
            if path in form.objects:
                return _Members(path, name, form.objects[path])
            if path in form.named:
                return _Named(path, name, {})
            if path == METADATA and path in form.objects[""]:
                return _Skipped(is_list, name, is_echoed=True, start=opened.start)
            return _Skipped(is_list, name)
        if path in form.numbers:
            return _Numbers(path, name)
        if path.rstrip("[]") in form.nested:
            return _Items(path, name, None, (dict,))
        if f"{path}[]" in form.objects:
            return _Items(path, name, self._most, (list,))
        is_data = path.rstrip("[]") in form.texts | form.numbers
        return _Items(path, name, None if is_data else _MOST_ITEMS)


def _inside(parent: _Skipped, name: str) -> str | None:
    """The path of a list or an object in another one; None if it is not read."""
    if isinstance(parent, _Items):
        return f"{parent.path}[]"
    if isinstance(parent, _Named):
        return f"{parent.path}.{ANY}"
    if isinstance(parent, _Members) and name in parent.known:
        return f"{parent.path}.{name}" if parent.path else name
    return None


def _name(key: bytes) -> str:
    name: str = orjson.loads(key.rstrip(b" \t\r\n")[:-1])
    return name


class _Skipped:
    """A list or an object that spans pieces; only its text is kept, if it has a `start`."""

    def __init__(
        self, is_list: bool, name: str = "", *, is_echoed: bool = False, start: int | None = None
    ) -> None:
        self.name = name
        self.is_echoed = is_echoed
        self.start = start
        # The key or index of the open container in a part of this one.
        self.before: Any = 0 if is_list else _BEFORE
        self._value: Any = [] if is_list else {}

    @property
    def value(self) -> Any:  # noqa: ANN401 - any JSON
        return self._value

    def add(self, part: Any, *, is_strict: bool) -> None:  # noqa: ANN401 - any JSON
        """Add the part of a piece, without the container that is open in it."""
        if self.is_echoed and not is_strict:
            echoed(part)

    def put(self, name: str, value: Any) -> None:  # noqa: ANN401 - any JSON
        """Add a member or item that spans pieces."""


class _Members(_Skipped):
    def __init__(self, path: str, name: str, known: Mapping[str, Any]) -> None:
        super().__init__(is_list=False, name=name)
        self.path = path
        self.known = known
        self._unknown = 0

    def add(self, part: Any, *, is_strict: bool) -> None:  # noqa: ANN401, ARG002 - as above
        for name, value in part.items():
            self.put(name, value)

    def put(self, name: str, value: Any) -> None:  # noqa: ANN401 - as above
        if name in self.known:
            self._value[name] = value
        elif self._unknown <= MOST_UNKNOWN and name not in self._value:
            self._value[name] = None
            self._unknown += 1


class _Named(_Members):
    """An object with any names."""

    def put(self, name: str, value: Any) -> None:  # noqa: ANN401 - as above
        if len(self._value) < _MOST_ITEMS:
            self._value[name] = value


class _Freed(list[Any]):
    """A list whose items are freed a few at a time: one call for all would hold the lock."""

    def __del__(self) -> None:
        while self:
            del self[-_FREED:]


class _Items(_Skipped):
    """A list at a path, of any length or of `most` items.

    The first item of a wrong type stands for all of them: an error names it.
    """

    def __init__(
        self, path: str, name: str, most: int | None, wrong: tuple[type, ...] = (list, dict)
    ) -> None:
        super().__init__(is_list=True, name=name)
        self.path = path
        self._value = _Freed()
        self._most = most
        self._wrong = wrong
        self._first: Any = None

    def add(self, part: Any, *, is_strict: bool) -> None:  # noqa: ANN401, ARG002 - as above
        if self._most is not None and len(self._value) > self._most:
            part = self._value[-1:] * len(part)
        elif any(issubclass(kind, self._wrong) for kind in set(map(type, part))):
            part = [self._instead(item) for item in part]
        self._value.extend(part)

    def _instead(self, item: Any) -> Any:  # noqa: ANN401 - as above
        if not isinstance(item, self._wrong):
            return item
        if self._first is None:
            self._first = item
        return self._first

    def put(self, name: str, value: Any) -> None:  # noqa: ANN401, ARG002 - as above
        self.add([value], is_strict=True)


class _Numbers(_Items):
    """A list of numbers and nulls, or of lists of them of one length.

    Any other list is kept up to the first wrong item, which an error names.
    """

    def __init__(self, path: str, name: str) -> None:
        super().__init__(path, name, None)
        self._arrays: list[NDArray[np.float64]] = []
        self._odd: list[Any] = []

    @property
    def value(self) -> Any:  # noqa: ANN401 - as above
        if not self._odd:
            return np.concatenate(self._arrays) if self._arrays else []
        usual = [part for array in self._arrays[:1] for part in array[:1].tolist()]
        return usual * sum(map(len, self._arrays)) + self._odd

    def add(self, part: Any, *, is_strict: bool) -> None:  # noqa: ANN401, ARG002 - as above
        if self._odd or not part:
            return
        found = _array(part)
        if found is None or found.shape[1:] != (self._arrays or [found])[0].shape[1:]:
            self._odd = part
        else:
            self._arrays.append(found)


def _array(items: list[Any]) -> NDArray[np.float64] | None:
    """Numbers and nulls, or rows of one length, as an array; None for any other items."""
    flat, kinds = items, set(map(type, items))
    is_nested = all(issubclass(kind, list) for kind in kinds)
    if is_nested:
        flat = [*chain.from_iterable(items)]
        if len(set(map(len, items))) != 1 or not flat:
            return None
        kinds = set(map(type, flat))
    if not kinds <= {int, float, type(None)}:
        return None
    if type(None) in kinds:
        flat = [NULL if value is None else value for value in flat]
    values = pack(flat, "d")
    return values if values is None or not is_nested else values.reshape(len(items), -1)


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
