"""The request to an importer, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from foretell.bundle.bounds import Bound
from foretell.bundle.manifest import Scaler
from foretell.data.panel import Panel
from foretell.importers.arguments import Argument, Arguments
from foretell.models.forecaster import Forecaster


@dataclass(frozen=True)
class Request:
    """What to adopt, and what is known about it.

    Attributes:
        file: The checkpoint, or the folder of a library.
        source: The code base or library it comes from, where its keys do not determine it.
        architecture: The architecture, where neither setting nor command names it.
        member: Which of the models of a folder.
        data: The CSV it was trained on, or None.
        setting: The name of its folder; by default that of the folder it lies in.
        script: A script, YAML or JSON file of its arguments, or the command that trained it.
        arguments: Its arguments one by one, by the published code's names.
        scaler: Its standardisation, where not that of the data's training rows.
        unscaled: Whether it was trained on values as they are.
        channels: Columns of the data in the model's order, where not all as they come.
        frequency: Spacing of the steps, where there is no data to tell it.
        bounds: Limits of channels, by name.
        defaults: Take what is not known from the defaults of the code base.
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
    frequency: str | None = None
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    defaults: bool = False


class SavedModel(NamedTuple):
    """A model that others have trained.

    Attributes:
        model: In eval mode.
        arguments: What it depends on by its source's names, each with its provenance.
        channels: Their names, where the checkpoint has them.
        frequency: The frequency, likewise.
        unscaled: Whether its source trains on values as they are.
        panel: The data, where its source reads them in an order of its own; it then standardises
            by their training rows.
    """

    model: Forecaster
    arguments: Arguments
    channels: Argument | None = None
    frequency: Argument | None = None
    unscaled: bool = False
    panel: Panel | None = None
