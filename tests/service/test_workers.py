from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest

from foretell.service.errors import StartError
from foretell.service.settings import Settings
from foretell.service.start import serve
from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server
from tests.support.waiting import until

BODY = {"inputs": [{"series": [1.0] * 8}]}
ANSWERED = 'foretell_requests_total{model="slow",route="/forecast",status="200",version="1"}'
WINDOWS = 'foretell_batch_windows_sum{model="slow",version="1"}'


def everyone(server: Server) -> bool:
    """Whether both workers take requests."""
    return bool(httpx.get(f"{server.url}/readyz").json()["workers"]["running"] == 2)


def workers(server: Server) -> list[int]:
    """Ids of all processes that have served requests."""
    return [int(pid) for pid in re.findall(r"Started server process \[(\d+)\]", server.log)]


def engine(server: Server) -> int:
    """Id of the current engine."""
    loads = [line for line in server.log.splitlines() if "loaded slow@1" in line]
    return int(json.loads(loads[-1])["process"])


def ask_all_the_time(server: Server, statuses: list[int]) -> Callable[[], None]:
    """Clients that send requests until the returned function is called."""
    stopped = threading.Event()

    def ask() -> None:
        while not stopped.is_set():
            with suppress(httpx.TransportError), httpx.Client(timeout=60) as http:
                while not stopped.is_set():
                    answer = http.post(f"{server.url}/forecast", json=BODY)
                    statuses.append(answer.status_code)
                    if answer.status_code == 503:
                        assert answer.headers["retry-after"] == "1"

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()

    def stop() -> None:
        stopped.set()
        for thread in threads:
            thread.join(60)

    return stop


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


def test_workers_share_models_keys_and_metrics(
    slow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection goes to one worker, and every worker has the same state."""
    models, keys = tmp_path / "models", tmp_path / "keys"
    shutil.copytree(slow, models)
    keys.write_text("one\n")
    settings = {"workers": 2, "threads": 1, "api_keys_file": keys, "admin_keys": "secret"}
    admin = {"X-API-Key": "secret"}
    with Server(models, tmp_path / "log", **settings) as server:

        def statuses(key: str) -> set[int]:
            headers = {"X-API-Key": key}
            answers = (httpx.get(f"{server.url}/models", headers=headers) for _ in range(20))
            return {answer.status_code for answer in answers}

        def forecasts() -> list[dict[str, Any]]:
            url = f"{server.url}/forecast"
            return [httpx.post(url, json=BODY, headers=admin).json() for _ in range(20)]

        until(lambda: everyone(server))
        forecasts()
        until(lambda: server.metric(ANSWERED) == 20)
        assert server.metric(WINDOWS) == 20
        assert server.metric("foretell_ready") == 1
        loads = 'foretell_model_loads_total{model="slow",outcome="loaded",version="1"}'
        assert server.metric(loads) == 1
        answer = httpx.get(f"{server.url}/readyz").json()
        both = {"wanted": 2, "running": 2}
        assert answer == {"ready": True, "workers": both, "models": {"slow@1": "ready"}}
        # Every worker gets changes of models.
        write_bundle(models, Spec(name="slow", version="2", horizon=6))
        load = f"{server.url}/v2/repository/models/slow/load"
        assert httpx.post(load, headers=admin).status_code == 200
        assert {answer["model_version"] for answer in forecasts()} == {"2"}
        stats = httpx.get(f"{server.url}/v2/models/slow/stats", headers=admin).json()
        assert [each["execution_count"] for each in stats["model_stats"]] == [20, 20]
        # Every worker reads the changed file of keys.
        assert (statuses("one"), statuses("two")) == ({200}, {401})
        keys.write_text("two\n")
        until(lambda: (statuses("one"), statuses("two")) == ({401}, {200}))
        keys.unlink()
        until(lambda: server.log.count("the keys stay as they are") == 2)
        assert (statuses("one"), statuses("two")) == ({401}, {200})
        # Every worker logs the same id for a key.
        lines = [json.loads(line) for line in server.log.splitlines()]
        named = {(line["process"], line["key"]) for line in lines if line.get("key")}
        assert len({process for process, _ in named}) == 2
        assert len({key for _, key in named}) == 3
        # Another server does not get the port.
        monkeypatch.setattr("foretell.service.logs.configure", lambda *_: None)
        port = httpx.URL(server.url).port
        taken = Settings(models=models, port=port, workers=2, device="cpu")
        message = f"cannot listen on 127.0.0.1:{port}: Address already"
        with pytest.raises(StartError, match=message):
            serve(taken)
        assert server.stop() == 0


@pytest.fixture
def connections(server: Server) -> Iterator[list[HTTPConnection]]:
    """Sixteen connections, each to one of two workers: very likely to both."""
    url = httpx.URL(server.url)
    with ExitStack() as stack:
        made = [HTTPConnection(url.host, url.port, timeout=60) for _ in range(16)]
        yield [stack.enter_context(closing(each)) for each in made]


@pytest.mark.slow
def test_killed_processes_are_replaced_and_counted(
    server: Server, connections: list[HTTPConnection]
) -> None:
    statuses: list[int] = []

    def ready(connection: HTTPConnection) -> tuple[int, bool, dict[str, int]]:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        status = json.loads(answer.read())
        return answer.status, status["ready"], status["workers"]

    def kill(victim: int) -> None:
        noted = server.log.count("another one takes its place")
        os.kill(victim, signal.SIGKILL)
        # The process ends a moment before its end is recorded.
        until(lambda: server.log.count("another one takes its place") > noted)

    def restarts(*names: str) -> float:
        return sum(
            server.metric(f'foretell_process_restarts_total{{process="{name}"}}') for name in names
        )

    for connection in connections:
        ready(connection)
    stop = ask_all_the_time(server, statuses)
    until(lambda: len(statuses) > 20)
    kill(workers(server)[0])
    left = []
    for connection in connections:
        with suppress(ConnectionError):
            status = ready(connection)
            # The remaining worker answers: no load balancer should turn away. The first probe is
            # long before another worker can have begun.
            assert status[:2] == (200, True)
            assert left or status[2] == {"wanted": 2, "running": 1}
            left.append(connection)
    until(lambda: len(workers(server)) == 3)
    until(lambda: everyone(server))
    before = len(statuses)
    until(lambda: len(statuses) > before + 20)
    # Its own connections are lost; new ones wait until a worker accepts them.
    assert set(statuses) == {200}
    assert server.metric(WINDOWS) >= before
    assert server.metric("foretell_workers_wanted") == 2
    assert server.metric("foretell_workers_running") == 2
    assert restarts("worker-0", "worker-1") == 1
    # Without the engine all answers are errors.
    killed = engine(server)
    kill(killed)
    assert ready(left[0]) == (503, False, {"wanted": 2, "running": 2})
    assert httpx.get(f"{server.url}/healthz").status_code == 200
    until(lambda: engine(server) != killed)
    until(lambda: ready(left[0])[0] == 200)
    before = len(statuses)
    until(lambda: 200 in statuses[before:])
    stop()
    assert set(statuses) == {200, 503}
    assert len(workers(server)) == 3
    # Counts of the previous engine are lost, but not the number of restarts.
    assert restarts("engine") == 1
    assert restarts("worker-0", "worker-1") == 1
    for name in ("worker-0", "worker-1", "engine", "supervisor"):
        assert server.metric(f'process_resident_memory_bytes{{process="{name}"}}') > 0
    assert server.stop() == 0


@pytest.mark.slow
def test_stuck_engine_is_replaced(server: Server) -> None:
    stuck = engine(server)
    os.kill(stuck, signal.SIGSTOP)
    # The parent waits a quarter of a minute for heartbeats.
    until(lambda: engine(server) != stuck)
    until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)
    assert httpx.post(f"{server.url}/forecast", json=BODY).status_code == 200
    assert f"process {stuck} (engine) is stuck" in server.log
    assert server.stop() == 0


@pytest.mark.slow
def test_workers_answer_without_an_engine(slow: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    shutil.copytree(slow, models)
    settings = {"workers": 2, "threads": 1, "operations_port": 0}
    with Server(models, tmp_path / "log", **settings) as server:
        until(lambda: "http://127.0.0.1" in server.log and len(workers(server)) == 2)
        until(lambda: len(set(addresses(server))) == 2)
        ours, probes = dict.fromkeys(addresses(server))
        until(lambda: httpx.get(f"{probes}/readyz").json()["workers"]["running"] == 2)
        # The next engine cannot load the model.
        (models / "slow").rename(tmp_path / "gone")
        os.kill(engine(server), signal.SIGKILL)
        os.kill(workers(server)[0], signal.SIGKILL)
        until(lambda: len(workers(server)) == 3)
        for _ in range(12):
            # Each connection goes to one of the workers, one of which has never seen an engine.
            assert httpx.get(f"{probes}/healthz", timeout=30).status_code == 200
            assert httpx.get(f"{probes}/readyz", timeout=30).status_code == 503
            for answer in (
                httpx.get(f"{probes}/metrics", timeout=30),
                httpx.post(f"{ours}/forecast", json=BODY, timeout=30),
            ):
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        (tmp_path / "gone").rename(models / "slow")
        until(lambda: httpx.get(f"{probes}/readyz", timeout=30).status_code == 200)
        assert httpx.post(f"{ours}/forecast", json=BODY).status_code == 200
        assert server.stop() == 0


def addresses(server: Server) -> list[str]:
    """Its addresses in the log, in order."""
    return re.findall(r"http://127\.0\.0\.1:\d+", server.log)


@pytest.mark.slow
def test_no_request_is_lost_under_load(server: Server) -> None:
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


def test_bad_keys_are_an_error_before_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretell.service.logs.configure", lambda *_: None)
    settings = Settings(models=tmp_path / "nowhere", port=0, api_keys_file=tmp_path / "no-keys")
    with pytest.raises(StartError, match="FORETELL_API_KEYS_FILE"):
        serve(settings)
