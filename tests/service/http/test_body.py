"""Reading bodies, their memory, threads for large work, and waiting for runs."""

from __future__ import annotations

import asyncio
import gc
import gzip
import math
import threading
import time
import tracemalloc
import weakref
from collections.abc import Awaitable, Callable, Iterator
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
    Offload,
    Share,
    media_type,
    read_body,
    timeout_of,
)
from foretell.service.http.client import WHOLE, ClientConnection
from foretell.service.http.middleware import RequestContext
from foretell.service.http.waiting import wait_for_result
from tests.service.loops import on_loop

LIMIT = 10


def soon() -> float:
    return time.monotonic() + 0.01


def later() -> float:
    return time.monotonic() + 30


def request(*messages: dict[str, Any], **headers: str) -> Request:
    """A request whose client sends the messages and then nothing more."""
    waiting = list(messages)

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop(0)
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
GZIP = {"content_encoding": "gzip"}


def read(
    sent: Request,
    limit: int = LIMIT,
    deadline: float = math.inf,
    reserve: Callable[[int], None] = lambda _: None,
) -> bytearray:
    deadline = min(deadline, later())
    return asyncio.run(read_body(sent, sent.headers, limit, deadline, reserve))


@pytest.mark.parametrize(
    ("pieces", "headers"),
    [
        ([part(b"01234", more=True), part(b"56789")], {}),
        ([part(gzip.compress(b"0123456789"))], GZIP),
    ],
)
def test_body_is_read_whole(pieces: list[dict[str, Any]], headers: dict[str, str]) -> None:
    assert read(request(*pieces, **headers)) == b"0123456789"


@pytest.mark.parametrize(
    ("pieces", "headers", "error", "message"),
    [
        ([part(gzip.compress(b"0123")[:-3])], GZIP, UnreadableError, "too early"),
        # Refused before anything is read.
        ([], {"content_length": "11"}, TooLargeError, "at most 10 bytes"),
        (
            [part(b"0123456789", more=True), part(b"x", more=True)],
            {},
            TooLargeError,
            "at most 10 bytes",
        ),
        ([part(b"0", more=True), GONE], {}, ClientDisconnectedError, "disconnected"),
    ],
)
def test_body_is_refused(
    pieces: list[dict[str, Any]], headers: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read(request(*pieces, **headers))


@pytest.mark.parametrize(
    ("headers", "chosen"),
    [
        ({"content-type": "application/json"}, "application/json"),
        ({"content-type": "Application/JSON; charset=utf-8"}, "application/json"),
        ({}, "text/html"),
        *(({"content-type": media}, None) for media in ("text/csv", "x/www-form-urlencoded", "")),
    ],
)
def test_media_type(headers: dict[str, str], chosen: str | None) -> None:
    if chosen is not None:
        assert media_type(headers, "text/html", "application/json") == chosen
        return
    with pytest.raises(UnsupportedMediaError, match="text/html or application/json, got") as error:
        media_type(headers, "text/html", "application/json")
    assert error.value.param == "Content-Type"


def test_limit_is_of_the_decompressed_body() -> None:
    reserved: list[int] = []
    with pytest.raises(TooLargeError):
        read(request(part(gzip.compress(bytes(2**24))), **GZIP), 2**19, reserve=reserved.append)
    # The limit, and the window of the decompressor.
    assert sum(reserved) <= 2**19 + 2**15


@pytest.mark.parametrize("count", [1, 3, 64])
@pytest.mark.parametrize("size", [10, 8 * 2**20])
def test_body_in_pieces_is_not_held_twice(count: int, size: int) -> None:
    rest = size // count
    numbers = iter(range(count))

    async def receive() -> dict[str, Any]:
        number = next(numbers, None)
        return part(b"end") if number is None else part(bytes([number]) * rest, more=True)

    async def scene() -> bool:
        sent = request_by(receive)
        body = await read_body(sent, sent.headers, 2 * size, later(), lambda _: None)
        # The body, and the smaller buffer before its last growth or the last piece.
        assert tracemalloc.get_traced_memory()[1] < (2.2 if count < 64 else 1.5) * size + 2**20
        return body == b"".join(bytes([number]) * rest for number in range(count)) + b"end"

    tracemalloc.start()
    try:
        assert asyncio.run(scene())
    finally:
        tracemalloc.stop()


def test_body_reserves_memory_piece_by_piece() -> None:
    budget = MemoryBudget(12)
    with Share(budget) as others, Share(budget) as share:
        others.reserve(5)
        with pytest.raises(BuffersFullError):
            read(request(part(b"01234", more=True), part(b"56789")), reserve=share.reserve)
    with Share(budget) as share:
        assert read(request(part(b"0123456")), reserve=share.reserve) == b"0123456"
        assert share.reserved == 7


def test_slow_sender_is_refused_unless_its_body_is_complete() -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return part(b"01")

    sent = Request({**request().scope, "extensions": {}}, receive)
    with pytest.raises(SlowBodyError, match="before the whole body"):
        read(sent, deadline=soon())
    sent.scope["extensions"][WHOLE] = {}
    assert read(sent, deadline=soon()) == b"01"


NUMBERS: Arrays = {}


def pending() -> Run:
    return Run(lambda run: run.fail(CancelledError()))


def waited(future: Run, *, deadline: float = math.inf, disconnected: bool = False) -> Arrays:
    """The outcome of a run; fails if its client is still watched afterwards."""
    client = ClientConnection(lambda: None)

    async def wait() -> Arrays:
        if disconnected:
            asyncio.get_running_loop().call_soon(client.disconnect)
        return await wait_for_result(future, client, min(deadline, later()))

    try:
        return asyncio.run(wait())
    finally:
        assert not client.watchers


def test_result_of_a_run_ends_the_wait() -> None:
    done, failed = pending(), pending()
    done.succeed(NUMBERS)
    assert waited(done) is NUMBERS
    failed.fail(InvalidInputError("no"))
    with pytest.raises(InvalidInputError, match="no"):
        waited(failed)


@pytest.mark.parametrize("disconnected", [False, True])
def test_deadline_or_disconnect_cancels_a_queued_run(disconnected: bool) -> None:
    queued = pending()
    with pytest.raises(ClientDisconnectedError if disconnected else DeadlineExceededError):
        waited(queued, deadline=math.inf if disconnected else soon(), disconnected=disconnected)
    assert isinstance(queued.error, CancelledError)


def test_result_that_comes_on_the_loop_ends_the_wait() -> None:
    running = pending()

    async def wait() -> Arrays:
        loop = asyncio.get_running_loop()
        loop.call_soon(running.succeed, NUMBERS)
        # `call_soon_threadsafe` makes a system call, which is not needed on the loop's thread.
        loop.call_soon_threadsafe = None  # type: ignore[assignment, method-assign]
        return await wait_for_result(running, ClientConnection(lambda: None), later())

    with asyncio.Runner() as runner:
        assert runner.run(wait()) is NUMBERS
        del runner.get_loop().call_soon_threadsafe


def test_result_that_comes_on_a_thread_wakes_the_loop() -> None:
    running = pending()
    threading.Timer(0.05, running.succeed, (NUMBERS,)).start()
    assert waited(running) is NUMBERS


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        *(("1500", 1.5), ("9" * 12, 999999999.999)),
        *((wrong, None) for wrong in ("0", "-5", "1.5", "soon", "", "1" * 13)),
        ("\N{FULLWIDTH DIGIT ONE}", None),
    ],
)
def test_timeout_of_a_header(given: str, seconds: float | None) -> None:
    if seconds is not None:
        assert timeout_of(given) == seconds
        return
    with pytest.raises(InvalidInputError) as error:
        timeout_of(given)
    assert error.value.param == "X-Timeout-Ms"


def test_requests_share_and_release_the_budget() -> None:
    budget = MemoryBudget(10)
    with Share(budget) as one:
        one.reserve(4)
        with Share(budget) as other:
            other.reserve(6)
            with pytest.raises(BuffersFullError, match="holds 10 bytes of requests") as full:
                one.reserve(1)
            assert full.value.retry_after >= 1
            # A size over the whole budget gets no Retry-After.
            with pytest.raises(TooLargeError, match=r"about 11 bytes.* 10 \(max_buffered_bytes\)"):
                one.reserve(7)
        one.reserve(6)
    assert budget.reserved == 0


def test_reservation_of_a_request_is_replaced() -> None:
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


def test_answer_larger_than_the_budget_is_refused() -> None:
    async def send(_: Any) -> None:
        raise AssertionError

    size = 64 * 1024 + 1
    answer = LargeAnswer(b"x" * size, MemoryBudget(size - 1), {})
    with pytest.raises(TooLargeError, match=r"about 65537 bytes.* 65536 \(max_buffered_bytes\)"):
        asyncio.run(answer({"type": "http"}, asyncio.Queue().get, send))


@pytest.mark.parametrize(("more", "pieces"), [(0, 2), (1, 3)])
def test_large_answer_is_sent_in_pieces_and_counts_until_sent(more: int, pieces: int) -> None:
    sent: list[Any] = []
    content = b"x" * (128 * 1024 + more)
    budget = MemoryBudget(2 * len(content) - 1)

    async def send(message: Any) -> None:
        sent.append(message)
        assert budget.reserved == len(content)
        with pytest.raises(BuffersFullError):
            await LargeAnswer(content, budget, {})({"type": "http"}, asyncio.Queue().get, send)

    answer = LargeAnswer(content, budget, {"a": "b"})
    asyncio.run(answer({"type": "http"}, asyncio.Queue().get, send))
    assert budget.reserved == 0
    start, *parts = sent
    assert start["status"] == 200
    assert {(b"a", b"b"), (b"content-length", b"%d" % len(content))} <= {*start["headers"]}
    # Other servers may only accept bytes.
    assert {type(part["body"]) for part in parts} == {bytes}
    assert b"".join(part["body"] for part in parts) == content
    assert [part["more_body"] for part in parts] == [True] * (pieces - 1) + [False]


@pytest.fixture
def offload() -> Iterator[Offload]:
    offload = Offload()
    yield offload
    offload.close()


def test_offload_does_not_block_the_loop(offload: Offload) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return go_on.wait(30)

    async def scene() -> bool:
        pending = asyncio.create_task(offload.run(later(), work))
        await asyncio.to_thread(begun.wait, 30)
        go_on.set()
        return await pending

    assert asyncio.run(scene())


def test_closed_offload_refuses_work(offload: Offload) -> None:
    offload.close()
    with pytest.raises(RuntimeError):
        asyncio.run(offload.run(later(), int))


class Body:
    """Arguments that take memory."""


@on_loop
async def test_offload_drops_waiting_work_at_the_deadline(offload: Offload) -> None:
    go_on = threading.Event()
    busy = [asyncio.create_task(offload.run(later(), go_on.wait, 30)) for _ in "ab"]
    await asyncio.sleep(0)
    body = Body()
    with pytest.raises(DeadlineExceededError):
        await offload.run(time.monotonic() + 0.01, id, body)
    assert not any(task.done() for task in busy)
    dropped = weakref.ref(body)
    del body
    # The call still waits in the queue.
    assert dropped() is None
    go_on.set()
    assert await asyncio.gather(*busy) == [True, True]


@on_loop
async def test_offload_waits_for_started_work_past_the_deadline(offload: Offload) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(30)

    soon = time.monotonic() + 0.05
    pending = asyncio.create_task(offload.run(soon, work))
    await asyncio.to_thread(begun.wait, 30)
    await asyncio.sleep(soon + 0.01 - time.monotonic())
    assert not pending.done()
    go_on.set()
    with pytest.raises(DeadlineExceededError):
        await pending


@on_loop
async def test_offload_skips_cancelled_work(offload: Offload) -> None:
    go_on = threading.Event()
    read: list[int] = []
    busy = [asyncio.create_task(offload.run(later(), go_on.wait, 30)) for _ in "ab"]
    cut_off = asyncio.create_task(offload.run(later(), read.append, 1))
    await asyncio.sleep(0)
    cut_off.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cut_off
    go_on.set()
    await asyncio.gather(*busy)
    await offload.run(later(), read.append, 2)
    assert read == [2]


def test_offload_error_keeps_no_reference_to_the_input(offload: Offload) -> None:
    made: list[weakref.ref[Body]] = []

    def fail(body: Body) -> None:
        own = Body()
        made[:] = [weakref.ref(body), weakref.ref(own)]
        raise ValueError("wrong")

    async def scene() -> None:
        with pytest.raises(ValueError, match="wrong"):
            await offload.run(later(), fail, Body())

    gc.disable()
    try:
        asyncio.run(scene())
        assert [each() for each in made] == [None, None]
    finally:
        gc.enable()
