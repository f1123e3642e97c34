"""How a training tells what it is doing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from foretell.bundle.manifest import Accuracy


class EpochReport(NamedTuple):
    """What an epoch came to, in standardised units.

    Attributes:
        epoch: Its number, from 1.
        train_loss: What the windows learned from are judged by, of the weights as they were then.
        validation_loss: What the validation windows are judged by, of the weights after it.
        validation: The errors of these.
        best_epoch: The one with the lowest validation loss so far.
        learning_rate: Of its first step.
        seconds: What it took, validation included.
    """

    epoch: int
    train_loss: float
    validation_loss: float
    validation: Accuracy
    best_epoch: int
    learning_rate: float
    seconds: float


class Progress:
    """What a trainer calls; this one tells nothing."""

    def noted(self, message: str) -> None:
        """Something was chosen that was not given."""

    def warned(self, message: str) -> None:
        """Something about the data will cost accuracy."""

    def compared(self, windows: int, baselines: Mapping[str, Accuracy]) -> None:
        """So many windows are validated on, and these are the errors of the baselines there."""

    def started(self, epochs: int, steps_per_epoch: int, epochs_done: int) -> None:
        """Training begins, or goes on after `epochs_done` epochs."""

    def stepped(self, step: int, loss: float) -> None:
        """`step` steps of this epoch are done; `loss` is their mean."""

    def finished_epoch(self, report: EpochReport) -> None:
        """An epoch is over."""


class ConsoleProgress(Progress):
    """A bar with loss and time left on a terminal, one line an epoch anywhere.

    A context manager: leaving it takes the bar away.
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
        """Print a line."""
        self._print(message)

    def warned(self, message: str) -> None:
        """Print a line."""
        self._print(f"warning: {message}")

    def compared(self, windows: int, baselines: Mapping[str, Accuracy]) -> None:
        """Print a line."""
        errors = ", ".join(f"{name} {_errors(found)}" for name, found in baselines.items())
        self._print(f"validation: {windows} windows, MSE / MAE of repeating {errors}")

    def started(self, epochs: int, steps_per_epoch: int, epochs_done: int) -> None:
        """Show the bar; the time left is told by the steps from here on."""
        self._epochs, self._steps, self._done = epochs, steps_per_epoch, epochs_done
        if epochs_done:
            self._print(f"going on after epoch {epochs_done} of {epochs}")
        self.bars.reset(self._bar, total=epochs * steps_per_epoch)
        self._update(0, "-")

    def stepped(self, step: int, loss: float) -> None:
        """Move the bar."""
        self._update(step, f"{loss:.4f}")

    def finished_epoch(self, report: EpochReport) -> None:
        """Print a line."""
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
