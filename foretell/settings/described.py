"""Descriptions of the settings of trainings, architectures, mechanisms and imports."""

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
from foretell.models.config import ARCHITECTURES
from foretell.training.config import TrainingConfig

# Fields of models that the training or the data determines.
_KNOWN = ("architecture", "channels", "targets", "context", "horizon", "calendar", "covariates")


class Setting(NamedTuple):
    """A setting as cells of a table."""

    name: str
    values: str
    default: str
    description: str


def settings_of(name: str | None) -> list[Setting]:
    """The settings of an architecture, a mechanism or imports; without a name, of a training.

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
        return [Setting(one, "", "", option.meaning) for one, option in options if option.settable]
    raise RefusedError(f"neither an architecture nor a mechanism is called {name!r}; {names()}")


def names() -> str:
    """The names that `settings_of` takes, for a message."""
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
    # The default of a mechanism is its name.
    return ",".join(str(getattr(one, "mechanism", one)) for one in parts)


def values_of(schema: dict[str, Any]) -> str:
    """The allowed values of a field, as text, from its JSON schema."""
    kinds = schema.get("anyOf", [schema])
    if not any("enum" in kind for kind in kinds):
        kinds = [kind for kind in kinds if kind.get("type") != "null"]
    return "|".join(map(_values_of_kind, kinds))


def _values_of_kind(kind: dict[str, Any]) -> str:
    if "enum" in kind:
        return "|".join(str(one) for one in kind["enum"] if one is not None)
    name = kind.get("type", "value")
    texts = {"array": "a,b,…", "object": "NAME=VALUE,…", "null": "none"}
    return texts.get(name) or kind.get("format", name).upper()
