from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request

from foretell.service.http.protocol import EXTENSION, ClientConnection, connection_of


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


def test_another_server_is_asked_by_receive() -> None:
    async def ask() -> list[str]:
        gone = asyncio.Event()
        called: list[str] = []

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        client = connection_of(Request({"type": "http"}, receive))
        client.watch(lambda: called.append("early"))
        await asyncio.sleep(0)
        assert not called
        gone.set()
        async with asyncio.timeout(60):
            while not client.disconnected:
                await asyncio.sleep(0)

        def never() -> None:
            called.append("never")

        unwatched = connection_of(Request({"type": "http"}, receive))
        unwatched.watch(never)
        unwatched.unwatch(never)
        for _ in range(5):
            await asyncio.sleep(0)
        return called

    assert asyncio.run(ask()) == ["early"]


def test_several_may_watch_a_client_of_another_server() -> None:
    async def ask() -> list[str]:
        waiting: list[asyncio.Future[None]] = []
        called: list[str] = []

        async def receive() -> dict[str, Any]:
            waiting.append(asyncio.get_running_loop().create_future())
            await waiting[-1]
            return {"type": "http.disconnect"}

        def first() -> None:
            called.append("first")

        def second() -> None:
            called.append("second")

        client = connection_of(Request({"type": "http"}, receive))
        client.watch(first)
        client.watch(second)
        client.unwatch(first)
        await asyncio.sleep(0)
        # They share one task.
        (gone,) = waiting
        gone.set_result(None)
        async with asyncio.timeout(60):
            while not called:
                await asyncio.sleep(0)
        return called

    assert asyncio.run(ask()) == ["second"]
