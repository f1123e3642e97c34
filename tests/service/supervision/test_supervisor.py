from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from foretell.service.errors import StartError
from foretell.service.supervision import supervisor
from foretell.service.supervision.supervisor import Supervisor, Target
from tests.service import workers
from tests.service.process import ROOT
from tests.service.waiting import until
from tests.service.workers import told


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORETELL_TEST_FOLDER", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses and ticks are short."""
    for name in ("_FIRST_PAUSE", "_TICK_SECONDS"):
        monkeypatch.setattr(supervisor, name, 0.05)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Scene:
    """Does something while a supervisor runs, then tells it to stop."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self.error: BaseException | None = None

    def run(
        self, target: Target, *, stop_seconds: float = 30, ended: list[int] | None = None
    ) -> bool:
        thread = threading.Thread(target=self._play)
        found = Supervisor(
            target,
            2,
            stop_seconds=stop_seconds,
            on_end=(ended if ended is not None else []).append,
        )
        thread.start()
        try:
            return found.run()
        finally:
            thread.join()
            if self.error is not None:
                raise self.error

    def _play(self) -> None:
        try:
            self._act()
        except BaseException as error:
            self.error = error
        os.kill(os.getpid(), signal.SIGTERM)


def test_stops_all_when_told_to() -> None:
    ended: list[int] = []
    handler = signal.getsignal(signal.SIGTERM)
    assert Scene(lambda: until(lambda: len(told("serving")) == 2)).run(
        workers.until_told_to_stop, ended=ended
    )
    assert told("stopped") == told("serving")
    assert sorted(ended) == [0, 1]
    assert signal.getsignal(signal.SIGTERM) is handler


def test_another_takes_the_place_of_one_that_died(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[int] = []

    def kill_one() -> None:
        until(lambda: len(told("serving")) == 2)
        os.kill(told("serving")[0], signal.SIGKILL)
        until(lambda: len(told("serving")) == 3)

    assert Scene(kill_one).run(workers.until_told_to_stop, ended=ended)
    assert len(told("stopped")) == 2
    assert len(ended) == 3
    assert "ended with SIGKILL; another one takes its place" in caplog.text


def test_who_cannot_begin_ends_all() -> None:
    with pytest.raises(StartError, match=r"^no such device$"):
        Supervisor(workers.never, 2, stop_seconds=30, on_end=lambda _: None).run()
    assert not any(map(is_alive, told("serving")))


def test_who_dies_before_it_serves_ends_all() -> None:
    with pytest.raises(StartError, match="ended with SIGKILL before it could serve"):
        Supervisor(workers.dies_at_once, 2, stop_seconds=30, on_end=lambda _: None).run()
    assert not any(map(is_alive, told("serving")))


def test_the_last_words_of_who_fails_are_heard(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StartError, match="ended with status 1 before it could serve"):
        Supervisor(workers.fails_with_last_words, 1, stop_seconds=30, on_end=lambda _: None).run()
    assert '"last words"' in capfd.readouterr().err


def test_who_cannot_return_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    def kill_one() -> None:
        until(lambda: len(told("serving")) == 2)
        os.kill(told("serving")[0], signal.SIGKILL)
        until(lambda: len(told("refused")) >= 2)

    assert Scene(kill_one).run(workers.cannot_return)
    assert len(told("stopped")) == 1
    assert "no longer; another one takes its place" in caplog.text


def test_who_does_not_stop_is_made_to(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(lambda: until(lambda: len(told("serving")) == 2))
    assert not scene.run(workers.for_ever, stop_seconds=0.2)
    assert "does not end by itself" in caplog.text
    assert not any(map(is_alive, told("serving")))


def test_who_is_stuck_is_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """These processes give one sign of life, and then none."""
    monkeypatch.setattr(supervisor, "_MOST_MISSED", 10)
    scene = Scene(lambda: until(lambda: len(told("serving")) >= 4))
    scene.run(workers.for_ever, stop_seconds=0.2)
    assert "is stuck" in caplog.text


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    code = "from tests.service.workers import supervised; supervised()"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, start_new_session=True
    ) as started:
        until(lambda: len(told("serving")) == 2)
        yield started
        if started.poll() is None:
            started.kill()


def test_nobody_is_left_behind(program: subprocess.Popen[bytes]) -> None:
    program.kill()
    until(lambda: len(told("stopped")) == 2)
    until(lambda: not any(map(is_alive, told("serving"))))


def test_a_terminal_interrupts_all_once(program: subprocess.Popen[bytes]) -> None:
    os.killpg(program.pid, signal.SIGINT)
    assert program.wait(60) == 0
    assert told("stopped") == told("serving")
