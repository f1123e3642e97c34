from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from foretell.service.versions.state import Desired, LocalState, Report, SharedState, State
from foretell.service.versions.table import Entry
from foretell.service.versions.table import State as Availability


@pytest.fixture(params=["local", "shared"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> State:
    return LocalState() if request.param == "local" else SharedState(tmp_path)


def finished_process() -> int:
    """The id of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(30)
    return process.pid


def test_wishes_come_and_go_with_their_stamps() -> None:
    desired = Desired(generation=4).with_wishes("one", ["1", "2"])
    assert desired.wanted == {"one": {"1": 5, "2": 5}}
    desired = desired.model_copy(update={"generation": 5}).with_wishes("one", ["2"])
    assert desired.wanted == {"one": {"1": 5, "2": 6}}
    assert desired.wants("one", "2")
    desired = desired.without("one", ["2", "3"]).without("two", ["1"])
    assert desired.wanted == {"one": {"1": 5}}
    assert not desired.wants("one", "2")
    assert desired.without("one", ["1"]).wanted == {}


def test_every_change_is_a_new_generation(state: State) -> None:
    assert state.read() == Desired()
    state.update(lambda desired: desired.with_wishes("one", ["1"]))
    changed = state.update(lambda desired: desired.having_seen({"one": {"1": "abc"}}))
    assert changed == state.read()
    assert (changed.generation, changed.wanted) == (2, {"one": {"1": 1}})
    assert state.update(lambda desired: desired.without("two", ["1"])).generation == 2


def test_a_change_that_fails_changes_nothing(state: State) -> None:
    def fail(desired: Desired) -> Desired:
        raise OSError("cannot be read")

    with pytest.raises(OSError, match="cannot be read"):
        state.update(fail)
    assert state.read() == Desired()
    assert state.update(lambda desired: desired.with_wishes("one", ["1"])).generation == 1


def test_no_change_is_lost(tmp_path: Path) -> None:
    def wish(number: int) -> None:
        SharedState(tmp_path).update(lambda now: now.with_wishes("one", [str(number)]))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(wish, range(1, 41)))
    desired = SharedState(tmp_path).read()
    assert desired.generation == 40
    assert sorted(desired.wanted["one"].values()) == list(range(1, 41))


def test_processes_read_each_others_reports(tmp_path: Path) -> None:
    mine, other = SharedState(tmp_path), SharedState(tmp_path, os.getppid())
    assert mine.others(3, 0) == {}
    report = Report(generation=3, index=(Entry("one", "1", Availability.READY),))
    other.report(report)
    mine.report(Report(generation=2, index=()))
    assert mine.others(3, 30) == {os.getppid(): report}
    assert other.others(3, 0) == {os.getpid(): None}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.others, 3, 30)
        mine.report(report)
        assert waiting.result(30) == {os.getpid(): report}
    mine.close()
    mine.close()
    assert other.others(3, 0) == {}


def test_nobody_waits_for_the_dead(tmp_path: Path) -> None:
    SharedState(tmp_path, finished_process()).report(Report(generation=1, index=()))
    assert SharedState(tmp_path).others(2, 30) == {}


def test_files_of_others_are_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "desired.json").write_text("{")
    with pytest.raises(RuntimeError, match=r"desired\.json was changed from outside"):
        SharedState(tmp_path).read()
