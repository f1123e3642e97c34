from __future__ import annotations

import asyncio
import fcntl
import re
import socket
import termios
import tomllib
from array import array
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

import pytest
from starlette.requests import Request

from foretell.service.errors import StartError
from foretell.service.http import protocol
from foretell.service.http.client import WHOLE, connection_of
from foretell.service.http.protocol import Connection, Limits
from foretell.service.metrics import Metrics
from tests.service.http.wire import (
    Wire,
    no_content,
    opened,
    settled,
    talk,
    unconnected,
)
from tests.service.loops import on_loop
from tests.test_architecture import ROOT

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


CHUNKED = b"POST /forecast HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
HEADERS = ("foretell_connections_cut_off_total", "headers")


def test_body_with_a_length_is_passed_on_uncopied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = b"0123456789" * 20_000
    read: list[int] = []
    taken: list[bytes] = []
    on_body = Connection.on_body

    def counted(self: Connection, piece: bytes) -> None:
        read.append(len(piece))
        on_body(self, piece)

    monkeypatch.setattr(Connection, "on_body", counted)

    async def take(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            taken.append(message["body"])
            more = message["more_body"]
        await no_content(scope, receive, send)

    async def send() -> None:
        connection = opened(take, Wire())
        head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        for piece in (head, body[:50_000], body[50_000:150_000], body[150_000:]):
            connection.data_received(piece)
            await settled(connection, 5)
        # Pieces that arrive before the application reads are joined.
        connection.data_received(head + body[:10_000])
        connection.data_received(body[10_000:])
        await settled(connection)

    asyncio.run(send())
    assert list(map(len, taken)) == [50_000, 100_000, 50_000, 200_000]
    assert read[:3] == [50_000, 100_000, 50_000]
    assert b"".join(taken) == 2 * body


@pytest.mark.parametrize(
    ("begin", "more_body"),
    [
        # An answer before the end of its request, and half an answer before another request.
        (CHUNKED + b"0\r\n", False),
        (b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n", True),
    ],
)
def test_nothing_is_written_into_or_after_an_answer(begin: bytes, more_body: bool) -> None:
    wire = Wire()
    metrics = Metrics()

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": more_body})
        if more_body:
            await receive()
            await receive()

    async def send() -> None:
        connection = opened(answer, wire, metrics)
        connection.data_received(begin)
        while not wire.sent:
            await asyncio.sleep(0)
        wire.sent.clear()
        connection.data_received(b"A: b\r\n" * 20_000)
        connection.connection_lost(None)
        await settled(connection)

    asyncio.run(send())
    assert not wire.sent
    assert wire.ended
    assert metrics.counts.count(*HEADERS) == 1


def test_scope_names_a_body_that_is_complete() -> None:
    seen: list[list[bool]] = []

    async def look(scope: Any, receive: Any, send: Any) -> None:
        seen.append([])
        more = True
        while more:
            seen[-1].append(WHOLE in scope["extensions"])
            more = (await receive())["more_body"]
        await no_content(scope, receive, send)

    head = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n"
    asyncio.run(talk(look, (head + b"01", head + b"0", b"1" + head, b"01", REQUEST)))
    assert seen == [[True], [False, False], [False], [True]]


@on_loop
async def test_answer_goes_out_at_once() -> None:
    wire = await talk(no_content, [REQUEST, REQUEST])
    assert wire.written.count(b"HTTP/1.1 204 ") == 2
    assert len(wire.sent) == 2


@on_loop
async def test_connection_closes_at_once_after_a_whole_request() -> None:
    head = b"POST / HTTP/1.1\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
    assert (await talk(no_content, [head + b"12"])).is_closing()


def test_written_answer_is_sent_before_the_close() -> None:
    wire = Wire()
    connections: list[Connection] = []

    async def answer_head(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        # The head is not yet sent when an invalid request arrives.
        assert not wire.written
        connections[0].data_received(b"?")
        await send({"type": "http.response.body", "body": b"x"})

    async def send() -> None:
        connections.append(opened(answer_head, wire))
        connections[0].data_received(REQUEST)
        async with asyncio.timeout(60):
            await settled(connections[0])

    asyncio.run(send())
    assert re.findall(rb"HTTP/1.1 (\d+)", wire.written) == [b"200"]
    assert wire.written.endswith(b"x\r\n0\r\n\r\n")
    assert wire.ended


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        (b"xx", "malformed"),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", "connect"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000, "headers"),
        # The body of a request that waits for its turn.
        (CHUNKED + b"?", "malformed"),
        (CHUNKED + b"0\r\n" + b"A: b\r\n" * 20_000, "headers"),
    ],
)
def test_refusal_does_not_replace_earlier_answers(rest: bytes, reason: str) -> None:
    metrics = Metrics()
    seen: list[str] = []

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["path"])
        await receive()
        for _ in range(10):
            await asyncio.sleep(0)
        await no_content(scope, receive, send)

    first, second = (b"POST /%d HTTP/1.1\r\nContent-Length: 1\r\n\r\n1" % n for n in (1, 2))
    # Bytes after an invalid request are not read.
    sent = [first + second + rest, b"\r\n\r\nGET /3 HTTP/1.1\r\n\r\n"]
    wire = asyncio.run(talk(wait, sent, metrics))
    assert seen == ["/1", "/2"]
    assert wire.written.count(b"HTTP/1.1 204") == wire.written.count(b"HTTP/1.1") == 2
    assert wire.written.count(b"connection: close") == 1
    assert wire.ended
    assert metrics.counts.count("foretell_connections_cut_off_total", reason) == 1


@on_loop
async def test_connection_answered_before_the_body_is_complete_is_kept() -> None:
    wire = Wire()
    connection = opened(no_content, wire)
    for _ in range(2):
        connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n1")
        assert connection.timeout_keep_alive_task is None
        await settled(connection)
        wire.sent.clear()
        # Only slow bodies are cut off: after the whole body the connection is idle.
        connection.data_received(b"2")
        assert connection.timeout_keep_alive_task is not None
        for seconds in (0.0, 1000.0):
            connection.check(connection.loop.time() + seconds)
        assert not wire.ended
    # The time limit of one body does not apply to the next request.
    connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n1")
    await settled(connection)
    connection.data_received(b"2" + b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n1")
    assert connection.timeout_keep_alive_task is None
    await settled(connection)


@on_loop
async def test_disconnect_is_noticed_after_a_large_body() -> None:
    wire = Wire()
    size = 1_000_000
    seen: list[tuple[int, bool]] = []

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        read = 0
        while True:
            message = await receive()
            read += len(message["body"])
            if not message["more_body"]:
                break
        disconnected = asyncio.Event()
        client = connection_of(Request(scope, receive))
        client.watch(disconnected.set)
        # Otherwise the end of the connection would not be read.
        seen.append((read, wire.reading))
        await disconnected.wait()
        seen.append((read, client.disconnected))

    connection = opened(wait, wire)
    connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size)
    await asyncio.sleep(0)
    connection.data_received(bytes(size))
    assert not wire.reading
    while not seen:
        await asyncio.sleep(0)
    connection.connection_lost(None)
    await settled(connection)
    assert seen == [(size, True), (size, True)]


def test_slow_reader_is_kept_and_stuck_reader_is_dropped() -> None:
    metrics = Metrics()
    size = 64 * 1024 * 1024

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"%d" % size)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(size)})

    async def scene() -> list[bool]:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(listener.getsockname())
            accepted, _ = listener.accept()
            transport, connection = await loop.connect_accepted_socket(
                lambda: unconnected(answer, metrics), accepted
            )
            own = transport.get_extra_info("socket")

            def queued() -> int:
                number = array("i", [0])
                fcntl.ioctl(own, termios.TIOCOUTQ, number)
                return number[0]

            client.sendall(REQUEST)
            before = None
            while not queued() or before != (transport.get_write_buffer_size(), queued()):
                before = transport.get_write_buffer_size(), queued()
                await asyncio.sleep(0.1)
            held, sent = before
            kept = []
            connection.check(0.0)
            for now in (50.0, 100.0):
                while queued() >= sent:
                    client.recv(1000)
                    await asyncio.sleep(0)
                sent = queued()
                connection.check(now)
                kept.append(not transport.is_closing())
            # Bytes that left the transport are in the kernel's buffer.
            assert transport.get_write_buffer_size() == held
            connection.check(161.0)
            kept.append(not transport.is_closing())
            return kept

    assert asyncio.run(scene()) == [True, True, False]
    assert metrics.counts.count("foretell_connections_cut_off_total", "slow_reader") == 1


@pytest.mark.parametrize("library", ["uvicorn", "httptools"])
def test_another_version_of_a_changed_library_is_refused(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits, metrics = Limits(8, 60), Metrics()
    ours = protocol.protocol(limits, metrics)
    assert isinstance(ours, partial)
    assert ours.func is Connection
    version = metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda name: "99.1.0" if name == library else version(name)
    )
    with pytest.raises(StartError, match=rf"^{library} 99\.1\.0 is installed, .* pip install '"):
        protocol.protocol(limits, metrics)


def test_installed_libraries_have_the_expected_versions() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())
    serve = required["project"]["optional-dependencies"]["serve"]
    for library, version in protocol._WRITTEN_FOR.items():
        [line] = [one for one in serve if re.match(rf"{library}\b", one)]
        assert line.rpartition("==")[2] == f"{version}.*"


def test_connection_drops_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
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


def written(*steps: Callable[[Connection], object]) -> Wire:
    """The transport after the steps and one turn of the event loop."""
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


@pytest.mark.parametrize(
    ("pieces", "sent"),
    [
        ([b"head ", b"body"], [b"head body"]),
        # In the next turn.
        ([b"head"], [b"head"]),
        ([b"", b"body"], [b"body"]),
        ([b"0", b"1", b"2", b"3", b"4", b"5", b"6"], [b"01", b"23", b"45", b"6"]),
    ],
)
def test_pieces_are_sent_in_pairs(pieces: list[bytes], sent: list[bytes]) -> None:
    assert written(*map(piece, pieces)).sent == sent


def test_buffered_piece_is_sent_before_the_close() -> None:
    wire = written(piece(b"head"), Connection.close, lambda writing: writing.is_closing() or 1 / 0)
    assert wire.sent == [b"head"]
    assert wire.ended


@pytest.mark.parametrize(
    "step", [lambda writing: None, Connection.close, Connection.flush, piece(b"body")]
)
def test_nothing_is_written_after_a_disconnect(step: Callable[[Connection], object]) -> None:
    wire = written(piece(b"head"), lambda writing: writing.transport.close(), step)
    assert wire.sent == []
