from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from foretell.service.errors import StartError
from foretell.service.processes import serve
from foretell.service.settings import Settings
from tests.service.bundles import Spec, write_bundle
from tests.service.process import Server
from tests.service.waiting import until

BODY = {"inputs": [{"series": [1.0] * 8}]}
BATCHES = 'foretell_batch_windows_count{model="slow",version="1"}'


def everyone(server: Server) -> bool:
    """Whether both processes can be asked."""
    return bool(httpx.get(f"{server.url}/readyz").json()["processes"] == 2)


def pids(server: Server) -> list[int]:
    """The processes that ever served."""
    return [int(pid) for pid in re.findall(r"Started server process \[(\d+)\]", server.log)]


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that needs a noticeable time for a window."""
    folder = tmp_path_factory.mktemp("slow")
    write_bundle(folder, Spec(name="slow", burn=5))
    return folder


@pytest.fixture
def server(slow: Path, tmp_path: Path) -> Iterator[Server]:
    with Server(slow, tmp_path / "log", workers=2, threads=1) as server:
        until(lambda: everyone(server))
        yield server


def test_several_count_and_report_as_one(server: Server) -> None:
    for _ in range(20):
        # Each connection goes to one of them.
        assert httpx.post(f"{server.url}/forecast", json=BODY).status_code == 200
    assert server.metric(BATCHES) == 20
    assert server.metric("foretell_ready") == 1
    assert (
        server.metric('foretell_model_loads_total{name="slow",outcome="loaded",version="1"}') == 2
    )
    answer = httpx.get(f"{server.url}/readyz").json()
    assert answer == {"ready": True, "processes": 2, "models": {"slow@1": "ready"}}
    assert server.stop() == 0


def test_a_killed_process_is_replaced_and_what_it_counted_stays(server: Server) -> None:
    for _ in range(20):
        httpx.post(f"{server.url}/forecast", json=BODY)
    os.kill(pids(server)[0], signal.SIGKILL)
    until(lambda: len(pids(server)) == 3)
    until(lambda: everyone(server))
    assert server.metric(BATCHES) == 20
    assert httpx.post(f"{server.url}/forecast", json=BODY).status_code == 200
    assert server.stop() == 0


def test_under_load_nothing_that_was_sent_is_lost(server: Server) -> None:
    statuses: list[int] = []

    def ask() -> None:
        with httpx.Client(timeout=60) as http:
            while True:
                try:
                    statuses.append(http.post(f"{server.url}/forecast", json=BODY).status_code)
                except httpx.ConnectError:
                    return

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: len(statuses) > 20)
    assert server.stop() == 0
    for thread in threads:
        thread.join()
    assert set(statuses) == {200}


def test_a_killed_watcher_leaves_nobody_behind(server: Server) -> None:
    server.process.kill()
    server.process.wait()

    def gone() -> bool:
        try:
            httpx.get(f"{server.url}/healthz")
        except httpx.TransportError:
            return True
        return False

    until(gone)


def test_two_servers_do_not_share_a_port(
    server: Server, slow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretell.service.telemetry.logs.configure", lambda *_: None)
    port = httpx.URL(server.url).port
    settings = Settings(models=slow, port=port, workers=2, device="cpu")
    with pytest.raises(StartError, match=f"cannot listen on 127.0.0.1:{port}: Address already"):
        serve(settings)


def test_bad_keys_are_told_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretell.service.telemetry.logs.configure", lambda *_: None)
    settings = Settings(models=tmp_path / "nowhere", port=0, api_keys_file=tmp_path / "no-keys")
    with pytest.raises(StartError, match="FORETELL_API_KEYS_FILE"):
        serve(settings)
