from pathlib import Path
from typing import BinaryIO

import pytest
import torch

from foretell.training import resume
from foretell.training.errors import ResumeError
from foretell.training.resume import PartialRun

CPU = torch.device("cpu")
STATE = {"epoch": 3, "model": {"weight": torch.ones(2)}}


@pytest.fixture
def run(tmp_path: Path) -> PartialRun:
    return PartialRun(tmp_path / "model", {"seed": 0, "splits": [0.7, 0.1, 0.2]})


def test_nothing_to_go_on_from(run: PartialRun) -> None:
    assert run.load(CPU) is None
    assert not run.folder.exists()


def test_round_trip(run: PartialRun) -> None:
    run.save({"epoch": 2})
    run.save(STATE)
    loaded = run.load(CPU)
    assert loaded is not None
    assert loaded["epoch"] == 3
    assert torch.equal(loaded["model"]["weight"], torch.ones(2))
    assert [entry.name for entry in run.folder.iterdir()] == ["state.pt"]


def test_a_write_cut_short_changes_nothing(
    run: PartialRun, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_other_settings_are_refused(run: PartialRun, tmp_path: Path) -> None:
    run.save(STATE)
    other = PartialRun(tmp_path / "model", {"seed": 1, "splits": [0.7, 0.1, 0.2]})
    with pytest.raises(ResumeError, match=r"seed was 0 and is 1; start afresh with --restart"):
        other.load(CPU)


@pytest.mark.parametrize("content", [b"", b"PK", b"not a state"])
def test_a_damaged_state_is_refused(run: PartialRun, content: bytes) -> None:
    run.save(STATE)
    (run.folder / "state.pt").write_bytes(content)
    with pytest.raises(ResumeError, match=r"state\.pt: damaged, .* --restart"):
        run.load(CPU)


def test_remove(run: PartialRun) -> None:
    run.save(STATE)
    run.remove()
    run.remove()
    assert not run.folder.exists()


def test_other_versions_are_told(run: PartialRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run.save(STATE)
    told: list[str] = []
    assert run.load(CPU, told.append) is not None
    assert told == []
    monkeypatch.setattr(resume, "library_versions", lambda: {"torch": "9.1"})
    assert run.load(CPU, told.append) is not None
    (said,) = told
    assert f"torch {torch.__version__.partition('+')[0]}" in said
    assert "here is 9.1" in said
