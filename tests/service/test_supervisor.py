from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from foretell.service import workers as supervisor
from foretell.service.errors import StartError
from foretell.service.metrics import Processes
from foretell.service.workers import Child, Heartbeat, Supervisor, shared_processes
from tests.service import workers
from tests.service.workers import recorded
from tests.support.process import ROOT
from tests.support.waiting import until


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


Act = Callable[[int, Heartbeat], None]


def two(
    act: Act, processes: Processes, stop_seconds: float = 30, stuck_seconds: int = 60
) -> list[Child]:
    return [
        Child(f"role-{slot}", partial(act, slot), processes, stop_seconds, stuck_seconds)
        for slot in range(2)
    ]


def of_two() -> Processes:
    return shared_processes(["role-0", "role-1"], 2)


class Scene:
    """Runs a function while a supervisor runs, then stops it.

    Attributes:
        processes: The supervisor's record of processes.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self.processes = of_two()
        self.error: BaseException | None = None

    def run(
        self, act: Act, *, stop_seconds: float = 30, stuck_seconds: int = 60, together: bool = True
    ) -> bool:
        thread = threading.Thread(target=self._play)
        children = two(act, self.processes, stop_seconds, stuck_seconds)
        groups = [children] if together else [[child] for child in children]
        found = Supervisor(*groups, stop_seconds=stop_seconds)
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


def test_processes_stop_in_the_order_of_their_groups() -> None:
    handler = signal.getsignal(signal.SIGTERM)
    scene = Scene(lambda: until(lambda: len(recorded("serving")) == 2))
    assert scene.run(workers.until_stopped, together=False)
    assert recorded("stopped") == recorded("serving")
    assert signal.getsignal(signal.SIGTERM) is handler
    first, second = (
        next(file.stat().st_mtime_ns for file in workers.folder().glob(f"{slot}-stopped-*"))
        for slot in range(2)
    )
    assert first <= second


@pytest.mark.parametrize(
    ("number", "end"),
    # Python has no name for a real-time signal.
    [(signal.SIGKILL, "SIGKILL"), (40, "signal 40")],
)
def test_dead_process_is_replaced(number: int, end: str, caplog: pytest.LogCaptureFixture) -> None:
    def kill_one() -> None:
        until(lambda: len(recorded("serving")) == 2)
        os.kill(recorded("serving")[0], number)
        until(lambda: len(recorded("serving")) == 3)

    assert Scene(kill_one).run(workers.until_stopped)
    assert len(recorded("stopped")) == 2
    assert re.search(rf"\(role-.\) ended with {end}; another one takes its place", caplog.text)


def test_serving_processes_and_restarts_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    # The restart after a second kill waits long enough to be observed.
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE", 3600)
    found: list[list[int]] = []

    def kill_two() -> None:
        processes = scene.processes
        for count in (2, 3):
            until(lambda: processes.running == 2)
            until(lambda count=count: len(recorded("serving")) == count)
            found.append(list(processes.numbers))
            os.kill(processes.numbers[0], signal.SIGKILL)
            until(lambda count=count: processes.numbers[3] == count - 1)
        until(lambda: processes.running == 1)

    scene = Scene(kill_two)
    assert scene.run(workers.until_stopped)
    (first, other, own, *restarts), (second, *rest) = found
    assert sorted((first, second, other)) == recorded("serving")
    assert (own, restarts, rest) == (os.getpid(), [0, 0, 0], [other, own, 1, 0, 0])
    assert [*scene.processes.numbers] == [0, 0, own, 2, 0, 0]


@pytest.mark.slow
def test_pause_before_restarts_of_a_failing_process(caplog: pytest.LogCaptureFixture) -> None:
    def kill_three() -> None:
        for count in range(2, 5):
            until(lambda count=count: len(recorded("serving")) == count)
            os.kill(recorded("serving")[-1], signal.SIGKILL)
        until(lambda: len(recorded("serving")) == 5)

    assert Scene(kill_three).run(workers.until_stopped)
    pauses = [line.split()[-2] for line in caplog.messages if "takes its place" in line]
    assert sorted(pauses) in (["0", "0", "0.05"], ["0", "0.05", "0.1"])


def test_supervisor_does_not_spin_during_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = 0
    wait = supervisor.connection.wait

    def counting(*given: object) -> object:
        nonlocal waits
        waits += 1
        return wait(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(supervisor.connection, "wait", counting)
    scene = Scene(lambda: until(lambda: len(recorded("serving")) == 2))
    assert scene.run(workers.slow_to_stop)
    # Each sends fifty heartbeats; a busy loop would wait a hundred thousand times.
    assert waits < 10_000


@pytest.mark.parametrize(
    ("act", "message", "last_words"),
    [
        (workers.never, "^no such device$", ""),
        (workers.dies_at_once, "ended with SIGKILL before it could serve", ""),
        (workers.fails_with_last_words, "ended with status 1 before it could serve", "last words"),
    ],
)
def test_process_that_cannot_start_ends_all(
    act: Act, message: str, last_words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StartError, match=message):
        Supervisor(two(act, of_two()), stop_seconds=30).run()
    assert not any(map(is_alive, recorded("serving")))
    assert last_words in capfd.readouterr().err


def test_process_that_cannot_restart_does_not_stop_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def kill_one() -> None:
        until(lambda: len(recorded("serving")) == 2)
        os.kill(recorded("serving")[0], signal.SIGKILL)
        until(lambda: len(recorded("refused")) >= 2)

    assert Scene(kill_one).run(workers.cannot_return)
    assert len(recorded("stopped")) == 1
    assert "no longer; another one takes its place" in caplog.text


@pytest.mark.slow
def test_process_that_does_not_stop_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(lambda: until(lambda: len(recorded("serving")) == 2))
    assert not scene.run(workers.for_ever, stop_seconds=0.2)
    assert "does not end by itself" in caplog.text
    assert not any(map(is_alive, recorded("serving")))


@pytest.mark.slow
def test_stuck_process_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """These processes send one heartbeat, and then none."""
    scene = Scene(lambda: until(lambda: len(recorded("serving")) >= 4))
    scene.run(workers.for_ever, stop_seconds=0.2, stuck_seconds=10)
    assert "is stuck" in caplog.text


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    act = getattr(request, "param", "until_stopped")
    code = f"from tests.service import workers; workers.supervised(workers.{act})"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, start_new_session=True
    ) as started:
        until(lambda: len(recorded("serving")) == 2)
        yield started
        if started.poll() is None:
            started.kill()


def test_killed_supervisor_leaves_no_process(program: subprocess.Popen[bytes]) -> None:
    program.kill()
    until(lambda: len(recorded("stopped")) == 2)
    until(lambda: not any(map(is_alive, recorded("serving"))))


def test_terminal_interrupt_reaches_each_process_once(program: subprocess.Popen[bytes]) -> None:
    os.killpg(program.pid, signal.SIGINT)
    assert program.wait(60) == 0
    assert recorded("stopped") == recorded("serving")


@pytest.mark.slow
@pytest.mark.parametrize("program", ["counting"], indirect=True)
def test_signal_to_the_group_is_forwarded_once(program: subprocess.Popen[bytes]) -> None:
    def times() -> int:
        return len([*workers.folder().glob("*-terminate*")])

    os.killpg(program.pid, signal.SIGTERM)
    until(lambda: times() == 2)
    # As `timeout` does, which signals the process and then its group.
    os.killpg(program.pid, signal.SIGTERM)
    time.sleep(1)
    assert not recorded("hurried")
    os.killpg(program.pid, signal.SIGTERM)
    assert program.wait(60) == 0
    # The second signal hurries them.
    assert times() == 2
    assert recorded("hurried") == recorded("serving")
