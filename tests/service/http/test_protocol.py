from __future__ import annotations

import asyncio
import fcntl
import json
import re
import socket
import termios
import time
import tomllib
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from foretell.service.errors import StartError
from foretell.service.http import protocol
from foretell.service.http.protocol import WHOLE, Connection, Limits, connection_of
from foretell.service.metrics import Metrics
from tests.service.http.wire import Wire, exchange, no_content, opened, unconnected
from tests.service.loops import on_loop
from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server
from tests.support.waiting import until
from tests.test_architecture import ROOT

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    write_bundle(folder, Spec())
    settings = {"header_timeout_seconds": 0.2, "max_connections": 8, "max_body_bytes": 1000}
    with Server(folder, folder.with_name("connections.log"), **settings) as server:
        yield server


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[[], socket.socket]]:
    url = httpx.URL(server.url)
    with ExitStack() as stack:

        def open_one() -> socket.socket:
            connection = socket.create_connection((url.host, url.port), timeout=60)
            return stack.enter_context(closing(connection))

        yield open_one


def is_over(connection: socket.socket) -> bool:
    """Waits for the end of a connection; False if it brings anything else."""
    try:
        return connection.recv(1000) == b""
    except ConnectionResetError:
        return True


def answer(connection: socket.socket) -> bytes:
    """One answer, whose body is a JSON object."""
    received = b""
    while not received.endswith(b"}"):
        part = connection.recv(1000)
        assert part
        received += part
    return received


def takes(connection: socket.socket, data: bytes) -> bool:
    """Whether the other end still takes something."""
    try:
        connection.sendall(data)
    except OSError:
        return False
    return True


def cut_off(server: Server, reason: str) -> float:
    return server.metric(f'foretell_connections_cut_off_total{{reason="{reason}"}}')


Connect = Callable[[], socket.socket]


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: b"])
def test_headers_that_never_come(server: Server, connect: Connect, sent: bytes) -> None:
    before = cut_off(server, "slow_request")
    silent = connect()
    silent.sendall(sent)
    assert is_over(silent)
    until(lambda: cut_off(server, "slow_request") == before + 1)


@pytest.mark.parametrize(
    ("begin", "drop"),
    [
        (b"GET /healthz HTTP/1.1\r\nA: ", b"x"),
        (b"", b"\r\n"),
        # Answered, but never ends.
        (b"POST /forecast HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n", b"x"),
    ],
)
def test_requests_that_come_in_drops(
    server: Server, connect: Connect, begin: bytes, drop: bytes
) -> None:
    slow = connect()
    slow.sendall(begin)

    def drips() -> bool:
        time.sleep(0.02)
        return takes(slow, drop)

    until(lambda: not drips())
    assert httpx.get(f"{server.url}/healthz").status_code == 200


def test_a_connection_between_requests_is_kept(connect: Connect) -> None:
    idle, silent = connect(), connect()
    for _ in range(2):
        idle.sendall(REQUEST)
        assert answer(idle).startswith(b"HTTP/1.1 200 ")
        if silent.fileno() >= 0:
            assert is_over(silent)
            silent.close()


@pytest.mark.parametrize(
    ("begin", "kind"),
    [
        (b"POST /v2/models/repeat/infer?a=b HTTP/1.1\r\nA: ", str),
        # Nor does the path have to be whole.
        (b"GET /v2/models/", str),
        (b"GET /healthz HTTP/1.1\r\n\r\nGET /v2 HTTP/1.1\r\nA: ", str),
        (b"GET /v2 HTTP/1.1\r\n\r\nPOST /forecast HTTP/1.1\r\nA: ", dict),
        (b"POST /forecast HTTP/1.1\r\nA: ", dict),
    ],
)
def test_too_many_headers_are_refused_in_the_form_of_the_path(begin: bytes, kind: type) -> None:
    wire = Wire()

    async def send() -> bytes:
        connection = opened(no_content, wire)
        connection.data_received(begin)
        while connection.tasks:
            await asyncio.sleep(0)
        wire.sent.clear()
        connection.data_received(b"x" * (64 * 1024 + 1))
        return wire.written

    head, _, body = asyncio.run(send()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    error = json.loads(body)["error"]
    assert isinstance(error, kind)
    assert "at most 65536 bytes of headers" in (error if kind is str else error["message"])
    assert wire.ended


CHUNKED = b"POST /forecast HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
OFFER = b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n"
HEADERS = ("foretell_connections_cut_off_total", "headers")


@pytest.mark.parametrize("size", [7, 1000, 1_000_000])
@pytest.mark.parametrize(
    ("begin", "more", "end", "body"),
    [
        (b"GET / HTTP/1.1\r\n", b"A: b\r\n", b"\r\n", b""),
        (OFFER, b"A: b\r\n", b"\r\n", b""),
        (b"", b"\r\n", b"GET / HTTP/1.1\r\n\r\n", b""),
        (CHUNKED + b"1\r\nx\r\n0\r\n", b"A: b\r\n", b"\r\n", b"x"),
        (CHUNKED + b"1\r\nx\r\n0\r\nA:", b" ", b"b\r\n\r\n", b"x"),
        (CHUNKED + b"1;", b"a", b"\r\nx\r\n0\r\n\r\n", b"x"),
        (CHUNKED, b"0", b"1\r\nx\r\n0\r\n\r\n", b"x"),
    ],
    ids=["head", "offer", "blank", "trailers", "trailer", "extension", "zeros"],
)
def test_all_that_is_no_body_is_limited(
    begin: bytes, more: bytes, end: bytes, body: bytes, size: int
) -> None:
    def sent(count: int) -> list[bytes]:
        data = begin + more * count + end
        return [data[at : at + size] for at in range(0, len(data), size)]

    metrics = Metrics()
    most = (64 * 1024 - len(begin + end)) // len(more)
    seen, _ = asyncio.run(exchange(sent(most), metrics))
    assert [request[2] for request in seen] == [body]
    assert metrics.counts.count(*HEADERS) == 0
    # Measured every few kilobytes.
    seen, wire = asyncio.run(exchange(sent(24 * 1024 // len(more) + most), metrics))
    assert not seen
    assert wire.written.startswith(b"HTTP/1.1 431 ")
    assert wire.ended
    assert metrics.counts.count(*HEADERS) == 1


def test_a_body_with_a_length_is_handed_on_as_it_came(
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
            for _ in range(5):
                await asyncio.sleep(0)
        # Two pieces of which the application takes nothing in between are one to it.
        connection.data_received(head + body[:10_000])
        connection.data_received(body[10_000:])
        while connection.tasks:
            await asyncio.sleep(0)

    asyncio.run(send())
    assert list(map(len, taken)) == [50_000, 100_000, 50_000, 200_000]
    assert read[:3] == [50_000, 100_000, 50_000]
    assert b"".join(taken) == 2 * body


@pytest.mark.parametrize("length", [0, 8, 200_000])
def test_headers_after_a_body_with_a_length_are_limited(length: int) -> None:
    metrics = Metrics()
    first = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % length + b"x" * length
    second = b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 15_000 + b"\r\n"
    seen, wire = asyncio.run(exchange([first, second], metrics))
    assert [request[2] for request in seen] == [b"x" * length]
    assert b"HTTP/1.1 431 " in wire.written
    assert metrics.counts.count(*HEADERS) == 1


def test_a_body_that_nobody_waits_for_is_dropped() -> None:
    async def answered() -> bytes:
        connection = opened(no_content, Wire())
        connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 100\r\n\r\n")
        while connection.tasks:
            await asyncio.sleep(0)
        connection.data_received(b"x" * 50)
        return bytes(connection.cycle.body)

    assert asyncio.run(answered()) == b""


def test_pieces_of_a_body_are_not_copied_for_each_further_one() -> None:
    async def send() -> list[object]:
        connection = opened(no_content, Wire())
        connection.data_received(CHUNKED)
        bodies: list[object] = []
        for _ in range(3):
            connection.data_received(b"2\r\nab\r\n")
            bodies.append(connection.cycle.body)
        return bodies

    first, second, third = asyncio.run(send())
    assert first is second is third
    assert third == b"ababab"


def test_many_small_chunks_are_no_headers() -> None:
    sent = CHUNKED + b"1;a=b\r\nx\r\n" * 100_000 + b"0\r\n\r\n"
    seen, _ = asyncio.run(exchange([sent]))
    assert [len(request[2]) for request in seen] == [100_000]


def test_trailers_are_no_headers() -> None:
    seen: list[Any] = []

    async def keep(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        seen.append(scope["headers"])
        await no_content(scope, receive, send)

    async def send() -> None:
        connection = opened(keep, Wire())
        connection.data_received(CHUNKED + b"0\r\nA: b\r\n\r\n" + REQUEST)
        while connection.tasks:
            await asyncio.sleep(0)

    asyncio.run(send())
    assert seen == [[(b"transfer-encoding", b"chunked")], [(b"host", b"x")]]


@pytest.mark.parametrize(
    ("begin", "more_body"),
    [
        # All of the answer is there, and the request is not; or half of it, and another request.
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
        while connection.tasks:
            await asyncio.sleep(0)

    asyncio.run(send())
    assert not wire.sent
    assert wire.ended
    assert metrics.counts.count(*HEADERS) == 1


def test_the_scope_names_a_body_that_is_complete() -> None:
    seen: list[list[bool]] = []

    async def look(scope: Any, receive: Any, send: Any) -> None:
        seen.append([])
        more = True
        while more:
            seen[-1].append(WHOLE in scope["extensions"])
            more = (await receive())["more_body"]
        await no_content(scope, receive, send)

    async def send() -> None:
        connection = opened(look, Wire())
        head = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n"
        for piece in (head + b"01", head + b"0", b"1" + head, b"01", REQUEST):
            connection.data_received(piece)
            for _ in range(5):
                await asyncio.sleep(0)

    asyncio.run(send())
    assert seen == [[True], [False, False], [False], [True]]


@on_loop
async def test_an_answer_goes_out_at_once() -> None:
    wire = Wire()
    connection = opened(no_content, wire)
    for _ in range(2):
        connection.data_received(REQUEST)
        while connection.tasks:
            await asyncio.sleep(0)
    assert wire.written.count(b"HTTP/1.1 204 ") == 2
    assert len(wire.sent) == 2


def test_what_was_answered_goes_out_before_the_end() -> None:
    wire = Wire()
    connections: list[Connection] = []

    async def answer_head(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        # The head is held while there comes what cannot be read.
        assert not wire.written
        connections[0].data_received(b"?")
        await send({"type": "http.response.body", "body": b"x"})

    async def send() -> None:
        connections.append(opened(answer_head, wire))
        connections[0].data_received(REQUEST)
        async with asyncio.timeout(60):
            while connections[0].tasks:
                await asyncio.sleep(0)

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
        # Of a request that waits for its turn, and is no answer's.
        (CHUNKED + b"?", "malformed"),
        (CHUNKED + b"0\r\n" + b"A: b\r\n" * 20_000, "headers"),
    ],
)
def test_a_refusal_is_no_answer_to_the_requests_before_it(rest: bytes, reason: str) -> None:
    wire, metrics = Wire(), Metrics()
    seen: list[str] = []

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["path"])
        await receive()
        for _ in range(10):
            await asyncio.sleep(0)
        await no_content(scope, receive, send)

    async def send() -> None:
        connection = opened(wait, wire, metrics)
        first, second = (b"POST /%d HTTP/1.1\r\nContent-Length: 1\r\n\r\n1" % n for n in (1, 2))
        connection.data_received(first + second + rest)
        # Nobody reads it.
        connection.data_received(b"\r\n\r\nGET /3 HTTP/1.1\r\n\r\n")
        assert connection.url != b"/3"
        async with asyncio.timeout(60):
            while connection.tasks:
                await asyncio.sleep(0)

    asyncio.run(send())
    assert seen == ["/1", "/2"]
    assert wire.written.count(b"HTTP/1.1 204") == wire.written.count(b"HTTP/1.1") == 2
    assert wire.written.count(b"connection: close") == 1
    assert wire.ended
    assert metrics.counts.count("foretell_connections_cut_off_total", reason) == 1


def test_invalid_bytes_are_refused() -> None:
    _, wire = asyncio.run(exchange([REQUEST, b"?"]))
    head, _, body = wire.written.split(b"HTTP/1.1 400 ")[1].partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert json.loads(body)["error"]["type"] == "malformed"


@on_loop
async def test_a_connection_answered_before_the_body_is_complete_is_kept() -> None:
    wire = Wire()
    connection = opened(no_content, wire)
    for _ in range(2):
        connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n1")
        assert connection.timeout_keep_alive_task is None
        while connection.tasks:
            await asyncio.sleep(0)
        wire.sent.clear()
        # The slow are cut off; after a whole body the connection is idle like others.
        connection.data_received(b"2")
        assert connection.timeout_keep_alive_task is not None
        for seconds in (0.0, 1000.0):
            connection.check(connection.loop.time() + seconds)
        assert not wire.ended
    # The clock that was set is not for the next request.
    connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n1")
    while connection.tasks:
        await asyncio.sleep(0)
    connection.data_received(b"2" + b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n1")
    assert connection.timeout_keep_alive_task is None
    while connection.tasks:
        await asyncio.sleep(0)


@on_loop
async def test_a_disconnect_is_noticed_after_a_large_body() -> None:
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
        gone = asyncio.Event()
        client = connection_of(Request(scope, receive))
        client.watch(gone.set)
        # Without it the end of the connection would not be read either.
        seen.append((read, wire.reading))
        await gone.wait()
        seen.append((read, client.disconnected))

    connection = opened(wait, wire)
    connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size)
    await asyncio.sleep(0)
    connection.data_received(bytes(size))
    assert not wire.reading
    while not seen:
        await asyncio.sleep(0)
    connection.connection_lost(None)
    async with asyncio.timeout(60):
        while connection.tasks:
            await asyncio.sleep(0)
    assert seen == [(size, True), (size, True)]


def test_more_connections_than_allowed(server: Server, connect: Connect) -> None:
    busy = [connect() for _ in range(7)]
    for connection in busy:
        connection.sendall(b"POST /forecast HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
    until(lambda: server.metric("foretell_requests_in_flight") == 8)
    last = connect()
    last.sendall(REQUEST)
    assert answer(last).startswith(b"HTTP/1.1 200 ")
    refused = connect()
    head, _, body = answer(refused).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"\r\nretry-after: 1\r\n" in head + b"\r\n"
    error = json.loads(body)["error"]
    assert (error["code"], error["type"]) == ("503", "too_many")
    assert is_over(refused)
    for connection in busy:
        connection.close()
    until(lambda: httpx.get(f"{server.url}/healthz").is_success)


def test_probes_have_a_port_that_is_never_full(tmp_path: Path) -> None:
    write_bundle(tmp_path / "models", Spec())
    log = tmp_path / "log"
    with Server(tmp_path / "models", log, max_connections=1, operations_port=0) as server:
        until(lambda: server.log.count("http://127.0.0.1:") == 2)
        url, probes = map(httpx.URL, re.findall(r"http://127\.0\.0\.1:\d+", server.log))
        with socket.create_connection((url.host, url.port), timeout=60) as busy:
            busy.sendall(REQUEST)
            assert answer(busy)
            assert httpx.get(url.join("/models")).status_code == 503
            assert httpx.get(probes.join("/healthz")).status_code == 200


def test_answers_that_nobody_reads(server: Server) -> None:
    url = httpx.URL(server.url)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(60)
        deaf.connect((url.host, url.port))
        deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
        until(lambda: cut_off(server, "slow_reader") == 1)


def test_a_slow_reader_is_kept_and_one_that_reads_nothing_is_not() -> None:
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
            # All that was taken is the kernel's.
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


def test_the_installation_takes_the_versions_that_the_server_is_written_for() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())
    serve = required["project"]["optional-dependencies"]["serve"]
    for library, version in protocol._WRITTEN_FOR.items():
        [line] = [one for one in serve if re.match(rf"{library}\b", one)]
        assert line.rpartition("==")[2] == f"{version}.*"
