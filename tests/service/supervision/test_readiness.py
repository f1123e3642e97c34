from __future__ import annotations

from pathlib import Path

import pytest

from foretell.service.supervision.readiness import Readiness


class Fake:
    """A repository that says what it is told."""

    def __init__(self, **states: str) -> None:
        self.states = states
        self.draining = False

    @property
    def ready(self) -> bool:
        return not self.draining and set(self.states.values()) == {"ready"}

    def report(self) -> dict[str, str]:
        return dict(self.states)

    def drain(self) -> None:
        self.draining = True


def member(folder: Path, slot: int, **states: str) -> Readiness:
    return Readiness(Fake(**states), folder / f"{slot}.json")  # type: ignore[arg-type]


def test_one_process_speaks_for_itself() -> None:
    readiness = Readiness(Fake(a="ready"))  # type: ignore[arg-type]
    readiness.publish()
    report = readiness.report()
    assert (report.ready, report.processes, report.models) == (True, 1, {"a": "ready"})


def test_any_of_several_speaks_for_all(tmp_path: Path) -> None:
    one = member(tmp_path, 0, a="ready", b="ready")
    other = member(tmp_path, 1, a="ready", b="loading")
    for readiness in (one, other):
        readiness.publish()
    for readiness in (one, other):
        report = readiness.report()
        assert (report.ready, report.processes) == (False, 2)
        assert report.models == {"a": "ready", "b": "loading"}
    assert one.own
    assert not other.own


def test_changes_are_told(tmp_path: Path) -> None:
    one, other = member(tmp_path, 0, a="ready"), member(tmp_path, 1, a="ready")
    for readiness in (one, other):
        readiness.publish()
    assert one.report().ready
    other._repository.states["a"] = "device lost"  # type: ignore[attr-defined]
    other.publish()
    assert one.report().models == {"a": "device lost"}
    other._repository.states["a"] = "ready"  # type: ignore[attr-defined]
    other.publish()
    assert one.report().ready


def test_one_that_stops_says_so_at_once(tmp_path: Path) -> None:
    one, other = member(tmp_path, 0, a="ready"), member(tmp_path, 1, a="ready")
    other.publish()
    other.drain()
    assert not one.report().ready


def test_one_that_ended_is_not_asked(tmp_path: Path) -> None:
    one, other = member(tmp_path, 0, a="ready"), member(tmp_path, 1, a="loading")
    other.publish()
    (tmp_path / "1.json").unlink()
    assert one.report().ready


def test_a_full_disk_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lonely = member(tmp_path / "gone", 0, a="ready")
    lonely.publish()
    assert lonely.report().ready
    assert "cannot be told" in caplog.text
