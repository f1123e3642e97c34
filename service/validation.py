"""Pydantic's findings as domain errors that name the exact place."""

from __future__ import annotations

import json
import math
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

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


def _message(error: ErrorDetails) -> str:
    if error["type"] == "missing":
        return "required, but missing"
    expected = _EXPECTED.get(error["type"])
    if expected is None:
        return f"{error['msg']}, got {shown(error['input'])}"
    return f"expected {expected.format(**error.get('ctx', {}))}, got {shown(error['input'])}"


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
