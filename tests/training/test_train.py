from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from foretell.bundle.checksums import sha256
from foretell.data.errors import DataError
from foretell.data.panel import Panel, Source
from foretell.data.reading import Reading
from foretell.data.source import DataSource
from foretell.data.splits import Splits
from foretell.models import batches
from foretell.models.architectures.patchtst import PatchTST
from foretell.models.checkpoint import WEIGHTS, CheckpointError, load, load_info
from foretell.training.config import TrainingConfig
from foretell.training.errors import TrainingError
from foretell.training.progress import EpochReport, Progress
from foretell.training.train import train


class Interruption(Progress):
    """Stops a training, as a lost machine would, before an epoch is over."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def finished_epoch(self, report: EpochReport) -> None:
        if report.epoch == self.epoch:
            raise KeyboardInterrupt


class Counter(Progress):
    def __init__(self) -> None:
        self.epochs: list[int] = []

    def finished_epoch(self, report: EpochReport) -> None:
        self.epochs.append(report.epoch)


class Listener(Progress):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warned(self, message: str) -> None:
        self.warnings.append(message)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "models" / "daily"


def interrupt(settings: TrainingConfig, panel: Panel, out: Path, epoch: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(settings, panel, out, progress=Interruption(epoch))


def with_values(panel: Panel, values: NDArray[np.float64]) -> Panel:
    (table,) = panel.tables
    return Panel((replace(table, values=values),))


def test_settings_may_be_written_otherwise_when_it_goes_on(
    settings: TrainingConfig, panel: Panel, out: Path
) -> None:
    interrupt(settings, panel, out, epoch=2)
    texts = {name: str(value) for name, value in settings.model.items()}
    same = settings.model_copy(update={"model": texts | {"attention": "softmax"}})
    counter = Counter()
    train(same, panel, out, progress=counter)
    assert counter.epochs == [2, 3, 4]


def test_writes_a_checkpoint(settings: TrainingConfig, panel: Panel, out: Path) -> None:
    trained = train(settings, panel, out)
    loaded = load(out)
    history = torch.randn(2, 16, 2)
    assert torch.equal(loaded.model(history), trained.model(history))
    assert list(out.parent.iterdir()) == [out]
    info = loaded.info
    assert info == trained.info
    assert (info.channels, info.frequency, info.data) == (("a", "b"), "h", None)
    assert info.training is not None
    assert 1 <= info.training.best_epoch <= info.training.epochs == 4
    assert info.test is not None
    assert info.test.windows == 47
    assert info.test.model.mse < info.test.last_value.mse


def test_records_the_file(settings: TrainingConfig, panel: Panel, out: Path) -> None:
    path = out.parent.parent / "data.csv"
    path.write_text("the table was read from here")
    reading = Reading(time_column=("date",), missing="ffill")
    train(settings, replace(panel, source=Source(path, reading)), out)
    data = DataSource.recorded(load_info(out).data)
    assert data is not None
    assert (data.path, data.sha256, data.rows) == (path.resolve(), sha256(path), 240)
    assert data.reading == reading
    assert data.splits == Splits.by_fraction()


RECIPE = {"schedule": "one-cycle", "optimizer": "adamw", "ema_decay": 0.9, "grad_clip": 1.0}


@pytest.mark.parametrize(
    ("arch", "recipe"),
    [("patchtst", {}), ("patchtst", RECIPE), ("transformer", {}), ("autoformer", RECIPE)],
)
def test_an_interrupted_training_ends_the_same(
    settings: TrainingConfig, panel: Panel, out: Path, arch: str, recipe: dict[str, object]
) -> None:
    model = settings.model if arch == "patchtst" else {"d_model": 8, "heads": 2, "d_ff": 8}
    settings = settings.model_copy(update={"arch": arch, "model": model, **recipe})
    whole = out.with_name("whole")
    train(settings, panel, whole)
    interrupt(settings, panel, out, epoch=3)
    assert not out.exists()
    counter = Counter()
    train(settings, panel, out, progress=counter)
    assert counter.epochs == [3, 4]
    assert (out / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
    assert load_info(out) == load_info(whole)


def test_a_training_lost_after_its_last_epoch_is_only_written(
    settings: TrainingConfig, panel: Panel, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("foretell.training.train.save", fail)
        with pytest.raises(OSError, match="disk full"):
            train(settings, panel, out)
    counter = Counter()
    train(settings, panel, out, progress=counter)
    assert counter.epochs == []
    assert load(out).info.training is not None


def test_changed_data_or_settings_are_refused(
    settings: TrainingConfig, panel: Panel, out: Path
) -> None:
    interrupt(settings, panel, out, epoch=2)
    with pytest.raises(TrainingError, match=r"other settings: data was .*--restart"):
        train(settings, with_values(panel, panel.tables[0].values + 1), out)
    faster = settings.model_copy(update={"learning_rate": 0.02})
    with pytest.raises(TrainingError, match=r"learning_rate was 0\.01 and is 0\.02; start afresh"):
        train(faster, panel, out)
    counter = Counter()
    train(faster, panel, out, restart=True, progress=counter)
    assert counter.epochs == [1, 2, 3, 4]


def test_a_place_that_cannot_be_written_is_found_before_training(
    settings: TrainingConfig, panel: Panel, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    counter = Counter()
    with pytest.raises(NotADirectoryError, match=r"model\.partial"):
        train(settings, panel, tmp_path / "file" / "model", progress=counter)
    assert counter.epochs == []


def test_records_the_precision_that_was_chosen(
    settings: TrainingConfig, panel: Panel, out: Path
) -> None:
    assert settings.precision == "auto"
    training = train(settings, panel, out).info.training
    assert training is not None
    assert training.precision == "float32"


def test_an_existing_checkpoint_is_kept(settings: TrainingConfig, panel: Panel, out: Path) -> None:
    train(settings, panel, out)
    before = (out / WEIGHTS).read_bytes()
    other = settings.model_copy(update={"seed": 1})
    with pytest.raises(CheckpointError, match="exists already"):
        train(other, panel, out)
    assert (out / WEIGHTS).read_bytes() == before
    train(other, panel, out, overwrite=True)
    assert (out / WEIGHTS).read_bytes() != before


def test_bad_settings_write_nothing(settings: TrainingConfig, panel: Panel, out: Path) -> None:
    with pytest.raises(TrainingError, match="heads"):
        train(settings.model_copy(update={"model": {"heads": 3}}), panel, out)
    with pytest.raises(DataError, match="hold no window"):
        train(settings.model_copy(update={"context": 200}), panel, out)
    assert not out.parent.exists()


def test_warns_of_an_offset_that_float32_cannot_carry(
    settings: TrainingConfig, panel: Panel, out: Path
) -> None:
    listener = Listener()
    short = settings.model_copy(update={"epochs": 1})
    train(short, panel, out, progress=listener)
    assert listener.warnings == []
    values = panel.tables[0].values
    meter = values + np.array([0, 2e4 * values[:, 1].std()])
    train(short, with_values(panel, meter), out, overwrite=True, progress=listener)
    (said,) = listener.warnings
    assert said.startswith("b: the mean is more than 10,000 times the standard deviation")


def test_evaluates_in_batches_that_fit(
    settings: TrainingConfig, panel: Panel, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    whole = PatchTST.forward

    def forward(model: PatchTST, history: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        if not model.training:
            sizes.append(len(history))
        return whole(model, history, *rest)

    monkeypatch.setattr(PatchTST, "forward", forward)
    monkeypatch.setattr(batches, "LIMIT", 1)
    train(settings.model_copy(update={"epochs": 1}), panel, out)
    assert set(sizes) == {1}


def test_one_model_of_several_series_of_different_length(
    settings: TrainingConfig, panel: Panel, out: Path
) -> None:
    (table,) = panel.tables
    shifted = replace(table, values=table.values + 3, series="b")
    cut = {name: slice(0, rows) for name, rows in (("c", 19), ("d", 17), ("e", 120))}
    others = [
        replace(table, timestamps=table.timestamps[rows], values=table.values[rows], series=name)
        for name, rows in cut.items()
    ]
    several = Panel((replace(table, series="a"), shifted, *others))
    listener = Listener()
    info = train(settings, several, out, progress=listener).info
    assert listener.warnings == [
        "too short to be tested on, trained on alone: 1 series: c",
        "too short for a window, left out: 1 series: d",
        "training rows of one series lie after test rows of another, which may make test errors "
        "too small; --cut-at 2024-01-09T00:00:00 cuts all series at one date",
    ]
    assert info.test is not None
    assert info.test.windows == 2 * 47 + 23
    trained_on = [table.values[:168], shifted.values[:168], table.values[:19], table.values[:84]]
    np.testing.assert_allclose(info.scaler.mean, np.concatenate(trained_on).mean(axis=0))
