"""Options of how data is read: the fields of `Reading`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from foretell.commands.fields import described, metavar
from foretell.commands.grouped import Option
from foretell.data.reading import Reading

HEADING = "Data"


def options() -> list[Option]:
    """One for every field."""
    schema = Reading.model_json_schema()["properties"]
    return [
        Option(HEADING, name, metavar=metavar(schema[name]), help=described([field]))
        for name, field in Reading.model_fields.items()
    ]


def reading_of(given: Mapping[str, Any]) -> Reading:
    """How to read, from settings by their names as flags; others are passed over.

    Raises:
        ValueError: one is wrong; the message begins with its flag.
    """
    fields = {name: given[name] for name in Reading.model_fields if given.get(name) is not None}
    try:
        return Reading.model_validate(fields)
    except ValidationError as error:
        raise ValueError(problem_of(error)) from None


def problem_of(error: ValidationError) -> str:
    """The first thing that is wrong with settings, and its flag."""
    first = error.errors()[0]
    flag = "--" + str(first["loc"][0]).replace("_", "-")
    if first["type"] == "missing":
        return f"{flag} is missing; give it or set it in --config"
    message, given = first["msg"].removeprefix("Value error, "), f"got {first['input']!r}"
    return f"{flag}: {message}" if given in message else f"{flag}: {message}, {given}"


def path_of(given: Mapping[str, Any]) -> Path | None:
    """The file to read, if settings name one."""
    return Path(str(given["data"])) if given.get("data") else None
