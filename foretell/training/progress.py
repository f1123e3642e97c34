"""Progress of a training: events, and their display on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from foretell.bundle.results import Accuracy


class EpochReport(NamedTuple):
    """The results of an epoch, in standardised units.

    Attributes:
        epoch: Number of the epoch, from 1.
        train_loss: Mean validation loss of the training windows, each with the weights before its
            step.
        validation_loss: Mean validation loss of the validation windows, with the weights after the
            epoch.
        validation: Errors in the validation windows.
        best_epoch: Epoch with the lowest validation loss so far.
        learning_rate: Learning rate of the first step.
        seconds: Duration, including validation.
    """

    epoch: int
    train_loss: float
    validation_loss: float
    validation: Accuracy
    best_epoch: int
    learning_rate: float
    seconds: float


class Progress:
    """Receives the events of a training; this class ignores them."""

    def noted(self, message: str) -> None:
        """The training chose a value that the settings leave open."""

    def warned(self, message: str) -> None:
        """The data has a property that may cost accuracy."""

    def compared(self, windows: int, baselines: Mapping[str, Accuracy]) -> None:
        """The baselines were measured in the validation windows."""

    def started(self, epochs: int, steps_per_epoch: int, epochs_done: int) -> None:
        """Training begins, or goes on after `epochs_done` epochs."""

    def stepped(self, step: int, loss: float) -> None:
        """Steps up to `step` of this epoch are done; `loss` is their mean."""

    def finished_epoch(self, report: EpochReport) -> None:
        """An epoch is over."""


class ConsoleProgress(Progress):
    """One line per epoch, and on a terminal a bar with loss and remaining time.

    A context manager; leaving it removes the bar.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bars = Bars(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._bar = self.bars.add_task("", total=None, epoch="", loss="-")
        self._epochs = 0
        self._steps = 0
        self._done = 0

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def noted(self, message: str) -> None:
        """Print the message."""
        self._print(message)

    def warned(self, message: str) -> None:
        """Print the warning."""
        self._print(f"warning: {message}")

    def compared(self, windows: int, baselines: Mapping[str, Accuracy]) -> None:
        """Print the errors of the baselines."""
        errors = ", ".join(f"{name} {_errors(found)}" for name, found in baselines.items())
        self._print(f"validation: {windows} windows, MSE / MAE of repeating {errors}")

    def started(self, epochs: int, steps_per_epoch: int, epochs_done: int) -> None:
        """Show the bar; the steps from here on give the remaining time."""
        self._epochs, self._steps, self._done = epochs, steps_per_epoch, epochs_done
        if epochs_done:
            self._print(f"going on after epoch {epochs_done} of {epochs}")
        self.bars.reset(self._bar, total=epochs * steps_per_epoch)
        self._update(0, "-")

    def stepped(self, step: int, loss: float) -> None:
        """Move the bar."""
        self._update(step, f"{loss:.4f}")

    def finished_epoch(self, report: EpochReport) -> None:
        """Print the errors of the epoch."""
        self._done = report.epoch
        mark = "  best so far" if report.best_epoch == report.epoch else ""
        self._print(
            f"epoch {report.epoch}/{self._epochs}  train {report.train_loss:.4f}  "
            f"validation {_errors(report.validation)}{mark}"
        )

    def _update(self, step: int, loss: str) -> None:
        self.bars.update(
            self._bar,
            completed=self._done * self._steps + step,
            epoch=f"{min(self._done + 1, self._epochs)}/{self._epochs}",
            loss=loss,
        )

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True)


def _errors(accuracy: Accuracy) -> str:
    return f"{accuracy.mse:.4f} / {accuracy.mae:.4f}"
