"""A worker and the engine in two halves of one process, connected as processes are."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from foretell.service.engine.client import EngineClient, _EngineConnection
from foretell.service.engine.engine import LocalEngine
from foretell.service.engine.loading import load
from foretell.service.engine.registry import Registry
from foretell.service.engine.run import Run
from foretell.service.engine.server import EngineServer
from foretell.service.metrics import Metrics
from foretell.service.settings import Settings

PATIENCE = 30.0


def windows(count: int = 1, value: float = 1.0) -> dict[str, np.ndarray]:
    return {"history": np.full((count, 8, 1), value, np.float32)}


async def outcome(run: Run) -> dict[str, np.ndarray]:
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    run.add_done_callback(lambda _: loop.call_soon_threadsafe(done.set))
    async with asyncio.timeout(PATIENCE):
        await done.wait()
    return run.result()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


def deadline() -> float:
    return time.monotonic() + PATIENCE


async def ask(worker: EngineClient, name: str = "repeat") -> dict[str, np.ndarray]:
    """The outputs of a window that a worker has its engine run."""
    return await outcome(worker.registry.find(name).submit(windows(), deadline=deadline()))


def before_reads(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[Sequence[np.ndarray]], object]
) -> None:
    """Call a function with the frames of updates, before they are read."""
    plain = _EngineConnection._read

    def read(connection: _EngineConnection, frames: Sequence[np.ndarray]) -> Registry:
        call(frames)
        return plain(connection, frames)

    monkeypatch.setattr(_EngineConnection, "_read", read)


class Halves:
    """An engine that serves workers.

    Attributes:
        models: The engine's repository.
        path: Of the engine's socket.
        server: What serves workers, within `engine`.
    """

    def __init__(self, models: Path, path: Path, **settings: object) -> None:
        self.path = path
        self.models = models
        self.server: EngineServer
        given = {"models": models, "device": "cpu", "threads": 1, **settings}
        self._settings = Settings.read(**given)

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[LocalEngine]:
        """Serve workers, within `async with`."""
        metrics = Metrics()
        engine = LocalEngine(load(self._settings, metrics), metrics)
        going = True
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.path))
        listener.listen()
        self.server = EngineServer(engine)
        serving = asyncio.ensure_future(self.server.serve(listener, lambda: going))
        try:
            yield engine
        finally:
            going = False
            await serving
            await engine.close()

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[EngineClient]:
        """A worker that is connected, within `async with`."""
        worker = EngineClient(self.path, Metrics())
        async with asyncio.timeout(PATIENCE):
            await worker.start()
        try:
            yield worker
        finally:
            await worker.close()
