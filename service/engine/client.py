"""The engine as an HTTP worker sees it that runs in a process of its own."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.calibration import Calibration
from foretell.bundle.example import Example
from foretell.bundle.manifest import Manifest
from foretell.service.arrays import Arrays
from foretell.service.engine import ipc
from foretell.service.engine.engine import Engine, Status
from foretell.service.engine.intervals import Intervals
from foretell.service.engine.registry import (
    LOADING,
    IndexEntry,
    Named,
    Registry,
    State,
    VersionState,
    unready,
)
from foretell.service.engine.run import Run
from foretell.service.errors import (
    EngineLostError,
    NotReadyError,
    UnknownModelError,
    UnknownVersionError,
    from_wire,
)
from foretell.service.metrics import Metrics

_logger = logging.getLogger(__name__)

_RECONNECT_SECONDS = 0.05
_COUNT_SECONDS = 1.0
# For an engine that is stuck to say whether it knows a model.
_REFRESH_SECONDS = 1.0
_LOST = "the process that runs the models has ended; another one takes its place"

_Found = TypeVar("_Found")


@dataclass(eq=False, repr=False)
class RemoteModel(Named):
    """A `registry.Model` that the engine runs."""

    # To the engine that loaded it, and the number of that load there.
    connection: _EngineConnection
    number: int
    manifest: Manifest
    intervals: Intervals
    provider: str
    max_batch: int
    on_demand: bool
    failure: str | None = None

    def submit(
        self,
        feeds: Arrays,
        *,
        attention: Sequence[str] = (),
        deadline: float,
        admitted: bool = False,
    ) -> Run:
        """Send windows to the engine; what it does not accept fails later.

        Raises:
            EngineLostError: the engine that loaded the model is lost.
        """
        return self.connection.submit(self.number, feeds, tuple(attention), deadline, admitted)

    async def example(self) -> Example | None:
        """The example window of the bundle, if it has one; ServiceError if unreadable just now."""
        series, arrays = await self.connection.call("example", self.number)
        return Example(series=series, **arrays) if arrays else None


class EngineClient(Engine):
    """The engine in another process; see `engine.Engine`.

    While that is lost, requests fail with `EngineLostError`, and this connects again and again.

    Args:
        path: Of the engine's socket.
        metrics: Where this process counts; the engine gets the counts once a second.
    """

    def __init__(self, path: Path, metrics: Metrics) -> None:
        self.metrics = metrics
        self._registry = Registry(unavailable=LOADING)
        self._path = path
        # Set once it is known what the engine serves.
        self._connection: _EngineConnection | None = None
        self._known = asyncio.Event()
        self._draining = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ready, self._report = False, self._registry.report
        # By what was sent of them: most models of the next engine are those of the last one.
        self.models: WeakValueDictionary[bytes, RemoteModel] = WeakValueDictionary()

    async def start(self) -> None:
        """Connect, and wait until it is known what the engine serves."""
        self._task = asyncio.create_task(self._stay_connected())
        await self._known.wait()

    @property
    def registry(self) -> Registry:
        """What is served now."""
        return self._registry

    @property
    def status(self) -> Status:
        """Whether the server can answer."""
        if self._draining.is_set():
            return Status.of(self.metrics, unready(self._report, "draining"), ready=False)
        return Status.of(self.metrics, self._report, ready=self._ready)

    async def find(self, lookup: Callable[[Registry], _Found]) -> _Found:
        """Look up what a request names."""
        # The engine may have loaded it for another worker: what it has sent is read first, and it
        # reports what is new before a request fails.
        if (connection := self._connection) is not None and connection.update is not None:
            await connection.updated(_REFRESH_SECONDS)
        try:
            return lookup(self._registry)
        except (UnknownModelError, UnknownVersionError, NotReadyError):
            pass
        with suppress(TimeoutError):
            async with asyncio.timeout(_REFRESH_SECONDS):
                await self._call("refresh")
        return lookup(self._registry)

    async def index(self) -> list[IndexEntry]:
        """Every version that is loaded, was refused, or is on disk."""
        index, _ = await self._call("index")
        return [IndexEntry(name, version, State(state), why) for name, version, state, why in index]

    async def statistics(self, name: str | None, version: str | None) -> bytes:
        """A `StatisticsReport` of what is loaded, as JSON."""
        self._send_counts()
        return bytes((await self._call("statistics", name, version))[0])

    async def render(self) -> bytes:
        """The metrics of all processes, in Prometheus' text format."""
        self._send_counts()
        return bytes((await self._call("render"))[0])

    async def close(self) -> None:
        """Send the last counts, and disconnect."""
        self.drain()
        self._send_counts()
        if self._task is not None:
            self._task.cancel()
        if self._connection is not None:
            self._connection.close()

    def serve(self, connection: _EngineConnection, registry: Registry) -> None:
        """What the engine at the other end of a connection serves is known."""
        self._registry, self._connection = registry, connection
        self._ready, self._report = registry.ready, registry.report
        self._known.set()

    def lose(self, connection: _EngineConnection) -> None:
        """A connection has ended."""
        if self._connection is connection:
            self._connection = None
            if not self._draining.is_set():
                _logger.error("the engine is lost")
        self._registry = Registry(unavailable=LOADING)
        self._ready, self._report = False, dict.fromkeys(self._report, LOADING)

    async def _call(self, method: str, *arguments: object) -> tuple[Any, Arrays]:
        if self._connection is None:
            raise EngineLostError(LOADING)
        return await self._connection.call(method, *arguments)

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
    """The connection to an engine, with all that ends with it.

    Attributes:
        lost: Is done once the connection has ended.
        update: Reads the last change of what is served, until that is known.
    """

    def __init__(self, client: EngineClient) -> None:
        super().__init__()
        self._client = client
        self._numbers = itertools.count(1)
        self._runs: dict[int, Run] = {}
        self._calls: dict[int, asyncio.Future[tuple[Any, Arrays]]] = {}
        self._loads: dict[int, RemoteModel] = {}
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.update: asyncio.Task[None] | None = None

    def submit(
        self,
        load: int,
        feeds: Arrays,
        attention: tuple[str, ...],
        deadline: float,
        admitted: bool,
    ) -> Run:
        """Send a run to the engine; see `RemoteModel.submit`."""
        if self.lost.done():
            raise EngineLostError(LOADING)
        number = next(self._numbers)
        self.send(ipc.Submit(number, load, deadline, admitted, attention), feeds)
        run = self._runs[number] = Run(partial(self._cancel, number))
        return run

    async def call(self, method: str, *arguments: object) -> tuple[Any, Arrays]:
        """Call a method of the engine, and know what it served when it answered.

        Raises:
            EngineLostError: the engine is lost.
            ServiceError: what the method raised.
        """
        if self.lost.done():
            raise EngineLostError(LOADING)
        number = next(self._numbers)
        answer = self._calls[number] = self._loop.create_future()
        self.send(ipc.Call(number, method, arguments))
        try:
            found: tuple[Any, Arrays] = await answer
        finally:
            del self._calls[number]
        await self.updated()
        return found

    async def updated(self, seconds: float | None = None) -> None:
        """Wait until the changes that have come are known."""
        if self.update is not None:
            await asyncio.wait([self.update], timeout=seconds)

    def received(self, message: ipc.Message, arrays: Arrays) -> None:
        if isinstance(message, ipc.Result):
            if run := self._runs.pop(message.number, None):
                run.submitted, run.began, run.ended = message.times
                run.loading, run.batch = message.loading, message.batch
                run.succeed(arrays)
        elif isinstance(message, ipc.Failed):
            error = from_wire(message.error)
            if run := self._runs.pop(message.number, None):
                run.fail(error)
            elif (answer := self._calls.get(message.number)) and not answer.done():
                answer.set_exception(error)
        elif isinstance(message, ipc.Answer):
            if (answer := self._calls.get(message.number)) and not answer.done():
                answer.set_result((message.value, arrays))
        elif isinstance(message, ipc.Update):
            self.update = asyncio.ensure_future(self._update(self.update, arrays["snapshot"]))

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

    async def _update(self, before: asyncio.Task[None] | None, frame: NDArray[np.uint8]) -> None:
        """Learn what is served, on a thread: of thousands of versions this takes a while."""
        if before is not None:
            await asyncio.wait([before])
        try:
            if not self.transport.is_closing():
                registry = await asyncio.to_thread(self._read, frame)
        except Exception:
            # The engine sends all of it again on the next connection.
            _logger.exception("what the engine serves could not be read")
            self.close()
        else:
            if not self.transport.is_closing():
                self._client.serve(self, registry)
        if self.update is asyncio.current_task():
            self.update = None

    def _read(self, frame: NDArray[np.uint8]) -> Registry:
        snapshot, loads = ipc.decode(frame.data)
        assert isinstance(snapshot, ipc.Snapshot)  # noqa: S101
        for key, load in loads.items():
            self._loads[int(key)] = self._model(int(key), load)
        kept: dict[int, RemoteModel] = {}
        versions: dict[str, dict[str, VersionState]] = {}
        for name, version, number, failure, refused, changing, wanted in snapshot.versions:
            model = None
            if number is not None:
                model = kept[number] = self._loads[number]
                model.failure = failure
            state = VersionState(model, refused, changing, wanted)
            versions.setdefault(name, {})[version] = state
        self._loads = kept
        registry = Registry(versions, snapshot.pins, not_ready=snapshot.not_ready)
        # Kept in it: of thousands of versions they, too, are for this thread.
        _ = registry.report, registry.ready, registry.defaults
        return registry

    def _model(self, number: int, load: NDArray[np.uint8]) -> RemoteModel:
        digest = sha256(load.data).digest()
        known = self._client.models.get(digest)
        if known is not None:
            model = replace(known, connection=self, number=number, failure=None)
        else:
            about, arrays = ipc.decode(load.data)
            assert isinstance(about, ipc.Load)  # noqa: S101
            read = Manifest.model_validate_json(about.manifest)
            calibration = None
            if arrays:
                calibration = Calibration(arrays["levels"].copy(), arrays["offsets"].copy())
            model = RemoteModel(
                self,
                number,
                read,
                Intervals(read, calibration),
                about.provider,
                about.max_batch,
                about.on_demand,
            )
        self._client.models[digest] = model
        return model
