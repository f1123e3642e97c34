from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from foretell.service.engine.engine import LocalEngine
from foretell.service.errors import NotReadyError, UnknownModelError
from foretell.service.metrics import Metrics
from tests.service.client import Client
from tests.service.loops import on_loop
from tests.service.served import Scene
from tests.support.bundles import Spec, write_bundle
from tests.support.waiting import until

KEY = {"X-API-Key": "secret"}
PATIENCE = 30


def workers() -> set[threading.Thread]:
    """The threads of all that there are."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("change")}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene.started(tmp_path, "one@1")


@on_loop
async def test_who_asks_waits_for_the_end(scene: Scene) -> None:
    engine = LocalEngine(scene.repository, Metrics())
    await engine.start()
    scene.place("one@2")
    await engine.load("one", "2")
    assert scene.has == ["one@1", "one@2"]
    assert engine.registry.loaded("one") == ["1", "2"]
    assert engine.status.models == {"one@1": "ready", "one@2": "ready"}
    with pytest.raises(UnknownModelError):
        await engine.load("two", None)
    await engine.unload("one", "1")
    assert engine.registry.loaded("one") == ["2"]
    assert [entry.version for entry in await engine.index()] == ["1", "2"]
    await engine.close()


def test_a_server_that_stops_waits_for_no_change(scene: Scene) -> None:
    for version in range(2, 6):
        scene.place(f"one@{version}")
    scene.open.gate.clear()
    before = workers()

    async def ask() -> list[BaseException | None]:
        engine = LocalEngine(scene.repository, Metrics())
        asking = [asyncio.create_task(engine.load("one", str(each))) for each in range(2, 6)]
        while len(scene.open.opened) < 2:
            await asyncio.sleep(0.01)
        assert engine.changing
        engine.drain()
        assert not engine.status.ready
        answers = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), PATIENCE)
        with pytest.raises(NotReadyError, match="the server is stopping"):
            await engine.unload("one", None)
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        assert engine.changing
        scene.open.gate.set()
        await closing
        async with asyncio.timeout(PATIENCE):
            while engine._changes:
                await asyncio.sleep(0.01)
        assert not engine.changing
        return answers

    answers = asyncio.run(ask())
    assert [type(answer) for answer in answers] == [NotReadyError] * 4
    until(lambda: workers() <= before)
    # One of the four was opened, whichever came first; what waited for its turn never began.
    assert len(scene.open.opened) == 2


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
                assert workers() - before

        asyncio.run(serve())
        until(lambda: workers() <= before)
