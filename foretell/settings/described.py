"""What settings there are, of a training, an architecture or a mechanism of attention."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from foretell.errors import RefusedError
from foretell.importers.arguments import OPTIONS
from foretell.importers.registry import FOLDERS
from foretell.models.attention.mechanism import MECHANISMS
from foretell.models.forecaster import ARCHITECTURES
from foretell.training.config import TrainingConfig

# What the training or the data says of every model.
_KNOWN = ("architecture", "channels", "targets", "context", "horizon", "calendar")


class Setting(NamedTuple):
    """A setting, as a reader is shown it."""

    name: str
    values: str
    default: str
    description: str


def settings_of(name: str | None) -> list[Setting]:
    """Those of an architecture, a mechanism or of imports; of a training where none is named.

    Raises:
        RefusedError: there is no such architecture or mechanism.
    """
    if name is None:
        return [*_described(TrainingConfig, "", ("model",))]
    if name in ARCHITECTURES:
        return [*_described(ARCHITECTURES[name], "model.", _KNOWN)]
    if name in MECHANISMS:
        return [*_described(MECHANISMS[name], "model.attention.", ())]
    if name == "import":
        options = [*OPTIONS.items(), *(each for own in FOLDERS.values() for each in own.items())]
        return [Setting(one, "", "", option.meaning) for one, option in options if option.asked]
    raise RefusedError(f"neither an architecture nor a mechanism is called {name!r}; {names()}")


def names() -> str:
    """Of all that has settings."""
    architectures, mechanisms = ", ".join(ARCHITECTURES), ", ".join(MECHANISMS)
    return f"import; architectures: {architectures}; mechanisms: {mechanisms}"


def _described(config: type[BaseModel], prefix: str, without: Collection[str]) -> Iterator[Setting]:
    schema = config.model_json_schema()["properties"]
    for name, field in config.model_fields.items():
        if name not in without:
            values = "mechanisms" if name == "attention" else values_of(schema[name])
            yield Setting(prefix + name, values, _default(field), field.description or "")


def _default(field: FieldInfo) -> str:
    default = field.default
    if default is PydanticUndefined or default is None or default == {}:
        return ""
    parts = default if isinstance(default, tuple) else (default,)
    # Of the config of a mechanism, its name.
    return ",".join(str(getattr(one, "mechanism", one)) for one in parts)


def values_of(schema: dict[str, Any]) -> str:
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
