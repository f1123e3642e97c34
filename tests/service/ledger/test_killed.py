"""A server that is killed leaves a whole database."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.service.ledger.conftest import CONTEXT, series_of
from tests.service.ledger.sound import check
from tests.support.process import Server
from tests.support.waiting import until

TRUTH = np.random.default_rng(0).normal(size=5000)
KEPT = 'foretell_ledger_forecasts_total{outcome="kept"}'


def body(name: str, origin: int) -> dict[str, Any]:
    return {
        "model": "calibrated",
        "inputs": [series_of(name, TRUTH[origin : origin + CONTEXT], origin)],
    }


@contextmanager
def load(url: str, statuses: list[int], first: int) -> Iterator[None]:
    """Threads that forecast, each from one hour after the other, until the end of the block."""
    stopped = threading.Event()

    def ask(number: int) -> None:
        origin = first
        with suppress(httpx.TransportError), httpx.Client(timeout=60) as http:
            while not stopped.is_set():
                answer = http.post(f"{url}/forecast", json=body(f"s{number % 3}", origin))
                statuses.append(answer.status_code)
                origin += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def kill_often(times: int, sqlite: str, repository: Path, tmp_path: Path) -> None:
    random = np.random.default_rng()
    stored = 0
    for turn in range(times):
        statuses: list[int] = []
        settings = {"ledger": sqlite, "ledger_learn": "requests"}
        with Server(repository, tmp_path / f"log{turn}", **settings) as server:
            with load(server.url, statuses, 200 * turn):
                until(lambda server=server: server.metric(KEPT) > 0)
                # The writer's transactions begin five times a second.
                time.sleep(random.uniform(0, 0.5))
                server.process.kill()
            server.wait()
        assert set(statuses) == {200}
        before, stored = stored, check(sqlite)
        assert stored > before


def test_killed_server(sqlite: str, repository: Path, tmp_path: Path) -> None:
    kill_often(3, sqlite, repository, tmp_path)


@pytest.mark.slow
def test_killed_server_twenty_times(sqlite: str, repository: Path, tmp_path: Path) -> None:
    kill_often(20, sqlite, repository, tmp_path)


def test_stopped_server_writes_what_waits(sqlite: str, repository: Path, tmp_path: Path) -> None:
    with Server(repository, tmp_path / "log", ledger=sqlite) as server:
        for origin in range(50):
            answer = httpx.post(f"{server.url}/forecast", json=body("a", origin), timeout=60)
            assert answer.status_code == 200
        assert server.stop() == 0
    assert check(sqlite) == 50


def test_killed_engine(sqlite: str, repository: Path, tmp_path: Path) -> None:
    """The HTTP workers connect to the next engine, which keeps forecasts, too."""

    def engine(server: Server) -> int:
        lines = [line for line in server.log.splitlines() if "loaded calibrated@1" in line]
        return int(json.loads(lines[-1])["process"])

    def kept(server: Server) -> bool:
        answer = httpx.post(f"{server.url}/forecast", json=body("a", next(origins)), timeout=60)
        if answer.status_code != 200:
            return False
        found: bool = answer.json()["outputs"][0]["content"][0]["in_ledger"]
        return found

    origins = iter(range(1000))
    with Server(repository, tmp_path / "log", ledger=sqlite, workers=2) as server:
        until(lambda: kept(server))
        until(lambda: server.metric(KEPT) > 0)
        first = engine(server)
        os.kill(first, signal.SIGKILL)
        until(lambda: engine(server) != first)
        until(lambda: kept(server))
        until(lambda: server.metric(KEPT) > 0)
        assert server.metric("foretell_ledger_up") == 1
        server.stop()
    assert check(sqlite) >= 2
