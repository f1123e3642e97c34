"""Merges the pieces of large JSON: a container that spans several is kept if a `Form` has it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from foretell.service.forecast.cut import AFTER, BEFORE, LIST, Opened, Piece
from foretell.service.forecast.form import ANY, Form
from foretell.service.forecast.metadata import METADATA, echo, echoed
from foretell.service.forecast.values import NULL, pack
from foretell.service.validation import MOST_UNKNOWN

# Items that are freed at a time; each may be as large as a piece.
_FREED = 8
# Most items of a valid list that holds neither data nor objects of the request, and most names.
_MOST_ITEMS = 64 * 1024


class Merged:
    """The merged pieces; its value is complete after the last one."""

    def __init__(self, form: Form, most: int, body: memoryview) -> None:
        self._form = form
        self._most = most
        self._body = body
        self._open: list[_Skipped] = []
        self.value: Any = None

    def add(self, value: Any, piece: Piece, *, is_strict: bool) -> None:  # noqa: ANN401 - any JSON
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
            last.pop(*(() if isinstance(last, list) else (AFTER,)))
        if is_strict and isinstance(value, dict):
            echo(value, piece.text)
        self._close(piece, parts, is_strict=is_strict)
        if piece.kept:
            self._open[-1].add(parts[piece.kept - 1], is_strict=is_strict)
        for each, part in zip(piece.opened, opened, strict=True):
            self._open.append(self._container(each))
            self._open[-1].add(part, is_strict=is_strict)

    def _close(self, piece: Piece, parts: list[Any], *, is_strict: bool) -> None:
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

    def _container(self, opened: Opened) -> _Skipped:
        """The container for a list or an object, by its path."""
        form, is_list = self._form, opened.kind == LIST
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
        self.before: Any = 0 if is_list else BEFORE
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
