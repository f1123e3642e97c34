"""Signals other than SIGTERM and SIGINT (encode/uvicorn#2596, benoitc/gunicorn#594)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from tests.service.test_server import ask
from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT, Server
from tests.support.waiting import until

_RAN = 'foretell_batch_windows_count{model="slow",version="1"}'


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slow")
    write_bundle(folder, Spec(name="slow", burn=10))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT], ids=lambda number: number.name)
def test_signal_that_ends_a_server_loses_no_request(
    number: signal.Signals, workers: int, slow: Path, tmp_path: Path
) -> None:
    settings = {"threads": 1, "max_batch": 1, "workers": workers}
    with Server(slow, tmp_path / "log", **settings) as server, ExitStack() as stack:
        callers = [stack.enter_context(ask(server)) for _ in range(8)]
        until(lambda: server.metric(_RAN) >= 1)
        server.process.send_signal(number)
        answers = [caller.recv(1 << 16) for caller in callers]
        assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)
        assert server.wait() == 0
        if workers == 1:
            assert f"stops: {number.name}" in server.log


# Sends signals to itself when it imports a module, or to every process that it starts.
_SIGNALLED = """
import os, signal, sys
from multiprocessing.context import SpawnProcess

numbers = [signal.Signals[name] for name in os.environ["NUMBERS"].split()]
place = os.environ["PLACE"]

def send(process):
    for number in numbers:
        os.kill(process, number)

class Finder:
    def find_spec(self, name, path, target=None):
        if name == place:
            send(os.getpid())

start = SpawnProcess.start

def start_and_signal(process):
    start(process)
    send(process.pid)

sys.meta_path.insert(0, Finder())
if place == "process":
    SpawnProcess.start = start_and_signal
from foretell.__main__ import main
main()
"""
_PLACES = ["foretell.service.settings", "foretell.service.start", "foretell.service.logs"]


@pytest.mark.slow
@pytest.mark.parametrize("place", [*_PLACES, "foretell.service.server"])
def test_starting_server_ignores_signals_of_log_rotation(
    place: str, slow: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "NUMBERS": "SIGUSR1 SIGUSR2", "PLACE": place}
    with Server(slow, tmp_path / "log", code=_SIGNALLED, environment=environment) as server:
        assert httpx.get(f"{server.url}/readyz", timeout=60).status_code == 200
        assert server.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"])
def test_starting_server_ends_at_a_signal_like_a_running_one(
    number: str, place: str, slow: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SIGNALLED, "serve", "--models", slow, "--port", "0"],
        cwd=ROOT,
        env={**os.environ, "NUMBERS": number, "PLACE": place},
        stderr=subprocess.PIPE,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_starting_process_leaves_signals_to_its_supervisor(slow: Path, tmp_path: Path) -> None:
    numbers = "SIGINT SIGHUP SIGQUIT SIGUSR1 SIGUSR2"
    environment = {**os.environ, "NUMBERS": numbers, "PLACE": "process"}
    settings = {"threads": 1, "workers": 2}
    log = tmp_path / "log"
    with Server(slow, log, code=_SIGNALLED, environment=environment, **settings) as server:
        until(lambda: httpx.get(f"{server.url}/readyz", timeout=60).status_code == 200)
        assert "ended with" not in server.log
        assert server.stop() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_signals_of_log_rotation_are_ignored_by_every_process(
    workers: int, slow: Path, tmp_path: Path
) -> None:
    with Server(slow, tmp_path / "log", threads=1, workers=workers) as server:
        for process in psutil.Process(server.process.pid).children(recursive=True):
            if "spawn_main" in " ".join(process.cmdline()):
                for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
                    process.send_signal(number)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            server.process.send_signal(number)
        for _ in range(3):
            assert httpx.get(f"{server.url}/readyz", timeout=60).status_code == 200
        assert server.stop() == 0


def test_nohup_keeps_the_server_without_its_terminal(slow: Path, tmp_path: Path) -> None:
    program = ("nohup", sys.executable, "-m", "foretell")
    with Server(slow, tmp_path / "log", program=program, threads=1) as server:
        server.process.send_signal(signal.SIGHUP)
        for _ in range(3):
            assert httpx.get(f"{server.url}/readyz", timeout=60).status_code == 200
        assert server.stop() == 0
