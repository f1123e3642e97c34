"""The engine in a process of its own: it runs models for the connected HTTP workers."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from foretell.service.arrays import Arrays
from foretell.service.engine import ipc
from foretell.service.engine.engine import LocalEngine
from foretell.service.engine.learned import Key, Offsets
from foretell.service.engine.registry import Model, Registry
from foretell.service.engine.run import Run
from foretell.service.errors import ModelFailedError, NotReadyError, ServiceError, let_go, to_wire

_logger = logging.getLogger(__name__)

# How often the engine looks for changes to send to workers, such as a failed model.
_LOOK_SECONDS = 0.1
# Time to write the registry to every worker after a load or unload.
_WRITE_SECONDS = 5.0
_POLL_SECONDS = 0.002
# Time for current runs when the engine ends; runs of a lost GPU have failed by then.
_LAST_RUNS_SECONDS = 5.0

_Pieces = list[bytes | memoryview]


class EngineServer:
    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.closing = False
        self._workers: set[_WorkerConnection] = set()
        self._publishing = asyncio.Lock()
        # A publish that has not begun; at most one besides the current one.
        self._next: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        # Number and frame of each load, an `ipc.Load` that is encoded once for all workers.
        self._loads: WeakKeyDictionary[Model, tuple[int, NDArray[np.uint8]]] = WeakKeyDictionary()
        # Includes unloaded models that still answer requests.
        self._models: WeakValueDictionary[int, Model] = WeakValueDictionary()
        self._ended: deque[tuple[_WorkerConnection, int, Run]] = deque()
        self._woken = False
        self._keeps = engine.keeps
        self._loop = asyncio.get_running_loop()
        engine.learned.listeners.append(self._send_learned)

    async def serve(self, listener: socket.socket, tick: Callable[[], bool]) -> None:
        """Serve until `tick` returns False, then answer accepted runs for a few seconds.

        `tick` is called every tenth of a second.
        """
        # The parent owns the socket's name: the next engine listens on it, too.
        options: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        server = await self._loop.create_unix_server(
            lambda: _WorkerConnection(self), sock=listener, **options
        )
        while tick():
            await asyncio.sleep(_LOOK_SECONDS)
            self._send_keeping()
            if self._engine_changed:
                self._start_publishing()
        self.closing = True
        end = self._loop.time() + _LAST_RUNS_SECONDS
        while self.busy and self._loop.time() < end:
            await asyncio.sleep(_POLL_SECONDS)
        server.close()
        for worker in [*self._workers]:
            worker.close()

    @property
    def workers(self) -> int:
        return len(self._workers)

    @property
    def busy(self) -> bool:
        return any(worker.runs for worker in self._workers)

    def connect(self, worker: _WorkerConnection) -> None:
        self._workers.add(worker)
        worker.send(ipc.Keeping(self._keeps))
        for key, offsets in self.engine.learned.items():
            worker.send(*_learned(key, offsets))
        self._start_publishing()

    def _send_keeping(self) -> None:
        """Tell the workers whether the ledger takes forecasts, if that has changed."""
        if self._keeps is not self.engine.keeps:
            self._keeps = self.engine.keeps
            for worker in self._workers:
                worker.send(ipc.Keeping(self._keeps))

    def _send_learned(self, key: Key, offsets: Offsets | None) -> None:
        """Send new offsets to the workers, or None for forgotten ones; called on any thread."""

        def send() -> None:
            for worker in self._workers:
                worker.send(*_learned(key, offsets))

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(send)

    def disconnect(self, worker: _WorkerConnection) -> None:
        """Remove a lost worker, and cancel its runs."""
        self._workers.discard(worker)
        runs, worker.runs = worker.runs, {}
        for run in runs.values():
            run.cancel()
        self.engine.metrics.elsewhere.pop(worker, None)

    def find(self, number: int) -> Model:
        """The model of a load; NotReadyError if it was unloaded or the engine is stopping."""
        if self.closing:
            raise NotReadyError("the engine is stopping")
        model = self._models.get(number)
        if model is None:
            raise NotReadyError("the model was unloaded")
        return model

    def ended(self, worker: _WorkerConnection, number: int, run: Run) -> None:
        """Queue the result of an ended run; called on an inference thread or this one."""
        self._ended.append((worker, number, run))
        # One wake-up serves all runs that end before the loop handles it.
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._send_results)

    def _send_results(self) -> None:
        self._woken = False
        while self._ended:
            worker, number, run = self._ended.popleft()
            # A missing run was cancelled.
            if worker.runs.pop(number, None) is not None:
                worker.send_result(number, run)

    async def call(
        self, method: str, arguments: Sequence[Any], given: Arrays
    ) -> tuple[Any, Arrays]:
        """Call a method of the engine for a worker; returns a value and arrays."""
        engine = self.engine
        match method:
            case "index":
                index = await engine.index()
                return [(each.name, each.version, each.state, each.reason) for each in index], {}
            case "load" | "unload":
                await (engine.load if method == "load" else engine.unload)(*arguments)
                await self._publish_now()
            case "refresh":
                await asyncio.shield(self._start_publishing())
            case "statistics":
                return await engine.statistics(*arguments), {}
            case "render":
                return await engine.render(), {}
            case "ledger":
                return await engine.ledger(*arguments, arrays=given)
            case "example":
                example = await self.find(*arguments).example()
                if example is not None:
                    parts = vars(example).items()
                    arrays = {name: each for name, each in parts if isinstance(each, np.ndarray)}
                    return example.series, arrays
        return None, {}

    @property
    def _engine_changed(self) -> bool:
        snapshot = self.engine.repository.snapshot
        return any(worker.published is not snapshot for worker in self._workers)

    async def _publish_now(self) -> None:
        """Write the registry to every worker, waiting a few seconds at most for a stuck one."""
        # The other workers get the update even if the calling one is lost meanwhile.
        await asyncio.shield(self._start_publishing())
        end = self._loop.time() + _WRITE_SECONDS
        while self._loop.time() < end and any(
            worker.transport.get_write_buffer_size() for worker in self._workers
        ):
            await asyncio.sleep(_POLL_SECONDS)

    def _start_publishing(self) -> asyncio.Task[None]:
        """Publish the registry after the current publish, if any."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._publish())
            self._tasks.add(self._next)
            self._next.add_done_callback(self._tasks.discard)
        return self._next

    async def _publish(self) -> None:
        async with self._publishing:
            self._next = None
            registry = self.engine.repository.snapshot
            behind = [worker for worker in self._workers if worker.published is not registry]
            if not behind:
                return
            for worker in behind:
                worker.published = registry
            try:
                # With thousands of versions this takes a while.
                sent, updates = await asyncio.to_thread(self._updates, registry, behind)
            except Exception:
                # The workers keep their registry until something changes.
                _logger.exception("what is served could not be sent to the HTTP workers")
                return
            for worker, update in updates:
                worker.sent = sent
                worker.write(update)

    def _updates(
        self, registry: Registry, workers: Sequence[_WorkerConnection]
    ) -> tuple[_Served, list[tuple[_WorkerConnection, _Pieces]]]:
        """The served versions, and the message for each worker that lacks them."""
        loads: dict[int, NDArray[np.uint8]] = {}
        versions: dict[tuple[str, str], tuple[Any, ...]] = {}
        for name, states in registry.versions.items():
            for version, state in states.items():
                number = failure = None
                if state.model is not None:
                    number, loads[number] = self._load(state.model)
                    failure = state.model.failure
                fields = state.refused, state.changing, state.wanted
                versions[name, version] = (number, failure, *fields)
        served = _Served(versions, {**registry.pins}, {**registry.challengers}, registry.not_ready)
        # Most workers have the same state.
        written: dict[int, _Pieces] = {}
        updates = []
        for worker in workers:
            if worker.sent == served:
                continue
            if id(worker.sent) not in written:
                written[id(worker.sent)] = _update(served, worker.sent, loads)
            updates.append((worker, written[id(worker.sent)]))
        return served, updates

    def _load(self, model: Model) -> tuple[int, NDArray[np.uint8]]:
        if model not in self._loads:
            frame = b"".join(ipc.encode(*_load(model)))
            self._loads[model] = next(self._numbers), np.frombuffer(frame, np.uint8)
            self._models[self._loads[model][0]] = model
        return self._loads[model]


class _Served(NamedTuple):
    """The served versions, each with its fields of `ipc.Changes`."""

    versions: Mapping[tuple[str, str], tuple[Any, ...]]
    pins: dict[str, str]
    challengers: dict[str, tuple[str, float]]
    not_ready: str


class _WorkerConnection(ipc.Connection):
    def __init__(self, server: EngineServer) -> None:
        super().__init__()
        self._server = server
        self._tasks: set[asyncio.Task[None]] = set()
        self.runs: dict[int, Run] = {}
        # The last published registry, which may not have reached the worker, and the last sent
        # state.
        self.published: Registry | None = None
        self.sent: _Served | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._server.connect(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        for task in self._tasks:
            task.cancel()
        self._server.disconnect(self)

    def received(self, message: ipc.Message, arrays: Arrays) -> None:
        if isinstance(message, ipc.Submit):
            self._submit(message, arrays)
        elif isinstance(message, ipc.Cancel):
            if run := self.runs.pop(message.number, None):
                run.cancel()
        elif isinstance(message, ipc.Counts):
            metrics = self._server.engine.metrics
            metrics.counts.merge(message.taken)
            metrics.elsewhere[self] = message.in_flight
        elif isinstance(message, ipc.Call):
            task = asyncio.ensure_future(self._call(message, arrays))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif isinstance(message, ipc.Remember):
            self._server.engine.remember(message, arrays)

    def send_result(self, number: int, run: Run) -> None:
        try:
            times = (run.submitted, run.began, run.ended)
            result = ipc.Result(number, times, run.loading, run.batch)
            self.send(result, run.result())
        except Exception as error:
            if isinstance(error, ModelFailedError) and error.__cause__ is not None:
                _logger.error("model failed", exc_info=error)
            self._fail(number, error, ModelFailedError("the model could not be run"))

    def _submit(self, message: ipc.Submit, feeds: Arrays) -> None:
        try:
            run = self._server.find(message.model).submit(
                feeds,
                attention=message.attention,
                deadline=message.deadline,
                admitted=message.admitted,
                background=message.background,
            )
        except Exception as error:
            self._fail(message.number, error, ModelFailedError("the model could not be run"))
            return
        self.runs[message.number] = run
        run.add_done_callback(partial(self._server.ended, self, message.number))

    async def _call(self, call: ipc.Call, given: Arrays) -> None:
        try:
            value, arrays = await self._server.call(call.method, call.arguments, given)
            self.send(ipc.Answer(call.number, value), arrays)
        except Exception as error:
            self._fail(call.number, error, ServiceError("the server failed; its log says why"))

    def _fail(self, number: int, error: Exception, unexpected: ServiceError) -> None:
        """Send an error; unexpected errors are logged and sent as `unexpected`."""
        if isinstance(error, ServiceError):
            let_go(error)
        else:
            _logger.error("unexpected", exc_info=error)
            error = unexpected
        try:
            self.send(ipc.Failed(number, to_wire(error)))
        except Exception:
            _logger.exception("an error could not be sent")
            self.send(ipc.Failed(number, to_wire(unexpected)))


def _learned(key: Key, offsets: Offsets | None) -> tuple[ipc.Message, Arrays]:
    if offsets is None:
        return ipc.Forgotten((*key,)), {}
    calibration = offsets.calibration
    arrays: Arrays = {"levels": calibration.levels, "offsets": calibration.offsets}
    return ipc.Learned((*key,), offsets.origins, offsets.stored), arrays


def _update(
    served: _Served, sent: _Served | None, loads: Mapping[int, NDArray[np.uint8]]
) -> _Pieces:
    """The message for workers whose last state is `sent`."""
    known = sent.versions if sent is not None else {}
    changed = {key: each for key, each in served.versions.items() if known.get(key) != each}
    removed = [key for key in known if key not in served.versions]
    new = {number for key, (number, *_) in changed.items() if known.get(key, (None,))[0] != number}
    changes = ipc.Changes([(*key, *each) for key, each in changed.items()], removed, *served[1:])
    arrays = {str(number): loads[number] for number in new if number is not None}
    frame = np.frombuffer(b"".join(ipc.encode(changes, arrays)), np.uint8)
    names = {name for name, _ in (*changed, *removed)}
    return ipc.encode(ipc.Update(names), {"changes": frame})


def _load(model: Model) -> tuple[ipc.Load, Arrays]:
    """The message that describes a model to a worker."""
    # JSON, as integers of a manifest may have more than 64 bits.
    manifest = json.dumps(model.manifest.model_dump(mode="json")).encode()
    load = ipc.Load(manifest, model.digest, model.provider, model.max_batch, model.on_demand)
    calibration = model.intervals.calibration
    if calibration is None:
        return load, {}
    return load, {"levels": calibration.levels, "offsets": calibration.offsets}
