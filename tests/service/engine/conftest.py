"""Schedulers whose batches wait for the test, models, and workers with their engine."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foretell.bundle import layout
from foretell.service.arrays import Arrays
from foretell.service.engine import background, queues, root
from foretell.service.engine import run as runs
from foretell.service.engine import scheduler as module
from foretell.service.engine.client import EngineClient
from foretell.service.engine.engine import LocalEngine
from foretell.service.engine.loading import load
from foretell.service.engine.model import Model
from foretell.service.engine.queues import Queue
from foretell.service.engine.registry import Registry
from foretell.service.engine.remote import RemoteModels, Sender
from foretell.service.engine.run import Run
from foretell.service.engine.runtime import Runtime
from foretell.service.engine.scheduler import Scheduler
from foretell.service.engine.server import EngineServer
from foretell.service.engine.usage import Limits
from foretell.service.errors import ServiceError
from foretell.service.metrics import Metrics
from foretell.service.session import Session
from foretell.service.settings import Settings
from tests.service.conftest import Quiet
from tests.support.bundles import Spec, lag_stage, softmax_stage, write_bundle

LAGS = "encoder.1.self.lags"
PATIENCE = 30.0
LATER = time.monotonic() + 3600
MAX_BATCH = 4
MAX_WINDOWS = 16
LIMITS = Limits(MAX_BATCH, MAX_WINDOWS, bytes=1 << 20)


class Gate:
    """A run function that records its batches and holds them while `open` is not set."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[int]]] = []
        self.workers: set[tuple[int, str]] = set()
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.error: BaseException | None = None

    def __call__(self, worker: int, graph: str, feeds: Arrays) -> Arrays:
        self.batches.append((graph, feeds["x"].tolist()))
        self.workers.add((worker, threading.current_thread().name))
        self.entered.release()
        assert self.open.wait(30)
        if self.error is not None:
            raise self.error
        return {"y": feeds["x"] * 10}


class Observed(Quiet):
    """An observer that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.left = threading.Semaphore(0)

    def ran(self, windows: int, limit: int, assembled: float, ran: float) -> None:
        self.calls.append(("ran", windows, limit, assembled >= 0, ran >= 0))

    def ran_in_background(self, seconds: float) -> None:
        self.calls.append(("ran in background", seconds >= 0))

    def dropped(self, reason: str) -> None:
        self.calls.append((reason,))
        self.left.release()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def make(gate: Gate) -> Iterator[Callable[..., Scheduler]]:
    made: list[Scheduler] = []

    def build(threads: int = 1) -> Scheduler:
        made.append(Scheduler(threads))
        return made[-1]

    yield build
    gate.open.set()
    for scheduler in made:
        scheduler.close(5)


@pytest.fixture
def scheduler(make: Callable[..., Scheduler]) -> Scheduler:
    return make()


@pytest.fixture
def queue(scheduler: Scheduler, gate: Gate) -> Queue:
    return add(scheduler, gate)


def add(
    scheduler: Scheduler, run: Callable[..., Arrays], *, observer: Any = None, **limits: Any
) -> Queue:
    return scheduler.add(run, LIMITS._replace(**limits), observer or Quiet())


def submit(
    queue: Queue,
    *values: int,
    graph: str = "g",
    deadline: float = LATER,
    admitted: bool = False,
    background: bool = False,
) -> Run:
    feeds = {"x": np.array(values)}
    return queue.submit(graph, feeds, deadline=deadline, admitted=admitted, background=background)


def occupy(queue: Queue, gate: Gate) -> Run:
    """Keep the only worker busy, so that later runs wait."""
    future = submit(queue, 0)
    assert gate.entered.acquire(timeout=30)
    return future


def result(future: Run) -> list[int]:
    values: list[int] = future.result(30)["y"].tolist()
    return values


def error_of(future: Run) -> ServiceError:
    with pytest.raises(ServiceError) as raised:
        future.result(30)
    return raised.value


class BusyThreads:
    """Keeps inference threads busy until `release`: all, or those from index `first` on."""

    def __init__(self, scheduler: Scheduler, first: int = 0) -> None:
        self._go_on = threading.Event()
        entered = threading.Semaphore(0)

        def hold(worker: int) -> None:
            entered.release()
            assert worker < first or self._go_on.wait(30)

        for _ in scheduler.on_threads(hold):
            assert entered.acquire(timeout=30)

    def release(self) -> None:
        self._go_on.set()


class Clock:
    """A clock of the scheduler, which the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for user in (module, queues, runs, background, root):
        monkeypatch.setattr(user, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


class SlowRun:
    """A run function that takes some seconds of the clock for a batch of a graph, 1 by default."""

    def __init__(self, clock: Clock, order: list[str] | None = None, **seconds: float) -> None:
        self.clock = clock
        self.seconds = seconds
        self.order: list[str] = [] if order is None else order
        self.then: Callable[[], None] = lambda: None

    def __call__(self, worker: int, graph: str, feeds: Arrays) -> Arrays:
        self.order.append(graph)
        self.clock.now += self.seconds.get(graph, 1.0)
        self.then()
        return {"y": feeds["x"] * 10}


def windows(count: int = 1, value: float = 1.0) -> dict[str, np.ndarray]:
    return {"history": np.full((count, 8, 1), value, np.float32)}


async def outcome(run: Run) -> dict[str, np.ndarray]:
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    run.add_done_callback(lambda _: loop.call_soon_threadsafe(done.set))
    async with asyncio.timeout(PATIENCE):
        await done.wait()
    return run.result()


async def until_async(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


def deadline() -> float:
    return time.monotonic() + PATIENCE


async def ask(worker: EngineClient, name: str = "repeat") -> dict[str, np.ndarray]:
    """Outputs of a window that a worker sends to its engine."""
    return await outcome(worker.registry.find(name).submit(windows(), deadline=deadline()))


def before_reads(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[Sequence[np.ndarray]], object]
) -> None:
    """Call a function with the frames of every update before the update is read."""
    plain = RemoteModels.read

    def read(
        models: RemoteModels, registry: Registry, frames: Sequence[np.ndarray], connection: Sender
    ) -> Registry:
        call(frames)
        return plain(models, registry, frames, connection)

    monkeypatch.setattr(RemoteModels, "read", read)


class System:
    """An engine and its workers in one process, connected by the real socket.

    Attributes:
        models: The engine's repository.
        path: Path of the engine's socket.
        server: The engine's server, within `engine`.
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


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    write_bundle(folder, Spec(stages=(softmax_stage(), lag_stage()), calibrated=2))
    return folder


@pytest.fixture
def system(models: Path, tmp_path: Path) -> System:
    return System(models, tmp_path / "engine", max_queue=64, max_inputs=64)


def forecast(model: Model, value: float = 0.0) -> Run:
    """A run of one window of a model with one channel and a context of 8 steps."""
    feeds = {"history": np.full((1, 8, 1), value, np.float32)}
    return model.submit(feeds, deadline=time.monotonic() + 30)


def explain(model: Model) -> Run:
    """A run like that of `forecast`, with the attention of `lag_stage`."""
    feeds = {"history": np.zeros((1, 8, 1), np.float32)}
    return model.submit(feeds, attention=(LAGS,), deadline=time.monotonic() + 30)


class HeldOpening:
    """A runtime's `open` that waits for graphs of attention until `go_on` is set.

    Attributes:
        opened: Graphs that were opened.
        began: Set once a graph of attention is being opened.
        go_on: Set by the test.
        error: Raised after `go_on`, if set.
    """

    def __init__(self, runtime: Runtime, patch: pytest.MonkeyPatch) -> None:
        self.opened: list[str] = []
        self.began, self.go_on = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self._open = runtime.open
        patch.setattr(runtime, "open", self)

    def __call__(self, graph: Path, **options: Any) -> Session:
        self.opened.append(graph.name)
        if graph.name == layout.EXPLAIN_GRAPH:
            self.began.set()
            assert self.go_on.wait(30)
            if self.error is not None:
                raise self.error
        return self._open(graph, **options)
