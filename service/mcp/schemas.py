"""JSON schemas of the arguments of tools, from the wire types of the routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from foretell.service.mcp.wording import reworded

Schema = dict[str, Any]


def arguments(properties: Mapping[str, Schema], *required: str) -> Schema:
    """The schema of arguments by name."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def fields(kind: type[BaseModel], *names: str, **described: str) -> dict[str, Schema]:
    """Schemas of some fields of a wire type; `described` replaces descriptions."""
    schema = kind.model_json_schema()
    definitions = schema.get("$defs", {})
    found = {name: _plain(schema["properties"][name], definitions) for name in names}
    for field in found.values():
        # Agents have a tool in place of the route.
        field["description"] = reworded(field["description"])
    for name, description in described.items():
        found[name]["description"] = description
    return found


def _plain(schema: Any, definitions: Mapping[str, Schema]) -> Any:  # noqa: ANN401 - any JSON
    """The schema without references, titles, and null for absent fields.

    Agents read it as text, and some clients do not follow references.
    """
    if isinstance(schema, list):
        return [_plain(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _plain({**definitions[name], **_without(schema, "$ref")}, definitions)
    if schema.get("default", "") is None:
        given = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
        schema = _without(schema, "default", "anyOf")
        schema |= given[0] if len(given) == 1 else {"anyOf": given}
        return _plain(schema, definitions)
    # A property may be called `title`, but its schema is not a text.
    return {
        name: _plain(value, definitions)
        for name, value in schema.items()
        if not (name == "title" and isinstance(value, str))
    }


def _without(schema: Schema, *names: str) -> Schema:
    return {name: value for name, value in schema.items() if name not in names}
