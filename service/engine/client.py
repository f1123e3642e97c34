"""The engine as seen by an HTTP worker in a process of its own."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.calibration import Calibration
from foretell.service.arrays import NO_ARRAYS, Arrays
from foretell.service.engine import ipc
from foretell.service.engine.engine import Engine, Status
from foretell.service.engine.learned import Key, LearnedOffsets, Offsets
from foretell.service.engine.registry import (
    LOADING,
    IndexEntry,
    Model,
    Registry,
    State,
    unready,
)
from foretell.service.engine.remote import RemoteModels
from foretell.service.engine.run import Run
from foretell.service.errors import (
    DeadlineExceededError,
    EngineLostError,
    NotReadyError,
    ServiceError,
    UnknownModelError,
    UnknownVersionError,
    from_wire,
)
from foretell.service.metrics import Metrics

_logger = logging.getLogger(__name__)

_RECONNECT_SECONDS = 0.05
_COUNT_SECONDS = 1.0
# Time to read updates, and for a stuck engine to answer whether it knows a model.
_REFRESH_SECONDS = 1.0
_LOST = "the process that runs the models has ended; another one takes its place"


class EngineClient(Engine):
    """The engine in another process; while it is lost, requests fail and the client reconnects."""

    def __init__(self, path: Path, metrics: Metrics) -> None:
        self.metrics = metrics
        self.learned = LearnedOffsets()
        self._registry = Registry(unavailable=LOADING)
        self._path = path
        # Set once the engine's registry is known.
        self._connection: _EngineConnection | None = None
        self._known = asyncio.Event()
        self._draining = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        # States of the versions that the last engine served, while it is lost.
        self._lost: Mapping[str, str] = {}
        # The last registry whose report was made.
        self._reported = self._registry
        self.models = RemoteModels()

    async def start(self) -> None:
        self._task = asyncio.create_task(self._stay_connected())
        await self._known.wait()

    @property
    def registry(self) -> Registry:
        return self._registry

    @property
    def status(self) -> Status:
        registry = self._registry
        report = self._lost if registry.unavailable else registry.report
        if self._draining.is_set():
            return Status.of(self.metrics, unready(report, "draining"), ready=False)
        return Status.of(self.metrics, report, ready=registry.ready)

    async def find(self, lookup: Callable[[Registry], Model], deadline: float = math.inf) -> Model:
        connection = self._connection
        try:
            model = lookup(self._registry)
        except (UnknownModelError, UnknownVersionError, NotReadyError):
            if connection is None:
                raise
            # The engine may have loaded it for another HTTP worker.
            news = connection.refresh()
        else:
            # Only a lookup of a changing model waits for the update.
            if (
                connection is None
                or connection.update is None
                or model.name not in connection.changing
            ):
                return model
            news = connection.update
        seconds = deadline - time.monotonic()
        known, _ = await asyncio.wait([news], timeout=max(0.0, min(_REFRESH_SECONDS, seconds)))
        if not known and seconds <= _REFRESH_SECONDS:
            raise DeadlineExceededError("the deadline passed before the model was found")
        return lookup(self._registry)

    async def updated(self) -> Registry:
        if self._connection is not None:
            await self._connection.updated(_REFRESH_SECONDS)
        registry = self._registry
        if registry is not self._reported:
            # The registry keeps both; with thousands of versions they take a while.
            await asyncio.to_thread(lambda: (registry.report, registry.ready))
            self._reported = registry
        return registry

    async def index(self) -> list[IndexEntry]:
        index, _ = await self._call("index")
        return [IndexEntry(name, version, State(state), why) for name, version, state, why in index]

    async def statistics(self, name: str | None, version: str | None) -> bytes:
        self._send_counts()
        return bytes((await self._call("statistics", name, version))[0])

    async def render(self) -> bytes:
        self._send_counts()
        return bytes((await self._call("render"))[0])

    @property
    def keeps(self) -> bool | None:
        return None if self._connection is None else self._connection.keeps

    def remember(self, message: ipc.Remember, arrays: Arrays) -> None:
        if self._connection is not None:
            self._connection.send(message, arrays)

    async def ledger(
        self, method: str, *arguments: object, arrays: Arrays = NO_ARRAYS
    ) -> tuple[Any, Arrays]:
        return await self._call("ledger", method, *arguments, arrays=arrays)

    async def close(self) -> None:
        self.drain()
        self._send_counts()
        if self._task is not None:
            self._task.cancel()
        if self._connection is not None:
            self._connection.close()

    def serve(self, connection: _EngineConnection, registry: Registry) -> None:
        """Serve the registry of the engine at the other end of a connection."""
        self._registry, self._connection = registry, connection
        self._known.set()

    def learn(self, message: ipc.Learned | ipc.Forgotten, arrays: Arrays) -> None:
        key = Key(*message.key)
        if isinstance(message, ipc.Forgotten):
            self.learned.forget(key)
        else:
            calibration = Calibration(arrays["levels"].copy(), arrays["offsets"].copy())
            self.learned.put(key, Offsets(calibration, message.origins, message.stored))

    def lose(self, connection: _EngineConnection) -> None:
        if self._connection is connection:
            self._connection = None
            if not self._draining.is_set():
                _logger.error("the engine is lost")
        # The next engine sends all offsets that it has.
        self.learned = LearnedOffsets()
        self._lost = dict.fromkeys(self.status.models, LOADING)
        self._registry = Registry(unavailable=LOADING)

    async def _call(
        self, method: str, *arguments: object, arrays: Arrays = NO_ARRAYS
    ) -> tuple[Any, Arrays]:
        if self._connection is None:
            raise EngineLostError(LOADING)
        return await self._connection.call(method, *arguments, arrays=arrays)

    def _begin(self, method: str, name: str, version: str | None) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self._call(method, name, version))

    async def _stay_connected(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with suppress(OSError):
                _, connection = await loop.create_unix_connection(
                    lambda: _EngineConnection(self), str(self._path)
                )
                while not connection.lost.done():
                    await asyncio.wait([connection.lost], timeout=_COUNT_SECONDS)
                    self._send_counts()
            await asyncio.sleep(_RECONNECT_SECONDS)

    def _send_counts(self) -> None:
        # While the engine is lost, the counts stay here.
        if self._connection is not None:
            self._connection.send(ipc.Counts(self.metrics.counts.take(), self.metrics.in_flight))


class _EngineConnection(ipc.Connection):
    """The connection to an engine, with the runs and calls that end with it."""

    def __init__(self, client: EngineClient) -> None:
        super().__init__()
        self._client = client
        self._numbers = itertools.count(1)
        self._runs: dict[int, Run] = {}
        self._calls: dict[int, asyncio.Future[tuple[Any, Arrays]]] = {}
        self._registry = Registry()
        self._changes: list[NDArray[np.uint8]] = []
        self._refreshing = asyncio.Lock()
        # A refresh that has not begun.
        self._next_refresh: asyncio.Task[None] | None = None
        # Done once the connection has ended.
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The task that reads the last received updates.
        self.update: asyncio.Task[None] | None = None
        # Names of the models that these updates change.
        self.changing: set[str] = set()
        # As the engine's `keeps`.
        self.keeps: bool | None = None

    def submit(self, feeds: Arrays, *about: Any) -> Run:  # noqa: ANN401
        """Send windows, with the fields of `ipc.Submit` after its number."""
        if self.lost.done():
            raise EngineLostError(LOADING)
        number = next(self._numbers)
        self.send(ipc.Submit(number, *about), feeds)
        run = self._runs[number] = Run(partial(self._cancel, number))
        return run

    async def call(
        self, method: str, *arguments: object, arrays: Arrays = NO_ARRAYS
    ) -> tuple[Any, Arrays]:
        """Call a method of the engine, then wait for the updates that preceded its answer."""
        if self.lost.done():
            raise EngineLostError(LOADING)
        number = next(self._numbers)
        answer = self._calls[number] = self._loop.create_future()
        self.send(ipc.Call(number, method, arguments), arrays)
        try:
            found: tuple[Any, Arrays] = await answer
        finally:
            del self._calls[number]
        await self.updated()
        return found

    def refresh(self) -> asyncio.Task[None]:
        """Fetch all changes until now; callers that come during another call share the next one."""
        if self._next_refresh is None:
            self._next_refresh = asyncio.ensure_future(self._refresh())
        return self._next_refresh

    async def _refresh(self) -> None:
        async with self._refreshing:
            self._next_refresh = None
            with suppress(ServiceError):
                await self.call("refresh")

    async def updated(self, seconds: float | None = None) -> None:
        """Wait until the received updates are read."""
        if self.update is not None:
            await asyncio.wait([self.update], timeout=seconds)

    def received(self, message: ipc.Message, arrays: Arrays) -> None:
        if isinstance(message, ipc.Result):
            if run := self._runs.pop(message.number, None):
                run.submitted, run.began, run.ended = message.times
                run.loading, run.batch = message.loading, message.batch
                run.succeed(arrays)
        elif isinstance(message, ipc.Failed):
            self._fail(message.number, from_wire(message.error))
        elif isinstance(message, ipc.Answer):
            if (answer := self._calls.get(message.number)) and not answer.done():
                answer.set_result((message.value, arrays))
        elif isinstance(message, ipc.Keeping):
            self.keeps = message.keeps
        elif isinstance(message, (ipc.Learned, ipc.Forgotten)):
            self._client.learn(message, arrays)
        elif isinstance(message, ipc.Update):
            self.changing |= message.names
            self._changes.append(arrays["changes"])
            # Updates that come before it begins are read together.
            if len(self._changes) == 1:
                self.update = asyncio.ensure_future(self._update(self.update))

    def _fail(self, number: int, error: ServiceError) -> None:
        """Fail the run or the call of a number."""
        if run := self._runs.pop(number, None):
            run.fail(error)
        elif (answer := self._calls.get(number)) and not answer.done():
            answer.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.lost.set_result(None)
        self._client.lose(self)
        runs, self._runs = self._runs, {}
        for run in runs.values():
            run.fail(EngineLostError(_LOST))
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(EngineLostError(_LOST))

    def _cancel(self, number: int, run: Run) -> None:
        if self._runs.pop(number, None) is not None:
            self.send(ipc.Cancel(number))
        run.fail(CancelledError())

    async def _update(self, before: asyncio.Task[None] | None) -> None:
        """Read the changes on a thread: thousands of versions take a while."""
        if before is not None:
            await asyncio.wait([before])
        changes, self._changes = self._changes, []
        try:
            if not self.transport.is_closing():
                given = self._registry, changes, self
                self._registry = await asyncio.to_thread(self._client.models.read, *given)
        except Exception:
            # The engine sends all of it again on the next connection.
            _logger.exception("what the engine serves could not be read")
            self.close()
        else:
            if not self.transport.is_closing():
                self._client.serve(self, self._registry)
        if self.update is asyncio.current_task():
            self.update = None
            self.changing.clear()
