"""The model of a backtest, from a bundle or a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from foretell.bundle import calibration, layout, manifest
from foretell.bundle.bounds import Limits, limits
from foretell.bundle.checksums import check
from foretell.bundle.covariates import Covariates
from foretell.bundle.errors import BundleError
from foretell.bundle.scaler import Scaler
from foretell.data.reading import Reading
from foretell.data.source import DataSource
from foretell.export.runtime import Graph
from foretell.export.serving_form import ServingForm
from foretell.models import checkpoint
from foretell.models.batches import windows_that_fit
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Inputs
from foretell.service.engine.intervals import Intervals
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from foretell.training.accuracy import Predictor

LEVELS = (0.8, 0.95)
_BATCH = 64


@dataclass(frozen=True)
class Subject:
    """The model of a backtest, in the user's units.

    Attributes:
        name: Name for messages.
        channels: Names of the channels.
        targets: Channels that the model forecasts.
        frequency: Spacing of the steps.
        context: Steps that the model reads.
        horizon: Steps that the model forecasts.
        calendar: Calendar features that the model reads, or None.
        covariates: Covariates that the model reads, or None.
        training: Mean and standard deviation of the training rows, for the targets.
        predict: Function that runs the model.
        batch: Largest number of windows in a call.
        intervals: Quantiles, if the model was calibrated.
        data: Training data, if known.
    """

    name: str
    channels: tuple[str, ...]
    targets: tuple[str, ...]
    frequency: Frequency
    context: int
    horizon: int
    calendar: Calendar | None
    covariates: Covariates | None
    training: Scaler
    predict: Predictor
    batch: int = _BATCH
    intervals: Intervals | None = None
    data: DataSource | None = None

    def levels(self) -> tuple[float, ...]:
        """Levels of `LEVELS` that the intervals support."""
        if self.intervals is None:
            return ()
        lowest, _ = self.intervals.extremes(self.horizon)
        return tuple(level for level in LEVELS if (1 - level) / 2 >= lowest)

    def reading(self) -> dict[str, Any]:
        """Reading options of the training data, with the model's columns and frequency."""
        known = {} if self.data is None else self.data.reading.model_dump(exclude_none=True)
        known |= Reading.of_covariates(self.covariates)
        return known | {"channels": self.channels, "frequency": str(self.frequency)}


def load_subject(folder: Path) -> Subject:
    """Open a bundle, the newest version of a served model, or a checkpoint.

    Raises:
        BundleError: the folder contains none of these, or the bundle is damaged.
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
    about = manifest.read(folder)
    check(folder, about.files)
    graph = Graph(folder / layout.FORECAST_GRAPH)
    offsets = calibration.read(folder, about)
    return Subject(
        name=f"{about.name}@{about.version}",
        channels=about.channels,
        targets=about.targets,
        frequency=about.step,
        context=about.context,
        horizon=about.horizon,
        calendar=about.calendar,
        covariates=about.covariates,
        training=about.target_scaler.training,
        predict=graph.predict,
        intervals=None if offsets is None else Intervals(about, offsets),
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
        covariates=info.config.covariates,
        training=info.target_scaler.training,
        predict=predictor(model, info.scaler, within),
        batch=windows_that_fit(model),
        data=DataSource.recorded(info.data),
    )


def predictor(model: Forecaster, scaler: Scaler, within: Limits | None = None) -> Predictor:
    """A function that runs a model in the user's units.

    Args:
        model: Model of standardised windows.
        scaler: Scaler of the model.
        within: Bounds that forecasts are clipped to, if any.
    """
    form = ServingForm(model, scaler, "forecast", within).eval()
    names = form.input_names

    def predict(*inputs: Any) -> Tensor:  # noqa: ANN401 - tensors; those that it reads are no None
        given = Inputs(*inputs)._asdict()
        forecast: Tensor = form(*(given[name] for name in names))[0]
        return forecast

    return predict
