"""A model that is tested: of a bundle, or of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from foretell.bundle import calibration, layout, manifest
from foretell.bundle.bounds import Limits, limits
from foretell.bundle.checksums import check
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import Scaler
from foretell.data.source import DataSource
from foretell.export.runtime import Graph
from foretell.export.serving_form import ServingForm
from foretell.models import checkpoint
from foretell.models.batches import windows_that_fit
from foretell.models.forecaster import Forecaster
from foretell.service.engine.intervals import Intervals
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from foretell.training.accuracy import Predictor

LEVELS = (0.8, 0.95)
_BATCH = 64


@dataclass(frozen=True)
class Subject:
    """A model to be tested, in the user's units.

    Attributes:
        name: For the reader.
        channels: Names of its channels.
        targets: Those of them that it forecasts.
        frequency: Spacing of its steps.
        context: Steps it reads.
        horizon: Steps it forecasts.
        calendar: Calendar features it reads, or None.
        training: Mean and standard deviation of its training rows, for the targets.
        predict: The model.
        batch: Windows a call, at most.
        intervals: Its quantiles, if it was calibrated.
        data: What it learnt from, if that is known.
    """

    name: str
    channels: tuple[str, ...]
    targets: tuple[str, ...]
    frequency: Frequency
    context: int
    horizon: int
    calendar: Calendar | None
    training: Scaler
    predict: Predictor
    batch: int = _BATCH
    intervals: Intervals | None = None
    data: DataSource | None = None

    def levels(self) -> tuple[float, ...]:
        """Those of `LEVELS` that its intervals have."""
        if self.intervals is None:
            return ()
        lowest, _ = self.intervals.extremes(self.horizon)
        return tuple(level for level in LEVELS if (1 - level) / 2 >= lowest)

    def reading(self) -> dict[str, Any]:
        """How its own data were read, and what of a file it takes."""
        known = {} if self.data is None else self.data.reading.model_dump(exclude_none=True)
        return known | {"channels": self.channels, "frequency": str(self.frequency)}


def load_subject(folder: Path) -> Subject:
    """Open a bundle, the newest version of a served model, or a checkpoint.

    Raises:
        BundleError: it is none of them, or a bundle that is damaged.
        CheckpointError: the checkpoint cannot be read.
    """
    if (folder / checkpoint.CONFIG).is_file():
        return _of_checkpoint(folder)
    folder = layout.newest(folder)
    if not (folder / layout.MANIFEST).is_file():
        raise BundleError(
            f"{folder}: neither a bundle ({layout.MANIFEST}) nor a checkpoint ({checkpoint.CONFIG})"
        )
    return _of_bundle(folder)


def _of_bundle(folder: Path) -> Subject:
    said = manifest.read(folder)
    check(folder, said.files)
    graph = Graph(folder / layout.FORECAST_GRAPH)
    offsets = calibration.read(folder, said)
    return Subject(
        name=f"{said.name}@{said.version}",
        channels=said.channels,
        targets=said.targets,
        frequency=said.step,
        context=said.context,
        horizon=said.horizon,
        calendar=said.calendar,
        training=said.target_scaler.training,
        predict=graph.predict,
        intervals=None if offsets is None else Intervals(said, offsets),
    )


def _of_checkpoint(folder: Path) -> Subject:
    info, model = checkpoint.load(folder)
    within = limits(info.bounds, info.targets)
    return Subject(
        name=folder.resolve().name,
        channels=info.channels,
        targets=info.targets,
        frequency=Frequency.parse(info.frequency),
        context=info.config.context,
        horizon=info.config.horizon,
        calendar=info.config.calendar,
        training=info.target_scaler.training,
        predict=predictor(model, info.scaler, within),
        batch=windows_that_fit(model),
        data=DataSource.recorded(info.data),
    )


def predictor(model: Forecaster, scaler: Scaler, within: Limits | None = None) -> Predictor:
    """A model in the user's units.

    Args:
        model: Of standardised windows.
        scaler: Its standardisation.
        within: What no forecast of it goes beyond, if there is anything.
    """
    form = ServingForm(model, scaler, "forecast", within).eval()

    def predict(*inputs: Tensor | None) -> Tensor:
        known = inputs if model.config.calendar is not None else inputs[:1]
        forecast: Tensor = form(*known)[0]
        return forecast

    return predict
