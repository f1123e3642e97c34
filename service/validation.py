"""What does not fit the wire types, as domain errors that name the exact place."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import ErrorDetails, PydanticKnownError

from foretell.bundle.nearness import nearest, plain
from foretell.service.errors import InvalidInputError

_Model = TypeVar("_Model", bound=BaseModel)
_LONGEST = 60
# What pydantic misses, in the words of the other messages.
_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "model_attributes_type": "an object",
    "model_type": "an object",
    "string_type": "a string",
    "too_long": "a list of at most {max_length}",
    "too_short": "a list of at least {min_length}",
}


def validate(kind: type[_Model], value: object, place: str = "") -> _Model:
    """Read a wire type.

    Args:
        kind: The wire type.
        value: Parsed JSON.
        place: Where the value stands in the request.

    Raises:
        InvalidInputError: the value does not fit; `param` is the place of the first problem.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = place
        for part in first["loc"]:
            where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else part
        raise InvalidInputError(_message(first), param=where or None) from None


def at_most(count: int) -> BeforeValidator:
    """Refuses a longer list before its items are looked at, as `max_length` does after that."""

    def check(value: object) -> object:
        if isinstance(value, list) and len(value) > count:
            context = {"field_type": "List", "max_length": count, "actual_length": len(value)}
            raise PydanticKnownError("too_long", context)
        return value

    return BeforeValidator(check)


def check_list(value: object) -> object:
    """Make sure that a value is a list, whose items are checked in bulk, and which is not copied.

    Raises:
        PydanticKnownError: it is none.
    """
    if not isinstance(value, list):
        raise PydanticKnownError("list_type")
    return value


_PIECE = 64 * 1024


def check_texts(values: list[Any], place: str) -> None:
    """Make sure that a long list holds strings.

    Args:
        values: The list.
        place: Where it stands in the request.

    Raises:
        InvalidInputError: an item is something else.
    """
    for start in range(0, len(values), _PIECE):
        piece = values[start : start + _PIECE]
        if set(map(type, piece)) != {str}:
            index = next(index for index, value in enumerate(piece) if type(value) is not str)
            raise InvalidInputError(
                f"expected a string, got {shown(piece[index])}", param=f"{place}[{start + index}]"
            )


def _message(error: ErrorDetails) -> str:
    if error["type"] == "missing":
        return "required, but missing"
    expected = _EXPECTED.get(error["type"])
    if expected is None:
        return f"{error['msg']}, got {shown(error['input'])}"
    return f"expected {expected.format(**error.get('ctx', {}))}, got {shown(error['input'])}"


# Of different names that are not known, in one request: each is compared with those that are.
MOST_IGNORED = 64
# Names that nobody reads, by level and name: where each came first.
UnknownFields = dict[tuple[str, str], str]


# The level of the URL's parameters, of which a request in JSON reads none.
QUERY = "query"


class Names:
    """The names that the objects of a request may have, wherever they stand.

    Args:
        levels: The wire type's fields by level, such as `inputs[]`; the request's own are at ``.

    Attributes:
        levels: As given.
    """

    def __init__(self, levels: Mapping[str, Mapping[str, Any]]) -> None:
        self.levels = levels

    def sift(self, level: str, given: Iterable[str], place: str, ignored: UnknownFields) -> None:
        """Refuse a name that is near a known one, and note one that is not.

        Args:
            level: Of the object.
            given: Its names, known or not.
            place: Where it stands in the request.
            ignored: Takes what is noted.

        Raises:
            InvalidInputError: a name is misspelt or misplaced, or too many are not known.
        """
        for name in given:
            if name in self.levels[level] or (level, name) in ignored:
                continue
            where = ".".join(filter(None, (place, name[:_LONGEST])))
            if len(ignored) >= MOST_IGNORED:
                raise InvalidInputError(
                    f"unknown, as are {MOST_IGNORED} names before it", param=where
                )
            if hint := self._hint(level, name):
                raise InvalidInputError(f"unknown; {hint}", param=where)
            ignored[level, name] = where

    def _hint(self, level: str, name: str) -> str | None:
        for there, known in self.levels.items():
            if name in known:
                return f"{name!r} belongs {_within(there)}"
        if meant := nearest(name, self.levels[level]):
            return f"did you mean {meant!r}?"
        given = plain(name)
        for there, known in self.levels.items():
            if meant := next((each for each in known if plain(each) == given), None):
                return f"did you mean {meant!r} {_within(there)}?"
        return None


def _within(level: str) -> str:
    return f"in {level}" if level else "at the top level"


def shown(value: object) -> str:
    """A JSON value in an error message: short, and in JSON's words."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str() if len(value) > _LONGEST:
            return f"the string {value[:_LONGEST]!r}…"
        case str():
            return f"the string {value!r}"
        case int() if value.bit_length() > 256:
            return "a number of over 70 digits"
        case float() if not math.isfinite(value):
            return json.dumps(value)
        case list():
            return f"a list of {len(value)}"
        case dict():
            return "an object"
        case _:
            return str(value)
