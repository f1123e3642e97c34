from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from foretell.service.web.offload import _LARGE, Offload


@pytest.fixture
def offload() -> Iterator[Offload]:
    offload = Offload()
    yield offload
    offload.close()


def test_small_work_stays_on_the_loop_and_large_work_does_not(offload: Offload) -> None:
    async def scene() -> None:
        assert await offload.run(_LARGE - 1, threading.current_thread) is threading.current_thread()
        assert await offload.run(_LARGE, threading.current_thread) is not threading.current_thread()

    asyncio.run(scene())


def test_the_loop_goes_on_meanwhile(offload: Offload) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return go_on.wait(30)

    async def scene() -> bool:
        pending = asyncio.create_task(offload.run(_LARGE, work))
        await asyncio.to_thread(begun.wait, 30)
        go_on.set()
        return await pending

    assert asyncio.run(scene())


def test_errors_come_through(offload: Offload) -> None:
    for size in (0, _LARGE):
        with pytest.raises(ValueError, match="invalid literal"):
            asyncio.run(offload.run(size, int, "x"))


def test_closed(offload: Offload) -> None:
    offload.close()
    with pytest.raises(RuntimeError):
        asyncio.run(offload.run(_LARGE, int))
