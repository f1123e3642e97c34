"""Connections to real servers: limits, slow clients, and answers to clients that still send."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server
from tests.support.waiting import until

# Bytes that exceed the kernel's buffers.
_LARGE = 32 * 1024 * 1024
_LENGTH = b"Content-Length: %d\r\n" % _LARGE
_CLOSE = b"Connection: close\r\n"
_KEY = b"X-API-Key: one\r\n"
_REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
_UNREAD = b"POST /forecast HTTP/1.1\r\nX-Timeout-Ms: no\r\n" + _CLOSE + _LENGTH + b"\r\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_bundle(folder, Spec())
    return folder


@pytest.fixture(scope="module", params=[1, 2])
def server(
    request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("log") / "log"
    with Server(models, log, workers=request.param, api_keys="one") as server:
        yield server


@contextmanager
def connected(server: Server) -> Iterator[socket.socket]:
    url = httpx.URL(server.url)
    with closing(socket.create_connection((url.host, url.port or 80), timeout=60)) as client:
        yield client


def read_to_end(client: socket.socket) -> bytes:
    """All that comes until the other end closes; a reset is an error."""
    return b"".join(iter(lambda: client.recv(1 << 16), b""))


def is_answer(received: bytes, status: int) -> bool:
    """Whether these bytes are one complete answer with this status."""
    head, _, body = received.partition(b"\r\n\r\n")
    length = b"content-length: %d" % len(body)
    return head.startswith(b"HTTP/1.1 %d " % status) and length in head


def takes(client: socket.socket, data: bytes) -> bool:
    """Whether the other end still accepts bytes."""
    try:
        client.sendall(data)
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /forecast HTTP/1.1\r\n" + _CLOSE + _LENGTH, 401),
        (b"POST /forecast HTTP/1.0\r\n" + _LENGTH, 401),
        (b"POST /nowhere HTTP/1.1\r\n" + _KEY + _CLOSE + _LENGTH, 404),
        (b"PUT /forecast HTTP/1.1\r\n" + _KEY + _CLOSE + _LENGTH, 405),
        (b"POST /forecast HTTP/1.1\r\n" + _KEY + _CLOSE + b"Content-Length: 99999999\r\n", 413),
        (b"POST /forecast HTTP/1.1\r\nContent-Type: x/y\r\n" + _KEY + _CLOSE + _LENGTH, 415),
        (b"POST /forecast HTTP/1.1\r\nX-Timeout-Ms: no\r\n" + _KEY + _CLOSE + _LENGTH, 422),
        (b"POST /forecast HTTP/1.1\r\nX-Timeout-Ms: 1\r\n" + _KEY + _CLOSE + _LENGTH, 408),
        (b"no request\r\n", 400),
        (b"CONNECT x:80 HTTP/1.1\r\n", 400),
    ],
)
def test_refusal_reaches_a_client_that_still_sends(
    server: Server, sent: bytes, status: int
) -> None:
    with connected(server) as client:
        # All is sent before anything is read, as many clients do.
        client.sendall(sent + b"Host: x\r\n\r\n")
        client.sendall(bytes(_LARGE))
        assert is_answer(read_to_end(client), status)


def test_endless_headers_are_refused(server: Server) -> None:
    with connected(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        client.sendall(b"A: b\r\n" * (_LARGE // 6))
        assert is_answer(read_to_end(client), 431)


def test_garbage_does_not_discard_the_earlier_answer(server: Server) -> None:
    with connected(server) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nno request\r\n\r\n")
        client.sendall(bytes(_LARGE))
        assert is_answer(read_to_end(client), 200)


def test_connections_over_the_limit_are_refused(models: Path, tmp_path: Path) -> None:
    """Time limits are hours: only closed connections make room."""
    hours = {"header_timeout_seconds": "24h", "grace_seconds": "24h"}
    with Server(models, tmp_path / "log", max_connections=1, operations_port=0, **hours) as server:
        until(lambda: server.log.count("http://127.0.0.1:") == 2)
        _, probes = re.findall(r"http://127\.0\.0\.1:\d+", server.log)

        def is_free() -> bool:
            return httpx.get(server.url).is_success

        with connected(server) as first:
            first.sendall(_REQUEST)
            assert first.recv(1000).startswith(b"HTTP/1.1 200 ")
            # The client gets the answer while it sends.
            with connected(server) as client:
                client.sendall(_UNREAD)
                client.sendall(bytes(_LARGE))
                answer = read_to_end(client)
            assert is_answer(answer, 503)
            head, _, body = answer.partition(b"\r\n\r\n")
            assert b"\r\nretry-after: 1" in head
            error = json.loads(body)["error"]
            assert (error["code"], error["type"]) == ("503", "too_many")
            # Probes have a port that is never full.
            assert httpx.get(f"{probes}/healthz").is_success
            # A refused connection does not count, even if its client stays open.
            with connected(server) as other:
                other.sendall(_UNREAD)
                assert is_answer(read_to_end(other), 503)
                first.close()
                until(is_free)
        # An answered connection counts until its client closes it.
        with connected(server) as client:
            client.sendall(_UNREAD)
            assert is_answer(read_to_end(client), 422)
            assert httpx.get(server.url).status_code == 503
        until(is_free)
        # The end of the server does not wait for clients that have their answer.
        with connected(server) as client:
            client.sendall(_UNREAD)
            assert is_answer(read_to_end(client), 422)
            assert server.stop() == 0


@pytest.fixture(scope="module")
def impatient(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("log") / "log"
    with Server(models, log, header_timeout_seconds=0.2, max_body_bytes=1000) as server:
        yield server


def cuts_off(server: Server, sent: bytes) -> None:
    """Send a part of a request, and wait until the server has answered and closed the
    connection."""
    counted = 'foretell_connections_cut_off_total{reason="slow_request"}'
    before = server.metric(counted)
    with connected(server) as silent:
        silent.sendall(sent)
        with suppress(ConnectionResetError):
            assert silent.recv(1000) == b""
    until(lambda: server.metric(counted) == before + 1)


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: b"])
def test_headers_that_never_come_time_out(impatient: Server, sent: bytes) -> None:
    cuts_off(impatient, sent)


@pytest.mark.parametrize(
    ("begin", "status", "drop"),
    [
        (b"GET /healthz HTTP/1.1\r\nA: ", None, b"x"),
        (b"", None, b"\r\n"),
        # Bodies that never end, whose answer has been sent.
        (b"POST /forecast HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n", 413, b"x"),
        (_UNREAD, 422, b"x"),
    ],
)
def test_slow_requests_time_out(
    impatient: Server, begin: bytes, status: int | None, drop: bytes
) -> None:
    with connected(impatient) as slow:
        slow.sendall(begin)
        if status is not None:
            assert slow.recv(1000).startswith(b"HTTP/1.1 %d " % status)

        def drips() -> bool:
            time.sleep(0.02)
            return takes(slow, drop)

        until(lambda: not drips())
    assert httpx.get(f"{impatient.url}/healthz").status_code == 200


def test_connection_between_requests_is_kept(impatient: Server) -> None:
    with connected(impatient) as idle:
        for _ in range(2):
            idle.sendall(_REQUEST)
            assert idle.recv(10_000).startswith(b"HTTP/1.1 200 ")
            # For longer than headers may take.
            cuts_off(impatient, b"")
