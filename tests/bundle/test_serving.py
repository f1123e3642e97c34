"""The file that says which version of a model serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.bundle import layout, serving
from foretell.bundle.errors import BundleError
from foretell.bundle.serving import NOTHING, Challenger, Serving

ROLES = Serving(pin="3", challenger=Challenger(version="4", share=0.1))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "energy").mkdir()
    return tmp_path


def test_what_is_written_is_read(folder: Path) -> None:
    assert serving.read(folder, "energy") == NOTHING
    serving.write(folder, "energy", ROLES)
    assert serving.read(folder, "energy") == ROLES
    assert ROLES.versions == {"3", "4"}
    assert [file.name for file in (folder / "energy").iterdir()] == [layout.SERVING]
    serving.write(folder, "energy", NOTHING)
    assert not [*(folder / "energy").iterdir()]
    assert serving.read(folder, "wind") == NOTHING


def test_a_failed_write_keeps_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving.write(folder, "energy", ROLES)

    def fail(path: Path) -> None:
        raise OSError("no space")

    monkeypatch.setattr(serving, "sync", fail)
    with pytest.raises(OSError, match="no space"):
        serving.write(folder, "energy", Serving(pin="5"))
    assert serving.read(folder, "energy") == ROLES
    assert [file.name for file in (folder / "energy").iterdir()] == [layout.SERVING]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "Invalid JSON"),
        ('{"pin": 3}', "pin: Input should be a valid string"),
        ('{"pin": "03"}', "pin: String should match"),
        ('{"pinned": "3"}', "pinned: Extra inputs"),
        (
            '{"challenger": {"version": "4", "share": 0}}',
            "challenger.share: Input should",
        ),
        (
            '{"challenger": {"version": "4", "share": 1.5}}',
            "challenger.share: Input should",
        ),
        (
            '{"pin": "4", "challenger": {"version": "4", "share": 0.5}}',
            "version 4 is pinned, so it cannot be the challenger",
        ),
    ],
)
def test_a_broken_file_is_refused(folder: Path, content: str, reason: str) -> None:
    file = folder / "energy" / layout.SERVING
    file.write_text(content)
    with pytest.raises(BundleError) as caught:
        serving.read(folder, "energy")
    assert str(caught.value).startswith(f"{file}: {reason}")
    assert str(caught.value).endswith("; correct the file, or remove it")
