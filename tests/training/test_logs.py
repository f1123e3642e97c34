import csv
from pathlib import Path

import pytest

from foretell.bundle.manifest import Accuracy
from foretell.data.panel import Panel
from foretell.models.checkpoint import LOG, CheckpointError
from foretell.training.config import TrainingConfig
from foretell.training.logs import CsvLog, TensorBoardLog, Together
from foretell.training.progress import EpochReport, Progress
from foretell.training.train import train

BASELINES = {"the last value": Accuracy(mse=2, mae=1), "the last day": Accuracy(mse=1.5, mae=0.5)}


def report(epoch: int) -> EpochReport:
    errors = Accuracy(mse=0.5 / epoch, mae=0.25)
    return EpochReport(epoch, 0.75, 0.25, errors, best_epoch=1, learning_rate=0.01, seconds=1.5)


def run(progress: Progress, first: int, last: int, epochs: int = 4) -> None:
    """Train from one epoch to another, as a trainer would."""
    progress.compared(9, BASELINES)
    progress.started(epochs, steps_per_epoch=2, epochs_done=first - 1)
    for epoch in range(first, last + 1):
        progress.finished_epoch(report(epoch))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_an_epoch(tmp_path: Path) -> None:
    run(CsvLog(tmp_path / "log.csv"), 1, 2)
    first, second = rows(tmp_path / "log.csv")
    assert first == {
        "epoch": "1",
        "learning_rate": "0.01",
        "train_loss": "0.75",
        "validation_loss": "0.25",
        "validation_mse": "0.5",
        "validation_mae": "0.25",
        "seconds": "1.5",
    }
    assert (second["epoch"], second["validation_mse"]) == ("2", "0.25")


def test_a_training_that_goes_on_keeps_the_rows_of_the_epochs_that_are_done(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.csv"
    run(CsvLog(path), 1, 3)
    # The state of the third epoch was lost.
    run(CsvLog(path), 3, 4)
    assert [row["epoch"] for row in rows(path)] == ["1", "2", "3", "4"]
    run(CsvLog(path), 1, 1)
    assert [row["epoch"] for row in rows(path)] == ["1"]


def test_tensorboard_reads_the_events(tmp_path: Path) -> None:
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    for first, last in ((1, 3), (3, 4)):
        with TensorBoardLog(tmp_path) as log:
            run(log, first, last)
    events = event_accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    found = {
        name: [(event.step, pytest.approx(event.value)) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }
    assert found["validation/mse"] == [(step, 0.5 / step) for step in (1, 2, 3, 4)]
    assert found["validation/mse_of_the_last_day"] == [(step, 1.5) for step in (1, 2, 3, 4)]
    assert found["validation/mae_of_the_last_value"] == [(step, 1) for step in (1, 2, 3, 4)]
    assert {"learning_rate", "train_loss", "validation/mae", "seconds"} <= found.keys()


def test_several_are_told_the_same() -> None:
    class Listener(Progress):
        def __init__(self) -> None:
            self.heard: list[str] = []

        def warned(self, message: str) -> None:
            self.heard.append(message)

        def stepped(self, step: int, loss: float) -> None:
            self.heard.append(f"{step} {loss}")

        def finished_epoch(self, report: EpochReport) -> None:
            self.heard.append(f"epoch {report.epoch}")

    one, other = Listener(), Listener()
    together = Together((one, other))
    together.warned("careful")
    together.stepped(2, 0.5)
    run(together, 1, 2)
    assert one.heard == other.heard == ["careful", "2 0.5", "epoch 1", "epoch 2"]


def test_a_checkpoint_holds_the_log_of_its_training(
    settings: TrainingConfig, panel: Panel, tmp_path: Path
) -> None:
    class Interruption(Progress):
        def finished_epoch(self, report: EpochReport) -> None:
            if report.epoch == 3:
                raise KeyboardInterrupt

    out = tmp_path / "model"
    with pytest.raises(KeyboardInterrupt):
        train(settings, panel, out, progress=Interruption())
    trained = train(settings, panel, out)
    found = rows(out / LOG)
    assert [row["epoch"] for row in found] == ["1", "2", "3", "4"]
    assert trained.info.training is not None
    best = found[trained.info.training.best_epoch - 1]
    assert float(best["validation_loss"]) == trained.info.training.validation_loss
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]
    train(settings, panel, out, overwrite=True)
    (out / "mine.txt").touch()
    with pytest.raises(CheckpointError, match="holds more than a checkpoint"):
        train(settings, panel, out, overwrite=True)
