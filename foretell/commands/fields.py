"""What the help of an option says of the field that it sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined


def described(fields: Sequence[FieldInfo]) -> str:
    """Descriptions and defaults of the fields that an option sets."""
    texts = " ".join(dict.fromkeys(field.description or "" for field in fields))
    defaults = dict.fromkeys(_shown(field) for field in fields)
    shown = " or ".join(default for default in defaults if default)
    return f"{texts}  [default: {shown}]" if shown else texts


def _shown(field: FieldInfo) -> str:
    default = field.default
    if default is PydanticUndefined or default is None or default == {}:
        return ""
    parts = default if isinstance(default, tuple) else (default,)
    # Of the config of a mechanism, its name.
    return ",".join(str(getattr(one, "mechanism", one)) for one in parts)


def metavar(schema: dict[str, Any]) -> str:
    """What a value looks like, by the JSON schema of its field."""
    kinds = schema.get("anyOf", [schema])
    return "|".join(
        "|".join(str(one) for one in kind["enum"] if one is not None)
        if "enum" in kind
        else {"array": "a,b,…", "object": "NAME=VALUE,…", "null": "none"}.get(
            kind.get("type", ""), kind.get("format", kind.get("type", "value")).upper()
        )
        for kind in kinds
        if kind.get("type") != "null" or any("enum" in other for other in kinds)
    )
