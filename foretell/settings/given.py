"""Settings from presets, files and options, and configurations made from them.

Settings are nested as in YAML: `{"epochs": 3, "model": {"d_model": 64}}`. `model` has the fields of
an architecture's config. A dotted name, such as `model.d_model`, is a nested setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from foretell.bundle.nearness import nearest
from foretell.data.reading import Reading
from foretell.errors import RefusedError

if TYPE_CHECKING:
    from foretell.training.config import TrainingConfig

Settings = dict[str, Any]
Config = TypeVar("Config", bound=BaseModel)

# Paths, which are settings of commands and not fields of a training or of `Reading`.
_FILES = ("data", "out", "tensorboard")


def gather(
    recipe: str | None, file: Path | None, words: Sequence[str], flags: Mapping[str, object]
) -> Settings:
    """Merge all settings; later ones override earlier ones.

    Args:
        recipe: Name of a preset.
        file: YAML file.
        words: Settings such as `model.d_model=64`.
        flags: Settings by name; None and empty ones are left out.

    Raises:
        RefusedError: one of them cannot be read.
    """
    from foretell.settings.presets import preset
    from foretell.settings.yaml_file import load

    settings = merge(preset(recipe).settings if recipe else {}, _read_file(file) if file else {})
    for word in words:
        name, text = read_word(word, "model.d_model=64")
        assign(settings, name, load(text, f"--set {word}"))
    given = {name: one for name, one in flags.items() if one not in (None, ())}
    # An option that is given several times becomes one list.
    texts = {name: ",".join(one) for name, one in given.items() if isinstance(one, tuple)}
    return merge(settings, given | texts)


def read_word(word: str, example: str) -> tuple[str, str]:
    """The name and the value of `--set`.

    Raises:
        RefusedError: name or value is missing; the message contains an example.
    """
    name, equals, text = word.partition("=")
    if not name or not equals:
        raise RefusedError(f"--set {word}: expected NAME=VALUE, as in {example}")
    return name, text


def merge(settings: Mapping[str, Any], others: Mapping[str, Any]) -> Settings:
    """Merge settings; others override settings, and fields of `model` one by one."""
    merged = {**settings, **others}
    if isinstance(others.get("model"), dict):
        merged["model"] = {**settings.get("model", {}), **others["model"]}
    return merged


def assign(settings: Settings, name: str, value: object) -> None:
    """Set a setting by its name, such as `model.d_model`.

    Raises:
        RefusedError: an outer setting is not a mapping.
    """
    *outer, last = name.replace("-", "_").split(".")
    for part in outer:
        settings = settings.setdefault(part, {})
        if not isinstance(settings, dict):
            raise RefusedError(f"{name}: {part} is {settings!r}, which has no settings")
    settings[last] = value


def _read_file(path: Path) -> Settings:
    from foretell.settings.yaml_file import load

    settings = load(path.read_bytes(), path)
    if not isinstance(settings, dict):
        raise RefusedError(f"{path}: expected settings as 'name: value', one a line")
    return {str(name).replace("-", "_"): value for name, value in settings.items()}


def needed(settings: Settings, name: str) -> Any:  # noqa: ANN401 - whatever is given
    """A required setting.

    Raises:
        RefusedError: the setting is missing.
    """
    if settings.get(name) is None:
        raise RefusedError(f"{name} is missing; give --{name}, or set it in --config")
    return settings[name]


def reading_of(settings: Mapping[str, Any]) -> Reading:
    """Options for reading a file; other settings are ignored.

    Raises:
        RefusedError: an option is wrong.
    """
    own = {name: settings[name] for name in Reading.model_fields if settings.get(name) is not None}
    return _validated(Reading, own)


def training_of(settings: Settings) -> TrainingConfig:
    """The configuration of a training.

    Raises:
        RefusedError: a setting is wrong, unknown or missing.
    """
    from foretell.models.config import ARCHITECTURES
    from foretell.training.config import TrainingConfig

    known = {*TrainingConfig.model_fields, *Reading.model_fields, *_FILES}
    for name in settings.keys() - known:
        is_of_models = any(name in family.model_fields for family in ARCHITECTURES.values())
        near = f"model.{name}" if is_of_models else nearest(name, known)
        raise RefusedError(f"{name}: unknown setting" + (f"; did you mean {near}?" if near else ""))
    own = {name: settings[name] for name in TrainingConfig.model_fields if name in settings}
    if isinstance(own.get("model"), dict):
        own["model"] = {
            name: None if value == "none" else value for name, value in own["model"].items()
        }
    for name in ("arch", "context", "horizon"):
        needed(settings, name)
    return _validated(TrainingConfig, own)


def _validated(config: type[Config], fields: Settings) -> Config:
    try:
        return config.model_validate(fields)
    except ValidationError as error:
        raise RefusedError(_problem_of(error)) from None


def _problem_of(error: ValidationError) -> str:
    """The message of the first validation error, with its field and its input."""
    first = error.errors()[0]
    message, given = first["msg"].removeprefix("Value error, "), f"got {first['input']!r}"
    text = f"{first['loc'][0]}: {message}"
    return text if given in message else f"{text}, {given}"
