from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest

from foretell.service.engine.health import HealthMonitor
from foretell.service.server import _allow_connections, _Server
from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT, Server
from tests.support.waiting import until

BODY = {"inputs": [{"series": [1.0] * 8}]}
DEPTH = 'foretell_queue_depth{model="slow",version="1"}'
GONE = 'foretell_rejected_total{reason="client_disconnected"}'
BATCHES = 'foretell_batch_windows_count{model="slow",version="1"}'


def ask(server: Server) -> socket.socket:
    """Send a request; returns the socket before the answer arrives."""
    url = httpx.URL(server.url)
    caller = socket.create_connection((url.host, url.port or 80), timeout=60)
    body = json.dumps(BODY).encode()
    caller.sendall(b"POST /forecast HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
    caller.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return caller


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that needs a noticeable fraction of a second for a window."""
    folder = tmp_path_factory.mktemp("slow")
    write_bundle(folder, Spec(name="slow", burn=30))
    return folder


@pytest.fixture(scope="module")
def server(slow: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("log") / "server.log"
    with Server(slow, log, threads=1, max_batch=1, max_queue=16, max_inputs=16) as server:
        yield server


def test_forecasts_and_logs_json_lines(server: Server) -> None:
    answer = httpx.post(f"{server.url}/forecast", json=BODY, headers={"X-Request-Id": "seen"})
    assert answer.json()["outputs"][0]["content"][0]["mean_forecast"] == [1.0] * 4
    # The line is logged after the answer is sent.
    until(lambda: '"seen"' in server.log)
    lines = [json.loads(line) for line in server.log.splitlines()]
    line = next(line for line in lines if line.get("request_id") == "seen")
    assert (line["message"], line["path"], line["status"]) == ("request", "/forecast", 200)
    assert any("slow/1/forecast.onnx on CPUExecutionProvider" in line["message"] for line in lines)


def test_full_queue_deadline_and_disconnect(server: Server) -> None:
    large = {"inputs": BODY["inputs"] * 16}

    def post(body: object, timeout_ms: int = 60_000) -> httpx.Response:
        headers = {"X-Timeout-Ms": str(timeout_ms)}
        return httpx.post(f"{server.url}/forecast", json=body, headers=headers, timeout=60)

    with ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(post, large)
        until(lambda: server.metric(DEPTH) > 0)
        assert post(BODY, timeout_ms=50).status_code == 504
        before = server.metric(GONE)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/forecast", json=BODY, timeout=httpx.Timeout(60, read=0.001))
        until(lambda: server.metric(GONE) > before)
        full = post(large)
        assert full.status_code == 429
        assert int(full.headers["retry-after"]) >= 1
        assert accepted.result().status_code == 200
    until(lambda: server.metric(DEPTH) == 0)


def test_sigterm_finishes_accepted_requests(slow: Path, tmp_path: Path) -> None:
    with Server(slow, tmp_path / "log", threads=1, max_batch=1) as server, ExitStack() as stack:
        callers = [stack.enter_context(ask(server)) for _ in range(32)]
        # Some have run, one runs, the others wait.
        until(lambda: server.metric(BATCHES) >= 2)
        assert server.metric(BATCHES) < 32
        assert server.stop() == 0
        answers = [caller.recv(1 << 16) for caller in callers]
        assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/healthz")


@pytest.mark.slow
def test_grace_period_ends_with_an_answer_to_sending_clients(slow: Path, tmp_path: Path) -> None:
    with Server(slow, tmp_path / "log", grace_seconds=1) as server:
        url = httpx.URL(server.url)
        with socket.create_connection((url.host, url.port), timeout=60) as connection:
            connection.sendall(b"POST /forecast HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            until(lambda: httpx.get(f"{server.url}/healthz").is_success)
            server.process.send_signal(signal.SIGTERM)
            with connection.makefile("rb") as answer:
                head, _, body = answer.read().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"content-type: application/json" in head
        assert b"retry-after: 1" in head
        error = json.loads(body)["error"]
        assert (error["code"], error["type"]) == ("503", "not_ready")
        assert server.wait() == 0
        assert "Traceback" not in server.log


def process(client: Client, monitor: HealthMonitor | None = None, **settings: object) -> _Server:
    """A server of a client's application, without sockets."""
    given = client.settings.model_copy(update=settings)
    return _Server(given, client.engine, [], monitor=monitor)


def test_signal_makes_the_server_unready_at_once(slow: Path) -> None:
    with Client(slow) as client:
        # Before the start, load balancers need no time to notice.
        server = process(client, drain_delay_seconds=3600)
        server.handle_exit(signal.SIGTERM, None)
        assert client.get("/readyz").status_code == 503
        assert (server.should_exit, server.force_exit) == (True, False)
        # `timeout` signals twice.
        server.handle_exit(signal.SIGTERM, None)
        assert not server.force_exit
        server._debounce.last -= 0.5
        server.handle_exit(signal.SIGTERM, None)
        assert server.force_exit


def test_server_stays_unready_for_the_drain_delay(slow: Path) -> None:
    with Client(slow) as client:
        for seconds, is_over in ((3600, False), (0.01, True)):
            server = process(client, drain_delay_seconds=seconds)
            server.started = True
            server.handle_exit(signal.SIGTERM, None)
            assert not server.should_exit
            time.sleep(0.02)
            asyncio.run(server.on_tick(1))
            assert (server.should_exit, server.force_exit) == (is_over, False)


def test_second_signal_hurries_each_of_several_processes(slow: Path) -> None:
    """A process group or container may get a signal as a whole, and the processes forward it."""
    with Client(slow) as client:
        given = client.settings.model_copy(update={"drain_delay_seconds": 3600})
        server = _Server(given, client.engine, [], heartbeat=lambda: None)
        server.started = True
        server.handle_exit(signal.SIGTERM, None)
        assert not server.should_exit
        # Its time is over.
        server.should_exit = True
        server.handle_exit(signal.SIGTERM, None)
        assert (server.should_exit, server.force_exit) == (True, False)
        server.handle_exit(signal.SIGINT, None)
        assert server.force_exit
        # Python handles pending signals in the order of their numbers.
        server = _Server(given, client.engine, [], heartbeat=lambda: None)
        for number in (signal.SIGINT, signal.SIGTERM):
            server.handle_exit(number, None)
        assert server.force_exit


# The call never returns to Python, and releases the GIL.
LOADING = """
import ctypes, signal
from foretell.service import server
from foretell.__main__ import main

def load(*_):
    print("loading", flush=True)
    mutex = ctypes.create_string_buffer(256)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)

server.load = load
# As it is with the first process of a container: signals that nobody handles do nothing.
signal.signal(signal.SIGTERM, signal.SIG_IGN)
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_server_stops_during_a_load(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", LOADING, "serve", "--models", tmp_path, "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == b"loading\n"
            started.send_signal(number)
            assert started.wait(60) == 0
        finally:
            started.kill()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_endless_load_does_not_delay_the_end(processes: int, slow: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    shutil.copytree(slow, folder)
    settings = {"workers": processes, "admin_keys": "secret", "grace_seconds": 600}
    with Server(folder, tmp_path / "log", **settings) as server, ThreadPoolExecutor(2) as pool:
        # A file whose checksum takes an hour.
        os.truncate(write_bundle(folder, Spec(name="endless")) / "probes.npz", 2**42)
        url = f"{server.url}/v2/repository/models/endless/load"
        loads = [
            pool.submit(httpx.post, url, headers={"X-API-Key": "secret"}, timeout=60)
            for _ in range(2)
        ]
        status = f"{server.url}/readyz"
        until(lambda: httpx.get(status).json()["models"].get("endless@1") == "loading")
        assert server.stop() == 0
        assert [load.result().status_code for load in loads] == [503] * 2
        assert "does not end" not in server.log
        assert "Traceback" not in server.log


def test_port_for_operators_and_drain_delay(slow: Path, tmp_path: Path) -> None:
    settings = {"operations_port": 0, "drain_delay_seconds": 3600, "maxbatch": 1}
    with Server(slow, tmp_path / "log", **settings) as server:
        # A misspelt setting is named.
        assert "no setting is called FORETELL_MAXBATCH" in server.log
        until(lambda: server.log.count("http://127.0.0.1:") == 2)
        ours, other = re.findall(r"http://127\.0\.0\.1:\d+", server.log)
        for path in ("/healthz", "/readyz", "/metrics"):
            # The port decides, not the Host header.
            claim = {"Host": httpx.URL(other).netloc.decode()}
            assert httpx.get(ours + path, headers=claim).status_code == 404
            assert httpx.get(other + path).status_code == 200
        head = httpx.head(f"{ours}/models")
        assert (head.status_code, head.content) == (200, b"")
        assert httpx.post(f"{other}/forecast", json=BODY).status_code == 404
        assert httpx.get(f"{other}/docs").status_code == 404
        url = f"{ours}/forecast"
        assert httpx.post(url, json=BODY).status_code == 200
        server.process.send_signal(signal.SIGTERM)
        until(lambda: httpx.get(f"{other}/readyz").status_code == 503)
        # Load balancers have time to notice: new connections are answered.
        assert httpx.post(url, json=BODY).status_code == 200
        assert server.process.poll() is None
        # A second signal, which follows after a pause, ends the wait.
        time.sleep(0.6)
        assert server.stop() == 0


def test_idle_connection_gets_one_more_answer(slow: Path, tmp_path: Path) -> None:
    with Server(slow, tmp_path / "log") as server, httpx.Client() as http:
        url = f"{server.url}/forecast"
        assert http.post(url, json=BODY).headers.get("connection") is None
        server.process.send_signal(signal.SIGINT)
        until(lambda: "Shutting down" in server.log)
        answer = http.post(url, json=BODY)
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        assert server.wait() == 0


class Over(HealthMonitor):
    def __init__(self) -> None:
        self.over = False

    def is_over(self, now: float) -> bool:
        return self.over


def test_lost_gpu_ends_the_process(slow: Path) -> None:
    with Client(slow) as client:
        watch = Over()
        server, stopping = process(client, watch), process(client, watch)
        asyncio.run(server.on_tick(10))
        assert (server.should_exit, server.gave_up) == (False, False)
        watch.over = True
        # The watch is read once a second.
        asyncio.run(server.on_tick(11))
        assert not server.should_exit
        asyncio.run(server.on_tick(20))
        assert (server.should_exit, server.gave_up, server.force_exit) == (True, True, False)
        assert client.repository.draining
        # A stopping process does not request a replacement.
        stopping.handle_exit(signal.SIGTERM, None)
        asyncio.run(stopping.on_tick(10))
        assert not stopping.gave_up


@pytest.mark.parametrize(
    ("limit", "allowed"),
    [
        (9999, 2000),
        # Files other than connections are reserved first.
        (2050, 2000),
        (2049, 1999),
        (64, 14),
        (20, 1),
        (resource.RLIM_INFINITY, 2000),
    ],
)
def test_connections_are_limited_by_files(
    limit: int, allowed: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(range(10)))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    with caplog.at_level(logging.WARNING):
        assert _allow_connections(2000) == allowed
    assert (f"serves {allowed} connections at a time, not 2000" in caplog.text) == (allowed < 2000)


# Shorter than the ten seconds of the default.
IMPATIENT = """
from foretell.service.engine import limits
limits._IDLE_SECONDS = 2.0
from foretell.__main__ import main
main()
"""


@pytest.mark.slow
def test_memory_of_large_requests_is_freed(tmp_path: Path) -> None:
    write_bundle(tmp_path / "models", Spec())
    with Server(tmp_path / "models", tmp_path / "log", code=IMPATIENT) as server:
        process = psutil.Process(server.process.pid)
        body = json.dumps({"inputs": [{"series": [1.5] * 3000} for _ in range(200)]})
        for _ in range(3):
            assert httpx.post(f"{server.url}/forecast", content=body).status_code == 200
        time.sleep(0.5)
        held = process.memory_info().rss

        def less_is_held() -> bool:
            # Probes come more often than kept memory is checked.
            httpx.get(f"{server.url}/healthz")
            return process.memory_info().rss < held - 5 * 2**20

        until(less_is_held)
