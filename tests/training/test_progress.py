"""Progress of a training: on a terminal, in a CSV file, in TensorBoard, and in the checkpoint."""

import csv
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from foretell.bundle.results import Accuracy
from foretell.data.panel import Panel
from foretell.models.checkpoint import LOG, CheckpointError
from foretell.training.config import TrainingConfig
from foretell.training.logs import CsvLog, TensorBoardLog, Together
from foretell.training.progress import ConsoleProgress, EpochReport, Progress
from foretell.training.train import train
from tests.training.conftest import Recorder

ERRORS = Accuracy(mse=0.5, mae=0.75)
REPORT = EpochReport(3, 0.25, 0.5, ERRORS, best_epoch=3, learning_rate=0.01, seconds=1.5)
BASELINES = {"the last value": Accuracy(mse=2, mae=1), "the last day": Accuracy(mse=1.5, mae=0.5)}


def test_progress_without_a_terminal_is_plain_lines() -> None:
    text = StringIO()
    with ConsoleProgress(Console(file=text)) as progress:
        progress.warned("a: its offset is large")
        progress.noted("learning rate 0.005")
        progress.compared(40, {"the last value": Accuracy(mse=2, mae=1), "the last day": ERRORS})
        progress.started(epochs=5, steps_per_epoch=10, epochs_done=2)
        progress.stepped(1, 0.3)
        progress.finished_epoch(REPORT)
        progress.finished_epoch(REPORT._replace(epoch=4))
    assert text.getvalue().splitlines() == [
        "warning: a: its offset is large",
        "learning rate 0.005",
        "validation: 40 windows, MSE / MAE of repeating the last value 2.0000 / 1.0000, "
        "the last day 0.5000 / 0.7500",
        "going on after epoch 2 of 5",
        "epoch 3/5  train 0.2500  validation 0.5000 / 0.7500  best so far",
        "epoch 4/5  train 0.2500  validation 0.5000 / 0.7500",
    ]


def test_progress_on_a_terminal_is_a_bar() -> None:
    text = StringIO()
    console = Console(file=text, force_terminal=True, width=100)
    with ConsoleProgress(console) as progress:
        progress.started(epochs=5, steps_per_epoch=10, epochs_done=2)
        progress.stepped(4, 0.3)
        progress.bars.refresh()
    assert "epoch 3/5" in text.getvalue()
    assert "24/50" in text.getvalue()
    assert "loss 0.3000" in text.getvalue()


def test_time_left_is_for_the_whole_training() -> None:
    console = Console(file=StringIO(), force_terminal=True, width=100)
    clock = iter(range(100))
    with ConsoleProgress(console) as progress:
        progress.bars.get_time = lambda: float(next(clock))
        progress.started(epochs=5, steps_per_epoch=10, epochs_done=2)
        (task,) = progress.bars.tasks
        for step in range(1, 4):
            progress.stepped(step, 0.3)
        # The fake clock ticks once for each reading; epochs of the earlier run took no time.
        assert task.remaining == 27
        assert task.time_remaining is not None
        assert task.time_remaining >= 27


def test_one_progress_can_follow_two_trainings() -> None:
    text = StringIO()
    with ConsoleProgress(Console(file=text)) as progress:
        progress.started(epochs=5, steps_per_epoch=10, epochs_done=0)
        progress.finished_epoch(REPORT)
        progress.started(epochs=2, steps_per_epoch=4, epochs_done=0)
        progress.finished_epoch(REPORT._replace(epoch=1))
    assert "epoch 1/2" in text.getvalue()


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


def test_log_has_a_row_for_each_epoch(tmp_path: Path) -> None:
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


def test_resumed_training_keeps_the_rows_of_finished_epochs(
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


def test_several_progresses_get_the_same_calls() -> None:
    one, other = Recorder(), Recorder()
    together = Together((one, other))
    together.warned("careful")
    together.stepped(2, 0.5)
    run(together, 1, 2)
    for each in (one, other):
        assert (each.warnings, each.steps, each.epochs) == (["careful"], [2], [1, 2])


def test_a_checkpoint_holds_the_log_of_its_training(
    settings: TrainingConfig, panel: Panel, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    with pytest.raises(KeyboardInterrupt):
        train(settings, panel, out, progress=Recorder(last=3))
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
