"""Refused requests stayed in memory until the server was killed: BerriAI/litellm#13911.

An error holds the frames that it came through, and these hold the request. Where one of them, or
what it refers to, holds the error, all of it waits for a garbage collection, which is rare.
"""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import psutil
import pytest
from fastapi.routing import APIRoute, APIRouter

from foretell.service.http.sockets import listen
from foretell.service.server import _Server
from tests.service.client import Client
from tests.support.process import Server
from tests.support.refusals import (
    ADMIN_KEY,
    LARGE,
    MOST_BYTES,
    ROUTES,
    SMALL,
    Refusal,
    bomb,
    exchange,
    refusals,
    refusals_of,
    write_models,
)

_MIB = 1024 * 1024
_PATIENCE = 30.0


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"))


def settings_for(models: Path) -> dict[str, Any]:
    """Settings of a server with all routes."""
    return {
        "admin_keys": ADMIN_KEY,
        "ledger": f"sqlite:///{models.parent / 'ledger.db'}",
        "max_body_bytes": MOST_BYTES,
    }


class InThread(_Server):
    """Signals are for the main thread."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class LocalServer:
    """A server in this process: the application behind the real protocol."""

    def __init__(self, models: Path) -> None:
        self.client = Client(models, **settings_for(models))
        (self._socket,) = listen("127.0.0.1", 0)
        sockets = [self._socket]
        self._server = InThread(self.client.settings, self.client.engine, sockets, heartbeat=int)
        self._thread = threading.Thread(target=self._server.run, args=(sockets,), daemon=True)
        self._thread.start()
        wait_for(lambda: self._server.started)

    def connect(self) -> socket.socket:
        address: tuple[str, int] = self._socket.getsockname()
        return socket.create_connection(address, _PATIENCE)

    def settle(self) -> None:
        """Wait until all requests have ended, and all connections."""
        state = self._server.server_state
        wait_for(lambda: not (state.connections or state.tasks or self.client.metrics.in_flight))

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(_PATIENCE)
        self._socket.close()


@pytest.fixture(scope="module")
def here(models: Path) -> Iterator[LocalServer]:
    here = LocalServer(models)
    # Warm up: modules are imported, and caches are filled.
    for count in (SMALL, LARGE):
        for each in refusals(count):
            send(here, each)
    yield here
    here.close()


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Switch garbage collection off, and leave out objects that exist already."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def send(here: LocalServer, refusal: Refusal) -> None:
    with here.connect() as client:
        # Routes that change models refuse all large bodies for their size.
        assert exchange(client, refusal.request) in (refusal.status, 413), refusal[:3]
    here.settle()


def garbage() -> list[str]:
    """The errors, frames and tracebacks that only a collection would free."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = [
        f"{type(each).__name__}: {each}"[:200]
        for each in gc.garbage
        if isinstance(each, (BaseException, FrameType, TracebackType))
    ]
    gc.garbage.clear()
    gc.collect()
    return found


def test_every_route_with_a_body_has_a_refusal(here: LocalServer) -> None:
    routers = [getattr(each, "original_router", None) for each in here.client.app.routes]
    routes = {
        route.path
        for router in routers
        if isinstance(router, APIRouter)
        for route in router.routes
        if isinstance(route, APIRoute) and "POST" in route.methods
    }
    assert routes == set(ROUTES)


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("route", ROUTES)
def test_a_refusal_leaves_no_garbage(here: LocalServer, route: str, count: int) -> None:
    left = {}
    for each in refusals_of(route, count):
        send(here, each)
        if found := garbage():
            left[each.name] = found
    assert not left


def resident(server: Server) -> int:
    process = psutil.Process(server.process.pid)
    processes = [process, *process.children(recursive=True)]
    return sum(each.memory_info().rss for each in processes)


@pytest.mark.parametrize("workers", [1, 2])
def test_refusals_do_not_grow_resident_memory(models: Path, tmp_path: Path, workers: int) -> None:
    bombs = [bomb(route) for route in ROUTES if route.endswith("infer")]
    if workers == 1:
        large = [*refusals(LARGE)]
    else:
        # All kinds run the same code, so one kind of each route is enough.
        large = [next(refusals_of(route, LARGE)) for route in ROUTES]
    settings = settings_for(models)
    with Server(models, tmp_path / "log", workers=workers, **settings) as server:
        port = int(server.url.rpartition(":")[2])

        def repeat(each: Refusal, times: int) -> None:
            for _ in range(times):
                with socket.create_connection(("127.0.0.1", port), _PATIENCE) as client:
                    assert exchange(client, each.request) in (each.status, 413), each[:3]

        for each in [*bombs, *large]:
            repeat(each, workers)
        before = resident(server)
        for each in large:
            repeat(each, 2)
        for each in bombs:
            repeat(each, 10)
        # Free memory is trimmed half a second after the last of them.
        wait_for(lambda: resident(server) - before < 32 * _MIB)
