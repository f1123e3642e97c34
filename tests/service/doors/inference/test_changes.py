from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from foretell.service.doors.inference.changes import Changes
from foretell.service.errors import NotReadyError, UnknownModelError
from tests.service.bundles import Spec, write_bundle
from tests.service.client import Client
from tests.service.served import Scene
from tests.service.waiting import until

KEY = {"X-API-Key": "secret"}
PATIENCE = 30


def workers() -> set[threading.Thread]:
    """The threads of all that there are."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("change")}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene.started(tmp_path, "one@1")


@pytest.fixture
def changes(scene: Scene) -> Iterator[Changes]:
    changes = Changes(scene.repository)
    yield changes
    scene.open.gate.set()
    changes.close()


def test_who_asks_waits_for_the_end(scene: Scene, changes: Changes) -> None:
    scene.place("one@2")
    asyncio.run(changes.run(scene.repository.load, "one", "2"))
    assert scene.has == ["one@1", "one@2"]
    with pytest.raises(UnknownModelError):
        asyncio.run(changes.run(scene.repository.load, "two"))


def test_a_server_that_stops_waits_for_no_change(scene: Scene, changes: Changes) -> None:
    for version in range(2, 6):
        scene.place(f"one@{version}")
    scene.open.gate.clear()
    before = workers()

    async def ask() -> list[BaseException | None]:
        asking = [
            asyncio.create_task(changes.run(scene.repository.load, "one", str(version)))
            for version in range(2, 6)
        ]
        while len(scene.open.opened) < 2:
            await asyncio.sleep(0.01)
        scene.repository.drain()
        return await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), PATIENCE)

    answers = asyncio.run(ask())
    assert [type(answer) for answer in answers] == [NotReadyError] * 4
    with pytest.raises(NotReadyError, match="the server is stopping"):
        asyncio.run(changes.run(scene.repository.unload, "one"))
    changes.close()
    scene.open.gate.set()
    until(lambda: workers() <= before)
    # One of the two threads was first to load; what waited, for it or for a thread, never began.
    assert scene.open.opened in (["one@1", "one@2"], ["one@1", "one@3"])


def test_loads_hold_up_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bundle(tmp_path, Spec())
    write_bundle(tmp_path, Spec(version="2"))
    gate = threading.Event()
    with Client(tmp_path, admin_keys="secret", versions="latest") as client:
        path = "/v2/repository/models/repeat/load"

        def wait(*_: object) -> None:
            assert gate.wait(PATIENCE)

        monkeypatch.setattr(client.repository, "load", wait)

        async def ask() -> tuple[list[httpx.Response], list[httpx.Response]]:
            transport: Any = httpx.ASGITransport(client.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://server") as http:
                # As many as asyncio has threads in common, and more.
                loads = [asyncio.create_task(http.post(path, headers=KEY)) for _ in range(40)]
                others = asyncio.gather(http.get("/metrics"), http.post("/v2/repository/index"))
                try:
                    answers = await asyncio.wait_for(others, PATIENCE / 3)
                finally:
                    gate.set()
                return answers, await asyncio.gather(*loads)

        others, loads = asyncio.run(ask())
    assert {answer.status_code for answer in others} == {200}
    assert {answer.status_code for answer in loads} == {200}


def test_the_threads_end_with_the_application(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec())
    before = workers()
    with Client(tmp_path, admin_keys="secret") as client:

        async def serve() -> None:
            transport: Any = httpx.ASGITransport(client.app)
            async with (
                client.app.router.lifespan_context(client.app),
                httpx.AsyncClient(transport=transport, base_url="http://server") as http,
            ):
                path = "/v2/repository/models/repeat/load"
                assert (await http.post(path, headers=KEY)).status_code == 200
                assert workers() > before

        asyncio.run(serve())
        until(lambda: workers() <= before)
