"""Search space: settings, and the values that a search tries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.errors import RefusedError
from foretell.models.config import ARCHITECTURES
from foretell.settings.given import Settings, assign, training_of
from foretell.settings.yaml_file import load
from foretell.training.config import TrainingConfig
from foretell.training.errors import TrainingError
from foretell.training.preparation import forecaster_config

Values = tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """Numbers between two, uniform, or uniform in their logarithm."""

    low: float
    high: float
    log: bool = False


# By the names of settings, such as `model.d_model`.
Space = Mapping[str, Range | Values]
# Settings that are searched by default if the architecture has them. Defaults are added.
_SPACE: Space = {
    "learning_rate": Range(1e-4, 2e-2, log=True),
    "batch_size": (16, 32, 64, 128),
    "model.dropout": Range(0, 0.5),
    "model.d_model": (16, 32, 64, 128),
    "model.d_ff": (32, 64, 128, 256),
    "model.heads": (2, 4, 8),
    "model.encoder_layers": (1, 2, 3),
}
# Contexts that are searched by default, in horizons.
_HORIZONS = (1, 2, 4, 8)


def space_of(given: Settings, chosen: Mapping[str, Values], panel: Panel) -> Space:
    """The search space: chosen settings, and default ones of the architecture that are not fixed.

    Args:
        given: Fixed settings.
        chosen: Values to try, by name of the setting.
        panel: Data, which must be long enough for the contexts.

    Raises:
        RefusedError: nothing is left to search, a setting is fixed and chosen, or no context fits.
    """
    fixed = {*given, *(f"model.{name}" for name in given.get("model", {}))}
    if both := sorted(fixed & chosen.keys()):
        raise RefusedError(f"{both[0]}: the setting is both fixed and searched")
    fields = fields_of(given["arch"])
    space: dict[str, Range | Values] = {}
    if "context" not in fixed | chosen.keys():
        space["context"] = _contexts(given, first_of(chosen), panel)
    for name, values in _SPACE.items():
        if name in fields and name not in fixed:
            default = fields[name].default
            if not isinstance(values, Range) and default not in values:
                values = (*values, default)
            space[name] = values
    space |= chosen
    if not space:
        raise RefusedError("every setting is fixed; nothing is left to search")
    return space


def _contexts(given: Settings, chosen: Mapping[str, Any], panel: Panel) -> Values:
    """Contexts that fit the architecture and the data."""
    found, problem = [], ""
    for count in _HORIZONS:
        context = int(given["horizon"]) * count
        training = training_with(given, {**chosen, "context": context})
        try:
            forecaster_config(
                training, panel.channels, panel.frequency, covariates=panel.covariates
            )
            training.cuts.cut(panel, context, training.horizon)
            found.append(context)
        except DataError as error:
            problem = f"no context fits: {error}; give one with --context"
        except TrainingError as error:
            problem = str(error)
    if not found:
        raise RefusedError(problem)
    return tuple(found)


def fields_of(arch: str) -> dict[str, FieldInfo]:
    """Fields of a training and of its architecture, by name of the setting."""
    own = {f"model.{name}": field for name, field in ARCHITECTURES[arch].model_fields.items()}
    return TrainingConfig.model_fields | own


def first_of(space: Space) -> dict[str, Any]:
    """The first value of each setting."""
    return {
        name: values.low if isinstance(values, Range) else values[0]
        for name, values in space.items()
    }


def settings_with(given: Settings, chosen: Mapping[str, Any]) -> Settings:
    """Fixed settings together with chosen ones."""
    settings = deepcopy(given)
    for name, value in chosen.items():
        assign(settings, name, value)
    return settings


def training_with(given: Settings, chosen: Mapping[str, Any]) -> TrainingConfig:
    """The configuration of a training with fixed and chosen settings.

    Raises:
        RefusedError: a setting is wrong.
    """
    return training_of(settings_with(given, chosen))


def read_choices(texts: Iterable[str]) -> dict[str, Values]:
    """Values to try, from texts such as `model.d_model=16,32`.

    Raises:
        RefusedError: a text has another form.
    """
    found: dict[str, Values] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name or not values:
            raise RefusedError(
                f"--search {text}: expected a setting and values, as in model.d_model=16,32"
            )
        found[name.replace("-", "_")] = tuple(
            load(value, f"--search {text}") for value in values.split(",")
        )
    return found
