"""Connections: what is written together, who hears of their end, and answers that come late."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request

from foretell.service.http import protocol
from foretell.service.http.protocol import EXTENSION, ClientConnection, Connection, connection_of
from tests.service.http.wire import Wire, no_content, opened
from tests.service.loops import on_loop
from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server
from tests.support.waiting import until

# More than the kernel holds of a connection.
_LARGE = 32 * 1024 * 1024
_LENGTH = b"Content-Length: %d\r\n" % _LARGE
_CLOSE = b"Connection: close\r\n"
_KEY = b"X-API-Key: one\r\n"


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
    """Whether it is one answer with that status, whole."""
    head, _, body = received.partition(b"\r\n\r\n")
    length = b"content-length: %d" % len(body)
    return head.startswith(b"HTTP/1.1 %d " % status) and length in head


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
def test_a_client_that_is_refused_while_sending_gets_the_answer(
    server: Server, sent: bytes, status: int
) -> None:
    with connected(server) as client:
        # All is sent before anything is read, as many clients do.
        client.sendall(sent + b"Host: x\r\n\r\n")
        client.sendall(bytes(_LARGE))
        assert is_answer(read_to_end(client), status)


def test_headers_without_end_are_answered(server: Server) -> None:
    with connected(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        client.sendall(b"A: b\r\n" * (_LARGE // 6))
        assert is_answer(read_to_end(client), 431)


def test_what_is_no_request_does_not_take_the_answer_before_it(server: Server) -> None:
    with connected(server) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nno request\r\n\r\n")
        client.sendall(bytes(_LARGE))
        assert is_answer(read_to_end(client), 200)


@pytest.fixture
def narrow(models: Path, tmp_path: Path) -> Callable[..., Server]:
    """Makes servers that give clients hours unless settings say otherwise."""

    def serve(**settings: object) -> Server:
        hours = {"header_timeout_seconds": "24h", "grace_seconds": "24h"}
        return Server(models, tmp_path / "log", **{**hours, **settings})

    return serve


_UNREAD = b"POST /forecast HTTP/1.1\r\nX-Timeout-Ms: no\r\n" + _CLOSE + _LENGTH + b"\r\n"


def test_a_connection_too_many_is_answered_while_its_client_sends(
    narrow: Callable[..., Server],
) -> None:
    with narrow(max_connections=1) as server, connected(server) as first:
        first.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert first.recv(1000)
        with connected(server) as client:
            client.sendall(_UNREAD)
            client.sendall(bytes(_LARGE))
            assert is_answer(read_to_end(client), 503)


def test_a_refused_connection_takes_no_place_of_others(narrow: Callable[..., Server]) -> None:
    with narrow(max_connections=1) as server, connected(server) as first:
        first.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert first.recv(1000)
        # It is refused, and does not close its end.
        with connected(server) as other:
            other.sendall(_UNREAD)
            assert is_answer(read_to_end(other), 503)
            first.close()
            until(lambda: httpx.get(f"{server.url}/healthz").is_success)


def test_a_client_cannot_keep_an_ended_connection_open(narrow: Callable[..., Server]) -> None:
    with narrow(header_timeout_seconds=0.2) as server, connected(server) as client:
        client.sendall(_UNREAD)
        assert is_answer(read_to_end(client), 422)

        def is_closed() -> bool:
            try:
                client.sendall(b"x")
            except OSError:
                return True
            return False

        until(is_closed)


def test_a_connection_that_is_over_counts_until_its_client_closes_it(
    narrow: Callable[..., Server],
) -> None:
    with narrow(max_connections=1) as server:
        with connected(server) as client:
            client.sendall(_UNREAD)
            assert is_answer(read_to_end(client), 422)
            assert httpx.get(f"{server.url}/healthz").status_code == 503
        until(lambda: httpx.get(f"{server.url}/healthz").is_success)


def test_a_server_that_stops_does_not_wait_for_clients_that_were_answered(
    narrow: Callable[..., Server],
) -> None:
    with narrow() as server, connected(server) as client:
        client.sendall(_UNREAD)
        assert is_answer(read_to_end(client), 422)
        assert server.stop() == 0


def test_nobody_sends_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_MAX_DROPPED_BYTES", 1000)
    wire = Wire()

    async def send() -> list[bool]:
        connection = opened(no_content, wire)
        connection.data_received(b"nonsense\r\n\r\n")
        assert wire.ended
        closed = []
        for _ in range(3):
            connection.data_received(bytes(400))
            closed.append(wire.is_closing())
        connection.connection_lost(None)
        return closed

    assert asyncio.run(send()) == [False, False, True]


@on_loop
async def test_a_connection_closes_at_once_after_a_whole_request() -> None:
    wire = Wire()
    connection = opened(no_content, wire)
    connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n" + _CLOSE + b"\r\n12")
    while connection.tasks:
        await asyncio.sleep(0)
    assert wire.is_closing()


def test_watchers_are_called() -> None:
    listened: list[str] = []
    called: list[str] = []
    client = ClientConnection(lambda: listened.append("."))

    def first() -> None:
        called.append("first")
        client.unwatch(second)

    def second() -> None:
        called.append("second")

    client.watch(second)
    client.unwatch(second)
    client.watch(first)
    assert listened == [".", "."]
    client.disconnect()
    assert client.disconnected
    assert called == ["first"]


def test_a_late_watcher_is_called_at_once() -> None:
    called: list[bool] = []
    client = ClientConnection(lambda: None)
    client.disconnect()
    client.watch(lambda: called.append(True))
    assert called == [True]


def test_the_client_of_our_own_server_is_used() -> None:
    client = ClientConnection(lambda: None)
    request = Request({"type": "http", "extensions": {EXTENSION: client}})
    assert connection_of(request) is client
    # One without a connection never disconnects.
    other = connection_of(Request({"type": "http"}))
    other.watch(lambda: None)
    assert not other.disconnected


def written(*steps: Callable[[Connection], object]) -> Wire:
    """The wire after the steps and one turn of the loop."""
    wire = Wire()

    async def write() -> None:
        writing = opened(no_content, wire)
        for step in steps:
            step(writing)
        await asyncio.sleep(0)

    asyncio.run(write())
    return wire


def piece(data: bytes) -> Callable[[Connection], object]:
    return lambda writing: writing.write(data)


def test_a_head_goes_out_with_its_body() -> None:
    assert written(piece(b"head "), piece(b"body")).sent == [b"head body"]


def test_a_head_without_a_body_goes_out_in_the_next_turn() -> None:
    assert written(piece(b"head")).sent == [b"head"]


def test_many_pieces_keep_their_order() -> None:
    pieces = [bytes([number]) for number in range(7)]
    wire = written(*map(piece, pieces))
    assert len(wire.sent) == 4
    assert b"".join(wire.sent) == b"".join(pieces)


def test_what_is_held_goes_out_before_the_end() -> None:
    wire = written(piece(b"head"), Connection.close, lambda writing: writing.is_closing() or 1 / 0)
    assert wire.sent == [b"head"]
    assert wire.ended


@pytest.mark.parametrize(
    "then",
    [
        lambda writing: None,
        Connection.close,
        Connection.flush,
        lambda writing: writing.write(b"body"),
    ],
)
@on_loop
async def test_nothing_is_written_after_a_disconnect(
    then: Callable[[Connection], object],
) -> None:
    wire = Wire()
    writing = opened(no_content, wire)
    writing.write(b"head")
    wire.close()
    then(writing)
    await asyncio.sleep(0)
    assert wire.sent == []


def test_an_empty_piece_is_one_too() -> None:
    assert b"".join(written(piece(b""), piece(b"body")).sent) == b"body"
