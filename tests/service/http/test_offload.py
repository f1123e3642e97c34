from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from foretell.service.errors import DeadlineExceededError
from foretell.service.http.body import Offload
from tests.service.loops import on_loop


def later() -> float:
    return time.monotonic() + 30


@pytest.fixture
def offload() -> Iterator[Offload]:
    offload = Offload()
    yield offload
    offload.close()


def test_the_loop_goes_on_meanwhile(offload: Offload) -> None:
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


def test_errors_come_through(offload: Offload) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        asyncio.run(offload.run(later(), int, "x"))


def test_closed(offload: Offload) -> None:
    offload.close()
    with pytest.raises(RuntimeError):
        asyncio.run(offload.run(later(), int))


class Body:
    """Arguments that take memory."""


@on_loop
async def test_what_waits_for_a_thread_is_dropped_at_the_deadline(offload: Offload) -> None:
    go_on = threading.Event()
    busy = [asyncio.create_task(offload.run(later(), go_on.wait, 30)) for _ in "ab"]
    await asyncio.sleep(0)
    body = Body()
    with pytest.raises(DeadlineExceededError):
        await offload.run(time.monotonic() + 0.01, id, body)
    assert not any(task.done() for task in busy)
    dropped = weakref.ref(body)
    del body
    # Its place in the queue is still taken.
    assert dropped() is None
    go_on.set()
    assert await asyncio.gather(*busy) == [True, True]


@on_loop
async def test_what_has_begun_is_late_when_it_is_done(offload: Offload) -> None:
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
async def test_a_request_that_is_cut_off_is_not_read(offload: Offload) -> None:
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


def test_an_error_holds_nothing_of_what_was_worked_on(offload: Offload) -> None:
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
