"""A process that may open few files (encode/uvicorn#1030)."""

from __future__ import annotations

import errno
import logging
import resource
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from foretell.service.http.sockets import Acceptor, accept_all, listen
from foretell.service.metrics import Metrics
from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server
from tests.support.waiting import until

_FEW = 64
_CALLERS = 100
_MODELS = 60


def test_callers_beyond_the_files_are_answered(tmp_path: Path) -> None:
    write_bundle(tmp_path / "models", Spec())
    limited = ("bash", "-c", f'ulimit -n {_FEW}; exec "$@"', "-", sys.executable, "-m", "foretell")
    with (
        Server(tmp_path / "models", tmp_path / "log", program=limited, threads=1) as server,
        httpx.Client(base_url=server.url) as client,
        ExitStack() as stack,
    ):
        assert client.get("/healthz").status_code == 200
        url = httpx.URL(server.url)
        callers = [
            stack.enter_context(socket.create_connection((url.host, url.port or 80), timeout=60))
            for _ in range(_CALLERS)
        ]
        refused = kept = 0
        for caller in callers:
            caller.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = caller.recv(1000)
            refused += answer.startswith(b"HTTP/1.1 503 ")
            kept += answer.startswith(b"HTTP/1.1 200 ")
        assert refused + kept == _CALLERS
        assert min(refused, kept) > 0
        counted = 'foretell_connections_cut_off_total{reason="too_many"}'
        found = [line for line in client.get("/metrics").text.splitlines() if counted in line]
        assert found == [f"{counted} {float(refused)}"]
        assert f"may open {_FEW} files; raise the hard limit" in server.log
        assert server.stop() == 0


def test_every_process_may_open_what_the_system_allows(tmp_path: Path) -> None:
    """From the start: models are loaded before the first connection comes."""
    for number in range(_MODELS):
        write_bundle(tmp_path / "models", Spec(name=f"m{number}"))
    limited = ("bash", "-c", f'ulimit -Sn {_FEW}; exec "$@"', "-", sys.executable, "-m", "foretell")
    with Server(
        tmp_path / "models", tmp_path / "log", program=limited, threads=1, workers=2
    ) as server:
        answer = httpx.get(f"{server.url}/readyz")
        assert answer.json()["models"] == {f"m{number}@1": "ready" for number in range(_MODELS)}
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for name in ("supervisor", "worker-0", "worker-1", "engine"):
            line = f'process_max_fds{{process="{name}"}}'
            until(lambda line=line: server.metric(line) == hard)
        assert server.metric('process_open_fds{process="engine"}') < _MODELS
        assert server.stop() == 0


class _Full:
    """A listener of a process that has no file left."""

    def __init__(self, listener: socket.socket, error: int) -> None:
        self._listener = listener
        self._error = error
        self.asked = 0

    def accept(self) -> None:
        self.asked += 1
        raise OSError(self._error, "full")


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_an_acceptor_pauses_while_there_is_no_file(
    error: int, caplog: pytest.LogCaptureFixture
) -> None:
    timers = []

    class Loop:
        readers = 0

        def add_reader(self, *_: object) -> None:
            self.readers += 1

        def remove_reader(self, *_: object) -> None:
            self.readers -= 1

        def call_later(self, seconds: float, *call: object) -> None:
            timers.append((seconds, call))

    [listener] = listen("127.0.0.1", 0)
    with listener, caplog.at_level(logging.WARNING):
        full = _Full(listener, error)
        acceptor = Acceptor.__new__(Acceptor)
        acceptor._loop, acceptor._metrics = Loop(), Metrics()
        acceptor._listeners, acceptor._connecting = [full], set()
        acceptor._begin(full)
        acceptor._accept(full)
        assert (acceptor._loop.readers, full.asked) == (0, 1)
        [(seconds, (begin, *arguments))] = timers
        assert seconds == 1.0
        begin(*arguments)
        assert acceptor._loop.readers == 1
    assert "accepts no connections for 1 s: full" in caplog.text


def test_a_listener_that_has_ended_is_no_shortage() -> None:
    [listener] = listen("127.0.0.1", 0)
    with listener:
        listener.setblocking(False)
        listener.shutdown(socket.SHUT_RDWR)
        assert list(accept_all(listener)) == []
