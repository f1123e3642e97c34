from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request

from foretell.service.http.protocol import EXTENSION, ClientConnection, connection_of


def test_who_watches_is_told() -> None:
    listened: list[str] = []
    told: list[str] = []
    caller = ClientConnection(lambda: listened.append("."))

    def first() -> None:
        told.append("first")
        caller.unwatch(second)

    def second() -> None:
        told.append("second")

    caller.watch(second)
    caller.unwatch(second)
    caller.watch(first)
    assert listened == [".", "."]
    caller.disconnect()
    assert caller.disconnected
    assert told == ["first"]


def test_who_watches_too_late_is_told_at_once() -> None:
    told: list[bool] = []
    caller = ClientConnection(lambda: None)
    caller.disconnect()
    caller.watch(lambda: told.append(True))
    assert told == [True]


def test_the_servers_own_word_is_taken() -> None:
    caller = ClientConnection(lambda: None)
    request = Request({"type": "http", "extensions": {EXTENSION: caller}})
    assert connection_of(request) is caller


def test_another_server_is_asked() -> None:
    async def ask() -> list[str]:
        gone = asyncio.Event()
        told: list[str] = []

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        caller = connection_of(Request({"type": "http"}, receive))
        caller.watch(lambda: told.append("early"))
        await asyncio.sleep(0)
        assert not told
        gone.set()
        async with asyncio.timeout(60):
            while not caller.disconnected:
                await asyncio.sleep(0)

        def never() -> None:
            told.append("never")

        unwatched = connection_of(Request({"type": "http"}, receive))
        unwatched.watch(never)
        unwatched.unwatch(never)
        for _ in range(5):
            await asyncio.sleep(0)
        return told

    assert asyncio.run(ask()) == ["early"]


def test_several_may_watch_a_caller_of_another_server() -> None:
    async def ask() -> list[str]:
        waiting: list[asyncio.Future[None]] = []
        told: list[str] = []

        async def receive() -> dict[str, Any]:
            waiting.append(asyncio.get_running_loop().create_future())
            await waiting[-1]
            return {"type": "http.disconnect"}

        def first() -> None:
            told.append("first")

        def second() -> None:
            told.append("second")

        caller = connection_of(Request({"type": "http"}, receive))
        caller.watch(first)
        caller.watch(second)
        caller.unwatch(first)
        await asyncio.sleep(0)
        # They share one ear.
        (gone,) = waiting
        gone.set_result(None)
        async with asyncio.timeout(60):
            while not told:
                await asyncio.sleep(0)
        return told

    assert asyncio.run(ask()) == ["second"]
