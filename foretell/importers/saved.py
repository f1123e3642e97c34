"""The request to an importer, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from foretell.bundle.bounds import Bound
from foretell.bundle.scaler import Scaler
from foretell.data.panel import Panel
from foretell.importers.arguments import Argument, Arguments
from foretell.models.forecaster import Forecaster


@dataclass(frozen=True)
class Request:
    """A checkpoint to import, and the known facts about it.

    Attributes:
        file: The checkpoint, or the folder of a library.
        source: The code base or library; needed if the keys do not determine it.
        architecture: The architecture; needed if neither setting nor command names it.
        member: Name of a model in a folder of several.
        data: The file of the training data, or None.
        setting: Name of the checkpoint's folder; that of the folder it lies in by default.
        script: A script, YAML or JSON file with arguments, or the command that trained it.
        arguments: Single arguments, by the published code's names.
        scaler: Standardisation, if it is not that of the data's training rows.
        unscaled: Whether the model was trained on unscaled values.
        channels: Columns of the data in the model's order; all in the file's order by default.
        future_covariates: Names of the future covariates in the model's order, separated by commas,
            for a library that does not save them.
        static_covariates: Names of the static covariates in the model's order, for such a library.
        frequency: Spacing of the steps; needed without data.
        bounds: Limits of channels, by name.
        defaults: Take missing arguments from the defaults of the code base.
    """

    file: Path
    source: str | None = None
    architecture: str | None = None
    member: str | None = None
    data: Path | None = None
    setting: str | None = None
    script: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    scaler: Scaler | None = None
    unscaled: bool = False
    channels: tuple[str, ...] | None = None
    future_covariates: str | None = None
    static_covariates: str | None = None
    frequency: str | None = None
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    defaults: bool = False


class SavedModel(NamedTuple):
    """A model that another code base has trained.

    Attributes:
        model: The model in eval mode.
        arguments: Arguments that it depends on, by the source's names, with their provenance.
        channels: Names of the channels, if the checkpoint has them.
        frequency: Spacing of the steps, if the checkpoint has it.
        unscaled: Whether the source trains on unscaled values.
        panel: The data in the source's order, if the source reorders and standardises it.
    """

    model: Forecaster
    arguments: Arguments
    channels: Argument | None = None
    frequency: Argument | None = None
    unscaled: bool = False
    panel: Panel | None = None
