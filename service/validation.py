"""Checks requests; errors name the path of the invalid value."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, LiteralString, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError, PydanticKnownError

from foretell.bundle.nearness import nearest, plain
from foretell.service.errors import InvalidInputError

_Model = TypeVar("_Model", bound=BaseModel)
# Most characters of a text in a message.
_LONGEST = 60
# Most characters of a name in the ledger: databases bound the keys of their indexes.
_LONGEST_STORED = 500
_STORABLE: LiteralString = "expected at most 500 characters and no null character"
# Items of a list that one call checks while it holds the interpreter's lock.
_PIECE = 64 * 1024
# Expected values, by pydantic's type of error.
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
    "is_instance_of": "{class}",
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


def validate(kind: type[_Model], value: object, path: str = "") -> _Model:
    """Validate parsed JSON at a path in the request as a wire type, or raise InvalidInputError."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise refusal(error, path) from None


def refusal(error: ValidationError, path: str = "") -> InvalidInputError:
    """The first error of a value at a path in the request."""
    first = error.errors(include_url=False)[0]
    for part in first["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return InvalidInputError(_message(first), param=path or None)


Digest = Annotated[
    str,
    Field(
        description="`sha256:` and the digest of the manifest, which has the sha256 of every other "
        "file of the bundle."
    ),
]


def optional(description: str) -> Any:  # noqa: ANN401 - the default of a field of any type
    """A field of a wire type that may be absent, or null."""
    return Field(default=None, description=description)


def at_most(count: int) -> BeforeValidator:
    """Refuse a longer list before its items are validated; `max_length` refuses it afterwards."""

    def check(value: object) -> object:
        if isinstance(value, list) and len(value) > count:
            context = {"field_type": "List", "max_length": count, "actual_length": len(value)}
            raise PydanticKnownError("too_long", context)
        return value

    return BeforeValidator(check)


def is_storable(text: str) -> bool:
    """Whether the database of the ledger can store a text."""
    return len(text) <= _LONGEST_STORED and "\0" not in text


def check_storable(text: str, path: str) -> None:
    """Check that the database of the ledger can store a text at a path in the request."""
    if not is_storable(text):
        raise InvalidInputError(f"{_STORABLE}, got {shown(text)}", param=path)


def _check_storable(text: str) -> str:
    if not is_storable(text):
        raise PydanticCustomError("not_storable", _STORABLE)
    return text


# A text that the database of the ledger stores, or searches for.
Storable = Annotated[str, AfterValidator(_check_storable)]


def check_list(value: object) -> object:
    """Accept any list unchanged: its items are checked later, all at once."""
    if not isinstance(value, list):
        raise PydanticKnownError("list_type")
    return value


def check_texts(values: list[Any], path: str) -> None:
    """Check that a list at a path in the request only holds strings."""
    for start in range(0, len(values), _PIECE):
        piece = values[start : start + _PIECE]
        if set(map(type, piece)) != {str}:
            index = next(index for index, value in enumerate(piece) if type(value) is not str)
            raise InvalidInputError(
                f"expected a string, got {shown(piece[index])}", param=f"{path}[{start + index}]"
            )


def _message(error: ErrorDetails) -> str:
    if error["type"] == "missing":
        return "required, but missing"
    if error["type"] == "extra_forbidden":
        return "unknown; leave it out"
    expected = _EXPECTED.get(error["type"])
    if expected is None:
        return f"{error['msg']}, got {shown(error['input'])}"
    return f"expected {expected.format(**error.get('ctx', {}))}, got {shown(error['input'])}"


# Most different unknown fields of one request: each is compared with the known ones.
MOST_UNKNOWN = 64
# Path of the first unknown field by level and name; these fields are ignored.
UnknownFields = dict[tuple[str, str], str]
# The level of the parameters of the URL.
QUERY = "query"


class KnownFields:
    def __init__(self, levels: Mapping[str, Mapping[str, Any]]) -> None:
        # Fields by level: `inputs[]` is an object in `inputs`, `` the request itself.
        self.levels = levels

    def check(self, level: str, given: Iterable[str], path: str, unknown: UnknownFields) -> None:
        """Refuse unknown fields that resemble a known one, or are too many; collect the others."""
        for name in given:
            if name in self.levels[level] or (level, name) in unknown:
                continue
            param = ".".join(filter(None, (path, name[:_LONGEST])))
            if len(unknown) >= MOST_UNKNOWN:
                raise InvalidInputError(
                    f"unknown, as are {MOST_UNKNOWN} names before it", param=param
                )
            if hint := self._hint(level, name):
                raise InvalidInputError(f"unknown; {hint}", param=param)
            unknown[level, name] = param

    def _hint(self, level: str, name: str) -> str | None:
        for other, known in self.levels.items():
            if name in known:
                return f"{name!r} belongs {_within(other)}"
        if meant := nearest(name, self.levels[level]):
            return f"did you mean {meant!r}?"
        given = plain(name)
        for other, known in self.levels.items():
            if meant := next((each for each in known if plain(each) == given), None):
                return f"did you mean {meant!r} {_within(other)}?"
        return None


def _within(level: str) -> str:
    return f"in {level}" if level else "at the top level"


def shown(value: object) -> str:
    """A JSON value in an error message, short and in JSON's notation."""
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
