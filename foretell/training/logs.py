"""Logs of a training: a CSV table, and events for TensorBoard."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Self

from foretell.bundle.results import Accuracy
from foretell.training.progress import EpochReport, Progress

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class CsvLog(Progress):
    """A CSV file with a row for each epoch.

    A resumed training keeps the rows of finished epochs.

    Args:
        path: The file; that of another training is replaced.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def started(self, epochs: int, steps_per_epoch: int, epochs_done: int) -> None:  # noqa: ARG002
        """Write the header and the rows of finished epochs."""
        kept: list[list[str]] = []
        if epochs_done and self._path.exists():
            with self._path.open(newline="") as file:
                _, *rows = csv.reader(file)
            kept = [row for row in rows if int(row[0]) <= epochs_done]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("w", newline="") as file:
            csv.writer(file).writerows([("epoch", *_NUMBERS), *kept])

    def finished_epoch(self, report: EpochReport) -> None:
        """Append the row of an epoch."""
        with self._path.open("a", newline="") as file:
            csv.writer(file).writerow([report.epoch, *_numbers(report).values()])


class TensorBoardLog(Progress):
    """Scalars of each epoch, next to those of the baselines; needs the package `tensorboard`.

    A context manager; leaving it closes the file.

    Args:
        folder: Folder for `tensorboard --logdir`.

    Raises:
        ImportError: the package is missing.
    """

    def __init__(self, folder: Path) -> None:
        from torch.utils import tensorboard

        self._folder = folder
        self._make = tensorboard.SummaryWriter
        self._baselines: dict[str, float] = {}
        self._writer: SummaryWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def compared(self, windows: int, baselines: Mapping[str, Accuracy]) -> None:  # noqa: ARG002
        """Keep the baselines, which are drawn as level lines."""
        self._baselines = {
            f"validation_{kind}_of_{name.replace(' ', '_')}": getattr(found, kind)
            for name, found in baselines.items()
            for kind in ("mse", "mae")
        }

    def started(self, epochs: int, steps_per_epoch: int, epochs_done: int) -> None:  # noqa: ARG002
        """Open a file, whose epochs replace those of earlier files."""
        self._writer = self._make(str(self._folder), purge_step=epochs_done + 1)

    def finished_epoch(self, report: EpochReport) -> None:
        """Write the epoch."""
        assert self._writer is not None  # noqa: S101 - it has started
        for name, value in (_numbers(report) | self._baselines).items():
            self._writer.add_scalar(name.replace("validation_", "validation/"), value, report.epoch)
        self._writer.flush()


class Together(Progress):
    """Passes every event to several `Progress` objects."""

    def __init__(self, parts: Sequence[Progress]) -> None:
        self._parts = parts

    def noted(self, message: str) -> None:
        """Pass it on."""
        for part in self._parts:
            part.noted(message)

    def warned(self, message: str) -> None:
        """Pass it on."""
        for part in self._parts:
            part.warned(message)

    def compared(self, windows: int, baselines: Mapping[str, Accuracy]) -> None:
        """Pass it on."""
        for part in self._parts:
            part.compared(windows, baselines)

    def started(self, epochs: int, steps_per_epoch: int, epochs_done: int) -> None:
        """Pass it on."""
        for part in self._parts:
            part.started(epochs, steps_per_epoch, epochs_done)

    def stepped(self, step: int, loss: float) -> None:
        """Pass it on."""
        for part in self._parts:
            part.stepped(step, loss)

    def finished_epoch(self, report: EpochReport) -> None:
        """Pass it on."""
        for part in self._parts:
            part.finished_epoch(report)


# Numbers of a report, by column.
_NUMBERS: Mapping[str, Callable[[EpochReport], float]] = {
    "learning_rate": attrgetter("learning_rate"),
    "train_loss": attrgetter("train_loss"),
    "validation_loss": attrgetter("validation_loss"),
    "validation_mse": attrgetter("validation.mse"),
    "validation_mae": attrgetter("validation.mae"),
    "seconds": attrgetter("seconds"),
}


def _numbers(report: EpochReport) -> dict[str, float]:
    return {name: read(report) for name, read in _NUMBERS.items()}
