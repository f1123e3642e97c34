"""Bodies as they come, the memory that they take, and the wait for their results."""

from __future__ import annotations

import asyncio
import gzip
import math
import threading
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any

import pytest
from starlette.requests import Request

from foretell.service.arrays import Arrays
from foretell.service.engine.run import Run
from foretell.service.errors import (
    BuffersFullError,
    ClientDisconnectedError,
    DeadlineExceededError,
    InvalidInputError,
    SlowBodyError,
    TooLargeError,
    UnreadableError,
    UnsupportedMediaError,
)
from foretell.service.http.body import (
    LargeAnswer,
    MemoryBudget,
    Share,
    media_type,
    read_body,
    timeout_of,
)
from foretell.service.http.middleware import RequestContext
from foretell.service.http.pipeline import wait_for_result
from foretell.service.http.protocol import WHOLE, ClientConnection

LIMIT = 10


def reserve(_: int) -> None:
    """There is always room for more bytes."""


def soon() -> float:
    return time.monotonic() + 0.01


def later() -> float:
    return time.monotonic() + 30


def request(*messages: dict[str, Any], **headers: str) -> Request:
    """A request whose client sends the messages and then nothing more."""
    coming = list(messages)

    async def receive() -> dict[str, Any]:
        if coming:
            return coming.pop(0)
        await asyncio.Event().wait()
        raise AssertionError("nothing more comes")

    return request_by(receive, **headers)


def request_by(receive: Callable[[], Awaitable[Any]], **headers: str) -> Request:
    """A request whose messages come by a function."""
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": named}
    return Request(scope | {"state": {"context": RequestContext("", {})}}, receive)


def part(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


GONE = {"type": "http.disconnect"}


def run(reading: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(reading)


def read(
    sent: Request, limit: int, deadline: float, reserve: Callable[[int], None]
) -> Coroutine[Any, Any, bytearray]:
    return read_body(sent, sent.headers, limit, deadline, reserve)


def test_reads_parts() -> None:
    sent = request(part(b"01234", more=True), part(b"56789"))
    assert run(read(sent, LIMIT, later(), reserve)) == b"0123456789"


@pytest.mark.parametrize(
    ("headers", "chosen"),
    [
        ({"content-type": "application/json"}, "application/json"),
        ({"content-type": "Application/JSON; charset=utf-8"}, "application/json"),
        ({}, "text/html"),
        *(({"content-type": media}, None) for media in ("text/csv", "x/www-form-urlencoded", "")),
    ],
)
def test_media_types(headers: dict[str, str], chosen: str | None) -> None:
    if chosen is not None:
        assert media_type(headers, "text/html", "application/json") == chosen
        return
    with pytest.raises(UnsupportedMediaError, match="text/html or application/json, got") as error:
        media_type(headers, "text/html", "application/json")
    assert error.value.param == "Content-Type"


def test_a_compressed_body_is_decompressed() -> None:
    sent = request(part(gzip.compress(b"0123456789")), content_encoding="gzip")
    assert run(read(sent, LIMIT, later(), reserve)) == b"0123456789"


def test_a_compressed_body_that_ends_too_early() -> None:
    sent = request(part(gzip.compress(b"0123")[:-3]), content_encoding="gzip")
    with pytest.raises(UnreadableError, match="too early"):
        run(read(sent, LIMIT, later(), reserve))


def test_a_compressed_body_counts_decompressed() -> None:
    reserved: list[int] = []
    sent = request(part(gzip.compress(bytes(2**24))), content_encoding="gzip")
    with pytest.raises(TooLargeError):
        run(read(sent, 2**19, later(), reserved.append))
    # With the window of the decompressor.
    assert sum(reserved) <= 2**19 + 2**15


@pytest.mark.parametrize("count", [1, 3, 64])
@pytest.mark.parametrize("size", [10, 8 * 2**20])
def test_a_body_in_pieces_is_whole_and_not_held_twice(count: int, size: int) -> None:
    rest = size // count
    coming = iter(range(count))

    async def receive() -> dict[str, Any]:
        number = next(coming, None)
        return part(b"end") if number is None else part(bytes([number]) * rest, more=True)

    async def scene() -> bool:
        body = await read(request_by(receive), 2 * size, later(), reserve)
        # Beside it, what it grew from at last, or the last piece.
        assert tracemalloc.get_traced_memory()[1] < (2.2 if count < 64 else 1.5) * size + 2**20
        return body == b"".join(bytes([number]) * rest for number in range(count)) + b"end"

    tracemalloc.start()
    try:
        assert run(scene())
    finally:
        tracemalloc.stop()


def test_a_promised_body_over_the_limit_is_not_read() -> None:
    with pytest.raises(TooLargeError, match="at most 10 bytes"):
        run(read(request(content_length="11"), LIMIT, later(), reserve))


def test_an_unpromised_body_over_the_limit_is_not_kept() -> None:
    sent = request(part(b"0123456789", more=True), part(b"x", more=True))
    with pytest.raises(TooLargeError):
        run(read(sent, LIMIT, later(), reserve))


def test_a_body_takes_from_the_servers_budget_as_it_comes() -> None:
    budget = MemoryBudget(12)
    with Share(budget) as others, Share(budget) as share:
        others.reserve(5)
        sent = request(part(b"01234", more=True), part(b"56789", more=True))
        with pytest.raises(BuffersFullError):
            run(read(sent, LIMIT, later(), share.reserve))
    with Share(budget) as share:
        assert run(read(request(part(b"0123456")), LIMIT, later(), share.reserve)) == b"0123456"
        with pytest.raises(BuffersFullError), Share(budget) as others:
            others.reserve(6)


def test_a_slow_sender() -> None:
    with pytest.raises(SlowBodyError, match="before the whole body"):
        run(read(request(part(b"0", more=True)), LIMIT, soon(), reserve))


def test_a_body_that_came_with_its_head_is_not_late() -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return part(b"01")

    sent = Request({**request().scope, "extensions": {}}, receive)
    with pytest.raises(SlowBodyError):
        run(read(sent, LIMIT, soon(), reserve))
    sent.scope["extensions"][WHOLE] = {}
    assert run(read(sent, LIMIT, soon(), reserve)) == b"01"


def test_a_disconnect_while_the_body_is_read() -> None:
    with pytest.raises(ClientDisconnectedError):
        run(read(request(part(b"0", more=True), GONE), LIMIT, later(), reserve))


NUMBERS: Arrays = {}


def pending() -> Run:
    return Run(lambda run: run.fail(CancelledError()))


def test_a_result() -> None:
    done = pending()
    done.succeed(NUMBERS)
    assert waited(done) is NUMBERS


def test_a_failure() -> None:
    failed = pending()
    failed.fail(InvalidInputError("no"))
    with pytest.raises(InvalidInputError, match="no"):
        waited(failed)


def test_a_deadline_cancels_what_is_queued() -> None:
    queued = pending()
    with pytest.raises(DeadlineExceededError):
        waited(queued, deadline=soon())
    assert isinstance(queued.error, CancelledError)


def test_a_disconnect_cancels_what_is_queued() -> None:
    queued = pending()
    with pytest.raises(ClientDisconnectedError):
        waited(queued, gone=True)
    assert isinstance(queued.error, CancelledError)


def test_a_result_that_comes_on_the_loop_ends_the_wait() -> None:
    running = pending()

    async def wait() -> Arrays:
        loop = asyncio.get_running_loop()
        loop.call_soon(running.succeed, NUMBERS)
        # To wake the loop from one of its own turns is a system call.
        loop.call_soon_threadsafe = None  # type: ignore[assignment, method-assign]
        return await wait_for_result(running, ClientConnection(lambda: None), later())

    with asyncio.Runner() as runner:
        assert runner.run(wait()) is NUMBERS
        del runner.get_loop().call_soon_threadsafe


def test_a_result_that_comes_on_a_thread_wakes_the_loop() -> None:
    running = pending()

    async def wait() -> Arrays:
        timer = threading.Timer(0.05, running.succeed, (NUMBERS,))
        timer.start()
        return await wait_for_result(running, ClientConnection(lambda: None), later())

    assert run(wait()) is NUMBERS


def waited(future: Run, *, deadline: float = math.inf, gone: bool = False) -> Arrays:
    """The outcome of a run, after which nothing watches its client."""
    client = ClientConnection(lambda: None)

    async def wait() -> Arrays:
        if gone:
            asyncio.get_running_loop().call_soon(client.disconnect)
        return await wait_for_result(future, client, min(deadline, later()))

    try:
        return asyncio.run(wait())
    finally:
        assert not client.watchers


@pytest.mark.parametrize(("given", "seconds"), [("1500", 1.5), ("9" * 12, 999999999.999)])
def test_a_time(given: str, seconds: float) -> None:
    assert timeout_of(given) == seconds


@pytest.mark.parametrize(
    "given", ["0", "-5", "1.5", "soon", "", "1" * 13, "\N{FULLWIDTH DIGIT ONE}"]
)
def test_a_wrong_time(given: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        timeout_of(given)
    assert error.value.param == "X-Timeout-Ms"


def test_requests_share_the_budget_and_give_back() -> None:
    budget = MemoryBudget(10)
    with Share(budget) as one:
        one.reserve(4)
        with Share(budget) as other:
            other.reserve(6)
            with pytest.raises(BuffersFullError, match="holds 10 bytes of requests") as full:
                one.reserve(1)
            assert full.value.retry_after >= 1
        one.reserve(6)
    with Share(budget) as one:
        one.reserve(10)


def test_what_a_request_keeps_replaces_what_it_had() -> None:
    budget = MemoryBudget(10)
    with Share(budget) as one, Share(budget) as other:
        one.reserve(8)
        one.reserve(3 - one.reserved)
        other.reserve(7)
        with pytest.raises(BuffersFullError):
            one.reserve(4 - one.reserved)
        with pytest.raises(TooLargeError):
            one.reserve(11 - one.reserved)
        one.reserve(0 - one.reserved)
        other.reserve(3)
    assert budget.reserved == 0


def test_what_no_request_could_have_is_no_reason_to_try_again() -> None:
    budget = MemoryBudget(10)
    with Share(budget) as one, Share(budget) as other:
        one.reserve(4)
        other.reserve(4)
        with pytest.raises(TooLargeError, match=r"about 11 bytes.* 10 \(max_buffered_bytes\)"):
            one.reserve(7)
        with pytest.raises(BuffersFullError):
            one.reserve(6)


def test_a_failed_request_gives_back_too() -> None:
    budget = MemoryBudget(10)

    def fail() -> None:
        with Share(budget) as share:
            share.reserve(10)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    with Share(budget) as share:
        share.reserve(10)


def test_an_answer_that_is_larger_than_all_of_it() -> None:
    async def send(_: Any) -> None:
        raise AssertionError

    size = 64 * 1024 + 1
    answer = LargeAnswer(b"x" * size, MemoryBudget(size - 1), {})
    with pytest.raises(TooLargeError, match=r"about 65537 bytes.* 65536 \(max_buffered_bytes\)"):
        asyncio.run(answer({"type": "http"}, asyncio.Queue().get, send))


@pytest.mark.parametrize(("more", "pieces"), [(0, 2), (1, 3)])
def test_a_large_answer_goes_out_piece_by_piece(more: int, pieces: int) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    content = b"x" * (128 * 1024 + more)
    answer = LargeAnswer(content, MemoryBudget(len(content)), {"a": "b"})
    asyncio.run(answer({"type": "http"}, asyncio.Queue().get, send))
    start, *parts = sent
    assert start["status"] == 200
    assert {(b"a", b"b"), (b"content-length", b"%d" % len(content))} <= {*start["headers"]}
    assert b"".join(part["body"] for part in parts) == content
    assert [part["more_body"] for part in parts] == [True] * (pieces - 1) + [False]
