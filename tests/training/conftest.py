import numpy as np
import pytest

from foretell.data.panel import Panel
from foretell.data.table import Table
from foretell.timeaxis.frequency import Frequency
from foretell.training.config import TrainingConfig
from foretell.training.progress import EpochReport, Progress


class Recorder(Progress):
    """Records the progress of a training; can interrupt it within an epoch, like a lost machine.

    Args:
        last: The epoch to interrupt, if any.
    """

    def __init__(self, last: int | None = None) -> None:
        self.last = last
        self.warnings: list[str] = []
        self.steps: list[int] = []
        self.reports: list[EpochReport] = []

    def warned(self, message: str) -> None:
        self.warnings.append(message)

    def stepped(self, step: int, loss: float) -> None:
        self.steps.append(step)

    def finished_epoch(self, report: EpochReport) -> None:
        if report.epoch == self.last:
            raise KeyboardInterrupt
        self.reports.append(report)

    @property
    def epochs(self) -> list[int]:
        return [report.epoch for report in self.reports]


@pytest.fixture
def panel() -> Panel:
    """Ten days of two noisy daily cycles."""
    frequency = Frequency.parse("h")
    hours = np.arange(240)
    noise = np.random.default_rng(0).normal(scale=0.1, size=(240, 2))
    cycles = np.column_stack([np.sin(hours * np.pi / 12), np.cos(hours * np.pi / 12)])
    timestamps = frequency.steps_from(np.datetime64("2024-01-01T00:00"), 240)
    return Panel((Table(timestamps, 5 + cycles + noise, ("a", "b"), frequency),))


@pytest.fixture
def settings() -> TrainingConfig:
    return TrainingConfig(
        arch="patchtst",
        context=16,
        horizon=2,
        model={"d_model": 8, "heads": 2, "d_ff": 8, "encoder_layers": 1, "patch": 4, "stride": 4},
        epochs=4,
        batch_size=16,
        learning_rate=0.01,
        device="cpu",
    )
