"""What a search of settings chooses from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic.fields import FieldInfo

from foretell.commands.train_options import arguments_of
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.models.forecaster import ARCHITECTURES
from foretell.training.config import TrainingConfig
from foretell.training.errors import TrainingError
from foretell.training.preparation import forecaster_config

# Settings are flat here, by their names as flags.
Settings = Mapping[str, Any]
Values = tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """Numbers between two, even in their logarithm if that is asked for."""

    low: float
    high: float
    log: bool = False


# What is worth a search wherever there is such a setting, beside its default.
_SPACE: dict[str, Range | Values] = {
    "learning_rate": Range(1e-4, 2e-2, log=True),
    "batch_size": (16, 32, 64, 128),
    "dropout": Range(0, 0.5),
    "d_model": (16, 32, 64, 128),
    "d_ff": (32, 64, 128, 256),
    "heads": (2, 4, 8),
    "encoder_layers": (1, 2, 3),
}
# Contexts are searched where none is given: so many horizons.
_HORIZONS = (1, 2, 4, 8)


class SearchError(ValueError):
    """A search that cannot begin, go on, or end."""


def space_of(
    given: Settings, chosen: Mapping[str, Values], panel: Panel
) -> dict[str, Range | Values]:
    """What is searched: what was chosen, and of the rest what the architecture has and none gave.

    Args:
        given: Settings that are fixed.
        chosen: Values to try, by the name of a setting.
        panel: The data, which the contexts have to fit.

    Raises:
        SearchError: nothing is left to search, a setting is both, or no context fits.
    """
    if both := sorted(given.keys() & chosen.keys()):
        raise SearchError(f"{both[0]}: it is given, and to be searched")
    fields = fields_of(given["arch"])
    space: dict[str, Range | Values] = {}
    if not {"context"} & (given.keys() | chosen.keys()):
        space["context"] = _contexts({**given, **first_of(chosen)}, panel)
    for name, values in _SPACE.items():
        if name in fields and name not in given:
            default = fields[name].default
            if not isinstance(values, Range) and default not in values:
                values = (*values, default)
            space[name] = values
    space |= chosen
    if not space:
        raise SearchError("every setting is given, nothing is left to search")
    return space


def _contexts(given: Settings, panel: Panel) -> Values:
    """Contexts that the architecture and the data have room for."""
    found, problem = [], ""
    for count in _HORIZONS:
        context = int(given["horizon"]) * count
        settings = settings_of({**given, "context": context})
        try:
            forecaster_config(settings, panel.channels, panel.frequency)
            settings.cuts.cut(panel, context, settings.horizon)
            found.append(context)
        except DataError as error:
            problem = f"no context fits: {error}; give one with --context"
        except TrainingError as error:
            problem = str(error)
    if not found:
        raise SearchError(problem)
    return tuple(found)


def fields_of(arch: str) -> dict[str, FieldInfo]:
    """Settings of a training by an architecture."""
    return TrainingConfig.model_fields | ARCHITECTURES[arch].model_fields


def first_of(space: Mapping[str, Range | Values]) -> dict[str, Any]:
    """One choice of each setting."""
    return {
        name: values.low if isinstance(values, Range) else values[0]
        for name, values in space.items()
    }


def settings_of(given: Settings) -> TrainingConfig:
    """The settings of a training, without what is about files.

    Raises:
        ValueError: one of them is wrong.
    """
    fields = arguments_of(given)
    return TrainingConfig.model_validate(
        {name: value for name, value in fields.items() if name in TrainingConfig.model_fields}
    )


def read_choices(texts: Iterable[str]) -> dict[str, Values]:
    """Values to try, from words such as `d_model=16,32`.

    Raises:
        SearchError: a text is none such.
    """
    found: dict[str, Values] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name or not values:
            raise SearchError(
                f"--search {text}: expected a setting and values, as in d_model=16,32"
            )
        try:
            found[name.replace("-", "_")] = tuple(map(yaml.safe_load, values.split(",")))
        except yaml.YAMLError as error:
            raise SearchError(f"--search {text}: not YAML: {error}") from None
    return found
