"""What a folder says that a library saved a model in."""

from __future__ import annotations

from typing import NamedTuple

from foretell.importers.arguments import Argument, Arguments
from foretell.models.forecaster import Forecaster


class Saved(NamedTuple):
    """A model that a library saved.

    Attributes:
        model: In eval mode.
        arguments: What it depends on by the library's names, each with its provenance.
        channels: Their names, where the folder tells them, and the frequency.
        frequency: Likewise.
        unscaled: Whether it was trained on values as they are.
    """

    model: Forecaster
    arguments: Arguments
    channels: Argument | None = None
    frequency: Argument | None = None
    unscaled: bool = False
