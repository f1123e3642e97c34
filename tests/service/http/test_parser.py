"""Requests from bytes in pieces of any size, and limits of heads and trailers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.service.metrics import Metrics
from tests.service.http.wire import Request, exchange, no_content, talk
from tests.service.loops import on_loop

HTTP2 = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
OFFERS = (
    b"",
    HTTP2,
    b"connection: keep-alive, upgrade\r\nSec-WebSocket-Key: eA==\r\nupgrade: websocket\r\n",
    b"Upgrade: h2c\r\nA:\r\nUpgrade: TLS/1.0\r\nConnection: UPGRADE\r\nConnection: b\r\n",
)
# Version and header of the last request of a connection.
LAST = [(b"1.1", b"Connection: close\r\n"), (b"1.0", b"")]
SMUGGLED = b"GET /smuggled HTTP/1.1\r\n\r\n"


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """The pieces between places."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges) if end > begin]


def post(offer: bytes, body: bytes, chunks: int, version: bytes = b"1.1") -> bytes:
    """A request; its body is chunked if there is a number of chunks."""
    head = b"POST /forecast HTTP/%b\r\nHost: x\r\n%b" % (version, offer)
    if not chunks:
        return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
    size = max(1, -(-len(body) // chunks))
    parts = [body[begin : begin + size] for begin in range(0, len(body), size)]
    sent = b"".join(b"%x;a=b\r\n%b\r\n" % (len(part), part) for part in parts)
    return b"%bTransfer-Encoding: chunked\r\n\r\n%b0\r\n%b\r\n" % (head, sent, HTTP2)


def get(offer: bytes) -> bytes:
    return b"GET /models?a=b HTTP/1.1\r\nHost: x\r\n%b\r\n" % offer


@st.composite
def conversations(draw: st.DrawFn) -> tuple[bytes, list[Request], bool]:
    """Bytes of requests, the expected requests, and whether the last one closes the connection."""
    sent = b""
    expected: list[Request] = []
    has_ended = False
    for _ in range(draw(st.integers(1, 4))):
        offer = draw(st.sampled_from(OFFERS))
        is_last = draw(st.sampled_from([False, False, True]))
        if draw(st.booleans()):
            body = draw(st.sampled_from([b"", SMUGGLED, b"0\r\n\r\n" + SMUGGLED, b"\r\n"]))
            version, also = draw(st.sampled_from(LAST)) if is_last else (b"1.1", b"")
            sent += post(offer + also, body, draw(st.integers(0, 3)), version)
            new = ("POST", "/forecast", body)
        else:
            is_last = False
            sent += get(offer)
            new = ("GET", "/models", b"")
        expected += [] if has_ended else [new]
        has_ended |= is_last
    return sent, expected, has_ended


@settings(max_examples=300)
@given(conversations(), st.lists(st.integers(0, 2000), max_size=12))
def test_requests_are_parsed_from_any_pieces(
    conversation: tuple[bytes, list[Request], bool], places: list[int]
) -> None:
    sent, expected, has_ended = conversation
    seen, wire = asyncio.run(exchange(cut(sent, places)))
    assert seen == expected
    assert wire.written.count(b"HTTP/1.1 204 ") == len(expected)
    assert wire.ended == has_ended


offers = pytest.mark.parametrize("offer", OFFERS[1:], ids=["http2", "websocket", "several"])


@pytest.mark.parametrize("chunks", [0, 2])
@offers
@on_loop
async def test_conversations_are_parsed_from_any_pieces(
    caplog: pytest.LogCaptureFixture, offer: bytes, chunks: int
) -> None:
    caplog.set_level(logging.INFO)
    sent = post(offer, SMUGGLED, chunks) + get(offer)
    expected = [("POST", "/forecast", SMUGGLED), ("GET", "/models", b"")]
    for places in ([place] for place in range(len(sent))):
        assert (await exchange(cut(sent, places)))[0] == expected, places
    assert (await exchange(cut(sent, range(len(sent)))))[0] == expected
    assert not caplog.records


@offers
def test_client_gets_100_continue(offer: bytes) -> None:
    head, _, body = post(offer + b"Expect: 100-continue\r\n", b"body", 0).partition(b"body")
    seen, wire = asyncio.run(exchange([head, b"body" + body]))
    assert seen == [("POST", "/forecast", b"body")]
    assert wire.written.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 ")
    assert wire.written.count(b"HTTP/1.1 ") == 2


@pytest.mark.parametrize(
    "wrong",
    [
        *(post(offer + b"Transfer-Encoding: chunked\r\n", b"body", 0) for offer in OFFERS[1:]),
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /forecast HTTP/1.1\r\nHost: x\r\nContent-Length: -2\r\n\r\n{}",
        b"POST /forecast HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
    ],
)
def test_malformed_request_is_refused(wrong: bytes) -> None:
    seen, wire = asyncio.run(exchange([wrong]))
    assert not seen
    head, _, body = wire.written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in head
    assert json.loads(body)["error"]["type"] == "malformed"
    assert wire.ended


def test_thousand_pipelined_upgrade_offers_are_answered() -> None:
    seen, _ = asyncio.run(exchange([get(HTTP2) * 1000]))
    assert seen == [("GET", "/models", b"")] * 1000


@pytest.mark.parametrize("target", [b"there:443", b"http://there/", b"/forecast"])
@pytest.mark.parametrize("offer", OFFERS[:2], ids=["plain", "offer"])
@on_loop
async def test_request_after_connect_is_not_read(
    caplog: pytest.LogCaptureFixture, target: bytes, offer: bytes
) -> None:
    caplog.set_level(logging.INFO)
    head = b"CONNECT %b HTTP/1.1\r\nContent-Length: 1\r\n%b\r\n" % (target, offer)
    sent = head + SMUGGLED
    for place in range(len(sent)):
        seen, wire = await exchange(cut(sent, [place]))
        assert not seen
        assert wire.written.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"this server is not a proxy" in wire.written
        assert wire.written.count(b"HTTP/1.1 ") == 1
        assert wire.ended
    assert not caplog.records


CHUNKED = b"POST /forecast HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
HEADERS = ("foretell_connections_cut_off_total", "headers")
OFFER = b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n"


@pytest.mark.parametrize(
    ("begin", "kind"),
    [
        (b"POST /v2/models/repeat/infer?a=b HTTP/1.1\r\nA: ", str),
        # The path may be incomplete.
        (b"GET /v2/models/", str),
        (b"GET /healthz HTTP/1.1\r\n\r\nGET /v2 HTTP/1.1\r\nA: ", str),
        (b"GET /v2 HTTP/1.1\r\n\r\nPOST /forecast HTTP/1.1\r\nA: ", dict),
        (b"POST /forecast HTTP/1.1\r\nA: ", dict),
    ],
)
def test_too_many_headers_are_refused_in_the_form_of_the_path(begin: bytes, kind: type) -> None:
    wire = asyncio.run(talk(no_content, [begin, b"x" * (64 * 1024 + 1)]))
    _, _, refused = wire.written.partition(b"HTTP/1.1 431 ")
    error = json.loads(refused.partition(b"\r\n\r\n")[2])["error"]
    assert isinstance(error, kind)
    assert "at most 65536 bytes of headers" in (error if kind is str else error["message"])
    assert wire.ended


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
def test_bytes_outside_the_body_are_limited(
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
    # The size is checked every few kilobytes.
    seen, wire = asyncio.run(exchange(sent(24 * 1024 // len(more) + most), metrics))
    assert not seen
    assert wire.written.startswith(b"HTTP/1.1 431 ")
    assert wire.ended
    assert metrics.counts.count(*HEADERS) == 1


@pytest.mark.parametrize("length", [0, 8, 200_000])
def test_headers_after_a_body_with_a_length_are_limited(length: int) -> None:
    metrics = Metrics()
    first = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % length + b"x" * length
    second = b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 15_000 + b"\r\n"
    seen, wire = asyncio.run(exchange([first, second], metrics))
    assert [request[2] for request in seen] == [b"x" * length]
    assert b"HTTP/1.1 431 " in wire.written
    assert metrics.counts.count(*HEADERS) == 1


def test_many_small_chunks_do_not_count_as_headers() -> None:
    sent = CHUNKED + b"1;a=b\r\nx\r\n" * 100_000 + b"0\r\n\r\n"
    seen, _ = asyncio.run(exchange([sent]))
    assert [len(request[2]) for request in seen] == [100_000]


def test_trailers_are_not_headers() -> None:
    seen: list[Any] = []

    async def keep(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        seen.append(scope["headers"])
        await no_content(scope, receive, send)

    asyncio.run(talk(keep, [CHUNKED + b"0\r\nA: b\r\n\r\n" + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"]))
    assert seen == [[(b"transfer-encoding", b"chunked")], [(b"host", b"x")]]
