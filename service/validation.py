"""Pydantic's findings as domain errors that name the exact place."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from service.errors import InvalidInputError

_Model = TypeVar("_Model", bound=BaseModel)
_LONGEST = 60


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
        first = error.errors(include_url=False, include_context=False)[0]
        where = place
        for part in first["loc"]:
            where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else part
        if first["type"] == "missing":
            message = "required, but missing"
        elif first["type"] in ("model_type", "dict_type"):
            message = f"expected an object, got {shown(first['input'])}"
        else:
            message = f"{first['msg']}, got {shown(first['input'])}"
        raise InvalidInputError(message, param=where or None) from None


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
        case list():
            return f"a list of {len(value)}"
        case dict():
            return "an object"
        case _:
            return str(value)
