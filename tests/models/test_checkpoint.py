import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from foretell.bundle.scaler import Scaler
from foretell.models import checkpoint
from foretell.models.architectures.patchtst import PatchTSTConfig
from foretell.models.checkpoint import (
    CONFIG,
    WEIGHTS,
    Checkpoint,
    CheckpointError,
    CheckpointInfo,
    load,
    save,
)

CONFIGURATION = PatchTSTConfig(
    channels=2, context=16, horizon=4, d_model=8, heads=2, d_ff=8, encoder_layers=1, patch=4
)
INFO = CheckpointInfo(
    config=CONFIGURATION,
    channels=("a", "b"),
    frequency="h",
    scaler=Scaler(mean=(0.0, 1.0), std=(1.0, 2.0)),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "model"


@pytest.fixture
def saved(folder: Path) -> Checkpoint:
    torch.manual_seed(0)
    model = CONFIGURATION.build().eval()
    save(folder, model, INFO)
    return Checkpoint(INFO, model)


def edit(folder: Path, **fields: object) -> None:
    path = folder / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_round_trip(folder: Path, saved: Checkpoint) -> None:
    loaded = load(folder)
    assert loaded.info == INFO
    assert not loaded.model.training
    history = torch.randn(3, 16, 2)
    assert torch.equal(loaded.model(history), saved.model(history))


def test_leaves_nothing_else_behind(folder: Path, saved: Checkpoint) -> None:
    assert {entry.name for entry in folder.iterdir()} == {WEIGHTS, CONFIG}
    assert list(folder.parent.iterdir()) == [folder]


def test_existing_folder_is_not_overwritten(folder: Path, saved: Checkpoint) -> None:
    with pytest.raises(CheckpointError, match="exists already"):
        save(folder, saved.model, INFO)


def test_overwrites_a_checkpoint(folder: Path, saved: Checkpoint) -> None:
    torch.manual_seed(1)
    other = CONFIGURATION.build().eval()
    save(folder, other, INFO, overwrite=True)
    history = torch.randn(3, 16, 2)
    assert torch.equal(load(folder).model(history), other(history))
    assert list(folder.parent.iterdir()) == [folder]


def test_a_folder_that_appears_meanwhile_is_kept(
    tmp_path: Path, saved: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "meanwhile"

    def slow(weights: object) -> bytes:
        folder.mkdir()
        (folder / "thesis.txt").write_text("years of work")
        return b""

    monkeypatch.setattr(checkpoint, "serialize", slow)
    with pytest.raises(CheckpointError, match="exists already; --overwrite replaces it"):
        save(folder, saved.model, INFO)
    assert (folder / "thesis.txt").exists()


def test_an_interrupted_replacement_loses_nothing(
    folder: Path, saved: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, rename, moved = (folder / WEIGHTS).read_bytes(), Path.rename, []

    def interrupted(path: Path, target: Path) -> None:
        if moved:
            raise KeyboardInterrupt
        moved.append(rename(path, target))

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(folder, saved.model, INFO, overwrite=True)
    assert [path.read_bytes() for path in folder.parent.rglob(WEIGHTS)] == [before]


def test_overwrites_nothing_but_a_checkpoint(folder: Path, saved: Checkpoint) -> None:
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(CheckpointError, match="holds more than a checkpoint"):
        save(folder, saved.model, INFO, overwrite=True)
    assert (folder / "thesis.txt").exists()


def test_a_failed_write_leaves_nothing(
    folder: Path, saved: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (folder / WEIGHTS).read_bytes()

    def full(path: Path, content: bytes) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="disk full"):
        save(folder, saved.model, INFO, overwrite=True)
    assert (folder / WEIGHTS).read_bytes() == before
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (WEIGHTS, Path.unlink, WEIGHTS),
        (WEIGHTS, lambda path: path.write_bytes(path.read_bytes()[:-8]), WEIGHTS),
        (CONFIG, Path.unlink, CONFIG),
        (CONFIG, lambda path: path.write_text("{"), "Invalid JSON"),
    ],
)
def test_a_missing_or_damaged_file_is_named(
    folder: Path, saved: Checkpoint, name: str, damage: Callable[[Path], object], message: str
) -> None:
    damage(folder / name)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": 2}, "format"),
        ({"colour": "red"}, "colour"),
        ({"frequency": "fortnight"}, "frequency"),
        ({"channels": ["a"]}, "expected 2 different names"),
        ({"channels": ["a", "a"]}, "expected 2 different names"),
        ({"scaler": {"mean": [0, 1], "std": [1]}}, "expected 2 means"),
        ({"scaler": {"mean": [0, 1], "std": [1, 0]}}, "not positive"),
        ({"bounds": {"c": {"low": 0}}}, "bounds: no channel 'c'"),
        ({"bounds": {"a": {"low": 1, "high": 0}}}, "bounds.a: .*not below"),
        ({"config": {"architecture": "oracle"}}, "config: .*'oracle'"),
        ({"config": CONFIGURATION.model_dump() | {"heads": 3}}, "config: .*heads"),
    ],
)
def test_a_wrong_field_is_named(
    folder: Path, saved: Checkpoint, fields: dict[str, object], message: str
) -> None:
    edit(folder, **fields)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_wrong_weights_are_named(folder: Path, saved: Checkpoint) -> None:
    weights = load_file(folder / WEIGHTS)
    first, second = sorted(weights)[:2]
    weights["intruder"] = weights.pop(first)
    weights[second] = torch.zeros(1, 2, 3)
    save_file(weights, folder / WEIGHTS)
    with pytest.raises(CheckpointError) as raised:
        load(folder)
    assert f"missing {first}" in str(raised.value)
    assert "unexpected intruder" in str(raised.value)
    assert f"{second} is [1, 2, 3], expected" in str(raised.value)


def test_many_wrong_weights_are_counted(folder: Path, saved: Checkpoint) -> None:
    save_file({f"x{i}": torch.zeros(1) for i in range(20)}, folder / WEIGHTS)
    missing = len(saved.model.state_dict())
    with pytest.raises(CheckpointError, match=f"and {missing + 20 - 6} more"):
        load(folder)
