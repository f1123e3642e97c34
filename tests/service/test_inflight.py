from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.entrance import Tracked
from service.inflight import InFlight


def test_waits_for_those_that_have_begun_and_not_for_later_ones() -> None:
    requests = InFlight()
    end, began = threading.Event(), threading.Barrier(2)

    def request() -> None:
        with requests.one():
            began.wait(30)
            assert end.wait(30)

    with ThreadPoolExecutor(2) as pool:
        earlier = pool.submit(request)
        began.wait(30)
        assert not requests.settle(0.01)
        settled = pool.submit(requests.settle, 30)
        with requests.one():
            assert not settled.done()
            end.set()
            assert settled.result(30)
        earlier.result(30)


def test_nothing_to_wait_for() -> None:
    requests = InFlight()
    with requests.one():
        pass
    assert requests.settle(0)


def test_a_request_that_fails_has_ended_too() -> None:
    requests = InFlight()

    async def fail(scope: object, receive: object, send: object) -> None:
        assert not requests.settle(0)
        raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        asyncio.run(Tracked(fail, requests)({"type": "http"}, None, None))
    assert requests.settle(0)


def test_the_start_of_the_server_is_no_request() -> None:
    requests = InFlight()

    async def lifespan(scope: object, receive: object, send: object) -> None:
        assert requests.settle(0)

    asyncio.run(Tracked(lifespan, requests)({"type": "lifespan"}, None, None))
