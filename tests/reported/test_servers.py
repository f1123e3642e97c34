"""Faults of servers that clients and operators reported.

A process that may open few files (encode/uvicorn#1030).

Probes by HEAD (Kludex/fastapi-health#18).

One server for IPv4 and IPv6 (vllm-project/vllm#22816, kserve/kserve#4558, litellm#9563).

Telemetry that begins with the import of onnxruntime (microsoft/onnxruntime#25573).
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from foretell.service.errors import StartError
from foretell.service.http.sockets import Acceptor, accept_all, listen, reserve
from foretell.service.metrics import Metrics
from tests.deploy.test_compose import PROBES
from tests.support.bundles import Spec, write_bundle
from tests.support.process import ROOT, Server
from tests.support.waiting import until

_FEW = 64
_CALLERS = 100
_MODELS = 60


def test_connections_beyond_the_file_limit_are_answered(tmp_path: Path) -> None:
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
    """The limit is raised before models are loaded."""
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
    """A listener of a process that has reached its limit of open files."""

    def __init__(self, listener: socket.socket, error: int) -> None:
        self._listener = listener
        self._error = error
        self.requests = 0

    def accept(self) -> None:
        self.requests += 1
        raise OSError(self._error, "full")


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_acceptor_pauses_without_free_files(error: int, caplog: pytest.LogCaptureFixture) -> None:
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
        assert (acceptor._loop.readers, full.requests) == (0, 1)
        [(seconds, (begin, *arguments))] = timers
        assert seconds == 1.0
        begin(*arguments)
        assert acceptor._loop.readers == 1
    assert "accepts no connections for 1 s: full" in caplog.text


def test_closed_listener_is_not_a_shortage_of_files() -> None:
    [listener] = listen("127.0.0.1", 0)
    with listener:
        listener.setblocking(False)
        listener.shutdown(socket.SHUT_RDWR)
        assert list(accept_all(listener)) == []


_OTHERS = ("/docs", "/", "/openapi.json", "/page/style.css", "/models/none", "/nowhere")


def test_every_route_of_get_answers_head(tmp_path: Path) -> None:
    write_bundle(tmp_path / "models", Spec())
    with (
        Server(tmp_path / "models", tmp_path / "log", threads=1) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        document = client.get("/openapi.json").json()
        paths = {
            path.format(model="repeat", name="repeat", model_name="repeat", version="1", id="1")
            for path, operations in document["paths"].items()
            if "get" in operations
        }
        assert len(paths) > 10
        for path in sorted(paths | set(_OTHERS)):
            got, head = client.get(path), client.head(path)
            assert (head.status_code, head.content) == (got.status_code, b""), path
            assert head.headers["content-type"] == got.headers["content-type"], path
        for path in ("/v2/health/ready", "/v2/health/live", "/readyz", "/healthz"):
            assert client.head(path).status_code == 200
        assert client.head("/forecast").status_code == 405
    assert '"method":"HEAD"' in (tmp_path / "log").read_text()


_LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")


def reached(port: int) -> set[socket.AddressFamily]:
    """IP versions of which a port of this machine accepts connections."""
    found = set()
    for family, host in _LOOPBACK.items():
        with socket.socket(family) as caller:
            caller.settimeout(10)
            if caller.connect_ex((host, port)) == 0:
                found.add(family)
    return found


BOTH = {socket.AF_INET, socket.AF_INET6}
EVERY = ("", "*", "::", "[::]", "::0", "0::", "[0:0:0:0:0:0:0:0]", "::0.0.0.0")
OF_IPV4 = ("0", "::ffff:0.0.0.0", "::ffff:127.0.0.1", "0.0.0.0", "127.0.0.1")


@needs_ipv6
@pytest.mark.parametrize(
    ("host", "families"),
    [
        *((host, BOTH) for host in EVERY),
        *((host, {socket.AF_INET}) for host in OF_IPV4),
        *((host, {socket.AF_INET6}) for host in ("::1", "[::1]")),
    ],
)
def test_host_is_reachable_over_its_ip_versions(
    host: str, families: set[socket.AddressFamily]
) -> None:
    for groups in ([listen(host, 0)], reserve(host, 0, 2)):
        with ExitStack() as stack:
            for one in [one for group in groups for one in group]:
                stack.enter_context(one).listen()
            assert reached(groups[0][0].getsockname()[1]) == families


@needs_ipv6
@pytest.mark.parametrize("count", [1, 3])
def test_a_name_of_two_addresses_has_one_port(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(family, 1, 6, "", (host, 0)) for family, host in _LOOPBACK.items()]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with ExitStack() as stack:
        groups = reserve("both.test", 0, count)
        sockets = [stack.enter_context(one) for group in groups for one in group]
        assert [len(group) for group in groups] == [2] * count
        [port] = {one.getsockname()[1] for one in sockets}
        for one in sockets:
            one.listen()
        assert reached(port) == {socket.AF_INET, socket.AF_INET6}


def test_host_name_listens_on_the_addresses_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(socket, "has_dualstack_ipv6", lambda: False)
        for host in ("::", "[::0]", ""):
            [one] = listen(host, 0)
            with one:
                assert one.family == socket.AF_INET
    lacking = (socket.AF_INET, 1, 6, "", ("192.0.2.1", 0))
    own = (socket.AF_INET, 1, 6, "", ("127.0.0.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [lacking, own])
    [one] = listen("half.test", 0)
    with one:
        assert one.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("nowhere.invalid", r"nowhere\.invalid:80: "),
        *(
            (host, r".*\.test:80: no host can have")
            for host in (f"{'a' * 64}.test", "a..test", ".test", "\udcff.test")
        ),
    ],
)
def test_hosts_that_are_refused(host: str, message: str) -> None:
    for listening in (listen, lambda *address: reserve(*address, 2)):
        with pytest.raises(StartError, match=f"^cannot listen on {message}"):
            listening(host, 80)


@needs_ipv6
@pytest.mark.parametrize("host", ["::1", "[::1]", "127.0.0.1", "::", "[::0]", "0::", "0", "*", ""])
def test_health_check_of_the_image_uses_the_listening_host(host: str) -> None:
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    [listener] = listen(host, 0)
    with listener, HTTPServer(("", 0), Handler, bind_and_activate=False) as server:
        server.socket.close()
        server.socket = listener
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        subprocess.run(
            [sys.executable, "-c", PROBES[0][-1]],
            env={"FORETELL_HOST": host, "FORETELL_PORT": str(listener.getsockname()[1])},
            check=True,
        )
        thread.join()
    assert paths == ["/healthz"]


_OPEN = (
    "import foretell.export.runtime",
    "from foretell.service.engine.runtime import Runtime; Runtime('cpu')",
)


def run(code: str, **environment: str) -> str:
    """Output of a program with these settings of telemetry."""
    usual = {name: text for name, text in os.environ.items() if "TELEMETRY" not in name}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(
        command, cwd=ROOT, env=usual | environment, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.mark.parametrize("code", _OPEN)
def test_onnxruntime_leaves_nothing_in_the_home_folder(code: str, tmp_path: Path) -> None:
    run(code, HOME=str(tmp_path))
    assert list(tmp_path.rglob("*onnxruntime*")) == []


def test_an_operator_may_switch_telemetry_on() -> None:
    code = "import os, foretell; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    assert run(code).strip() == "1"
    assert run(code, ORT_DISABLE_TELEMETRY="0").strip() == "0"
