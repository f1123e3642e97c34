"""Signals other than SIGTERM and SIGINT (encode/uvicorn#2596, benoitc/gunicorn#594)."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from tests.service.bundles import Spec, write_bundle
from tests.service.process import Server
from tests.service.test_server import ask
from tests.service.waiting import until

_RAN = 'foretell_batch_windows_count{model="slow",version="1"}'


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slow")
    write_bundle(folder, Spec(name="slow", burn=10))
    return folder


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT], ids=lambda number: number.name)
def test_a_signal_that_ends_a_server_loses_no_request(
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


def test_nohup_keeps_a_server_that_loses_its_terminal(slow: Path, tmp_path: Path) -> None:
    program = ("nohup", sys.executable, "-m", "foretell")
    with Server(slow, tmp_path / "log", program=program, threads=1) as server:
        server.process.send_signal(signal.SIGHUP)
        for _ in range(3):
            assert httpx.get(f"{server.url}/readyz", timeout=60).status_code == 200
        assert server.stop() == 0
