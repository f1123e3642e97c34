"""Options of `foretell train`: the fields of the configs of training, architectures, mechanisms."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from foretell.commands.data_options import HEADING
from foretell.commands.fields import described, metavar
from foretell.commands.grouped import Option
from foretell.data.reading import Reading
from foretell.models.attention.mechanism import MECHANISMS, MechanismConfig
from foretell.models.attention.notation import read_notation
from foretell.models.forecaster import ARCHITECTURES, ForecasterConfig
from foretell.training.config import TrainingConfig

_ATTENTION = "attention"
# What the training or the data says of every model.
_KNOWN = ("architecture", "channels", "targets", "context", "horizon", "calendar")


class Arguments(Reading, TrainingConfig):
    """What the flags and the YAML file can say."""

    data: Path = Field(description="The file: CSV, Parquet or Arrow, with a column of timestamps.")
    out: Path = Field(description="Folder of the checkpoint.")
    tensorboard: Path | None = Field(
        default=None,
        description="Folder that gets what every epoch came to, for TensorBoard; needs the extra "
        "tensorboard.",
    )

    def settings(self) -> TrainingConfig:
        """Everything that is not about files and columns."""
        names = set(TrainingConfig.model_fields)
        return TrainingConfig.model_validate(self.model_dump(include=names))


def arguments_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """What `Arguments` are made of, from settings by their names as flags.

    Raises:
        ValueError: a setting is of nothing; the message begins with its name.
    """
    fields: dict[str, Any] = {}
    model: dict[str, Any] = {}
    mechanism: dict[str, Any] = {}
    own, of_models, of_mechanisms = _own_fields(), _model_fields(), _mechanism_fields()
    for name, value in given.items():
        if name in own:
            fields[name] = value
            continue
        owners = of_models.get(name) or of_mechanisms.get(name)
        if owners is None:
            raise ValueError(f"{name}: unknown setting")
        nothing = value is None or value == "none"
        if nothing and not any(_may_be_none(field) for _, field in owners):
            # Nothing is said of it then.
            continue
        target = model if name in of_models else mechanism
        target[name] = None if nothing else value
    family = ARCHITECTURES.get(str(fields.get("arch")))
    if family is not None and _ATTENTION in family.model_fields:
        model |= _attention(family, model.get(_ATTENTION), mechanism)
    elif mechanism and family is not None:
        raise ValueError(f"{next(iter(mechanism))}: {fields['arch']} has no attention")
    return fields | {"model": model}


def _attention(
    family: type[ForecasterConfig], given: object, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The mechanism of each layer with its settings; nothing where nothing is set."""
    if given is None and not settings:
        return {}
    if given is None:
        given = [one.mechanism for one in family.model_fields[_ATTENTION].default]
    if isinstance(given, str) or not isinstance(given, Iterable) or isinstance(given, Mapping):
        given = [given]
    found = [
        layer
        for one in given
        for layer in (read_notation(one) if isinstance(one, str) else [copy.deepcopy(one)])
    ]
    mechanisms, left = list(_named(found)), set(settings)
    for fields in mechanisms:
        config = MECHANISMS.get(fields["mechanism"])
        own = settings.keys() & config.model_fields.keys() if config else set()
        left -= own
        fields |= {name: settings[name] for name in own - fields.keys()}
    if left:
        names = ", ".join(fields["mechanism"] for fields in mechanisms)
        raise ValueError(f"{min(left)}: attention by {names} has none")
    return {_ATTENTION: found}


def _named(fields: object) -> Iterator[dict[str, Any]]:
    """The fields of each mechanism, and of those that it is made of."""
    if isinstance(fields, dict):
        if isinstance(fields.get("mechanism"), str):
            yield fields
        fields = list(fields.values())
    if isinstance(fields, list | tuple):
        for each in fields:
            yield from _named(each)


def _may_be_none(field: FieldInfo) -> bool:
    return type(None) in get_args(field.annotation)


def _own_fields() -> dict[str, FieldInfo]:
    fields = {name: each for name, each in Arguments.model_fields.items() if name != "model"}
    return dict(sorted(fields.items(), key=lambda item: not item[1].is_required()))


def _fields_of(
    classes: Mapping[str, type[BaseModel]], without: Collection[str]
) -> dict[str, list[tuple[str, FieldInfo]]]:
    """By name of a setting: whose it is, and it there."""
    found: dict[str, list[tuple[str, FieldInfo]]] = {}
    for owner, config in classes.items():
        for name, field in config.model_fields.items():
            if name not in without:
                found.setdefault(name, []).append((owner, field))
    return found


def _model_fields() -> dict[str, list[tuple[str, FieldInfo]]]:
    return _fields_of(ARCHITECTURES, _KNOWN)


def _mechanism_fields() -> dict[str, list[tuple[str, FieldInfo]]]:
    single = {name: one for name, one in MECHANISMS.items() if not one.made_of_others}
    return _fields_of(single, MechanismConfig.model_fields)


def options() -> list[Option]:
    """One for every setting: those of training first, then of models, then of mechanisms."""
    schema = Arguments.model_json_schema()["properties"]
    schema["arch"]["enum"] = list(ARCHITECTURES)
    options = [
        Option(
            _heading(name),
            name,
            multiple=schema[name].get("type") == "object",
            metavar=metavar(schema[name]),
            help=described([field]),
        )
        for name, field in _own_fields().items()
    ]
    models = _model_fields()
    for families in dict.fromkeys(_names(owners) for owners in models.values()):
        for name, owners in models.items():
            if _names(owners) == families:
                options.append(_model_option(f"Model: {families}", name, owners, ARCHITECTURES))
    for name, owners in _mechanism_fields().items():
        if name in models or name in Arguments.model_fields:
            raise ValueError(f"{name}: a setting of {_names(owners)}, and of what is trained")
        heading = f"With --attention {_names(owners)}"
        options.append(_model_option(heading, name, owners, MECHANISMS))
    return options


def _heading(name: str) -> str:
    return HEADING if name == "data" or name in Reading.model_fields else "Training"


def _names(owners: Iterable[tuple[str, FieldInfo]]) -> str:
    return ", ".join(owner for owner, _ in owners)


def _model_option(
    heading: str,
    name: str,
    owners: list[tuple[str, FieldInfo]],
    classes: Mapping[str, type[BaseModel]],
) -> Option:
    if name == _ATTENTION:
        names = (name for name, config in MECHANISMS.items() if not config.made_of_others)
        shown = f"{'|'.join(names)}[,…]"
    else:
        schemas = (classes[owner].model_json_schema()["properties"][name] for owner, _ in owners)
        shown = "|".join(dict.fromkeys(metavar(schema) for schema in schemas))
    return Option(heading, name, metavar=shown, help=described([field for _, field in owners]))
