"""Whole trainings: checkpoints, resuming, memory."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

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
from foretell.training import resume
from foretell.training.config import TrainingConfig
from foretell.training.errors import ResumeError, TrainingError
from foretell.training.resume import PartialRun
from foretell.training.train import train
from tests.training.conftest import Recorder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "models" / "daily"


def interrupt(settings: TrainingConfig, panel: Panel, out: Path, epoch: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(settings, panel, out, progress=Recorder(last=epoch))


def with_values(panel: Panel, values: NDArray[np.float64]) -> Panel:
    (table,) = panel.tables
    return Panel((replace(table, values=values),))


def test_resumed_training_accepts_equal_settings_in_another_form(
    settings: TrainingConfig, panel: Panel, out: Path
) -> None:
    interrupt(settings, panel, out, epoch=2)
    texts = {name: str(value) for name, value in settings.model.items()}
    same = settings.model_copy(update={"model": texts | {"attention": "softmax"}})
    counter = Recorder()
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
    assert (settings.precision, info.training.precision) == ("auto", "float32")


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
def test_resumed_training_gives_the_same_weights(
    settings: TrainingConfig, panel: Panel, out: Path, arch: str, recipe: dict[str, object]
) -> None:
    model = settings.model if arch == "patchtst" else {"d_model": 8, "heads": 2, "d_ff": 8}
    settings = settings.model_copy(update={"arch": arch, "model": model, **recipe})
    whole = out.with_name("whole")
    train(settings, panel, whole)
    interrupt(settings, panel, out, epoch=3)
    assert not out.exists()
    counter = Recorder()
    train(settings, panel, out, progress=counter)
    assert counter.epochs == [3, 4]
    assert (out / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
    assert load_info(out) == load_info(whole)


def test_training_killed_after_its_last_epoch_only_writes_the_checkpoint(
    settings: TrainingConfig, panel: Panel, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("foretell.training.train.save", fail)
        with pytest.raises(OSError, match="disk full"):
            train(settings, panel, out)
    counter = Recorder()
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
    counter = Recorder()
    train(faster, panel, out, restart=True, progress=counter)
    assert counter.epochs == [1, 2, 3, 4]


def test_a_place_that_cannot_be_written_is_found_before_training(
    settings: TrainingConfig, panel: Panel, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    counter = Recorder()
    with pytest.raises(NotADirectoryError, match=r"model\.partial"):
        train(settings, panel, tmp_path / "file" / "model", progress=counter)
    assert counter.epochs == []


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
    listener = Recorder()
    short = settings.model_copy(update={"epochs": 1})
    train(short, panel, out, progress=listener)
    assert listener.warnings == []
    values = panel.tables[0].values
    meter = values + np.array([0, 2e4 * values[:, 1].std()])
    train(short, with_values(panel, meter), out, overwrite=True, progress=listener)
    (warning,) = listener.warnings
    assert warning.startswith("b: the mean is more than 10,000 times the standard deviation")


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
    listener = Recorder()
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


CPU = torch.device("cpu")
STATE = {"epoch": 3, "model": {"weight": torch.ones(2)}}


@pytest.fixture
def run(tmp_path: Path) -> PartialRun:
    return PartialRun(tmp_path / "model", {"seed": 0, "splits": [0.7, 0.1, 0.2]})


def test_a_state_is_replaced_as_a_whole(run: PartialRun, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.load(CPU) is None
    assert not run.folder.exists()
    run.save({"epoch": 2})
    run.save(STATE)

    def cut_short(content: object, file: BinaryIO) -> None:
        file.write(b"PK")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", cut_short)
    with pytest.raises(OSError, match="disk full"):
        run.save({"epoch": 4})
    loaded = run.load(CPU)
    assert loaded is not None
    assert loaded["epoch"] == 3
    assert torch.equal(loaded["model"]["weight"], torch.ones(2))
    assert "state.pt" in [entry.name for entry in run.folder.iterdir()]
    run.remove()
    run.remove()
    assert not run.folder.exists()


@pytest.mark.parametrize("content", [b"", b"PK", b"not a state"])
def test_a_damaged_state_is_refused(run: PartialRun, content: bytes) -> None:
    run.save(STATE)
    (run.folder / "state.pt").write_bytes(content)
    with pytest.raises(ResumeError, match=r"state\.pt: damaged, .* --restart"):
        run.load(CPU)


def test_resumed_training_warns_of_other_library_versions(
    run: PartialRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.save(STATE)
    warnings: list[str] = []
    assert run.load(CPU, warnings.append) is not None
    assert warnings == []
    monkeypatch.setattr(resume, "library_versions", lambda: {"torch": "9.1"})
    assert run.load(CPU, warnings.append) is not None
    (warning,) = warnings
    assert f"torch {torch.__version__.partition('+')[0]}" in warning
    assert "now 9.1" in warning


# In a process of its own, whose peak is that of the training alone.
_PROGRAM = """
import resource, sys, tempfile
from pathlib import Path

import numpy as np
import torch

from foretell.timeaxis.frequency import Frequency
from foretell.data.panel import Panel
from foretell.data.table import Table
from foretell.training.config import TrainingConfig
from foretell.training.train import train

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def panel(series, rows):
    random, hour = np.random.default_rng(0), Frequency.parse("h")
    times = hour.steps_from(np.datetime64("2024-01-01"), rows)
    return Panel(tuple(
        Table(times, random.normal(size=(rows, 1)), ("y",), hour, series=str(name))
        for name in range(series)
    ))

settings = TrainingConfig(
    arch="dlinear", context=168, horizon=24, epochs=1, batch_size=1024, device="cpu"
)
torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    train(settings, panel(3, 1000), Path(folder) / "few")
    before = peak()
    info = train(settings, panel(300, 800), Path(folder) / "many").info
print(peak() - before, info.test.windows)
"""


def test_many_series_take_the_memory_of_their_rows() -> None:
    found = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True)
    grown, windows = found.stdout.split()
    assert int(windows) == 300 * 137
    # The training windows would take 81 MiB, and the rows of the file take 1.8 MiB.
    assert float(grown) < 40
