"""The engine as a process of its own: it runs models for doors that are connected to it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from foretell.service.arrays import Arrays
from foretell.service.engine.client import RAN, RUN, TEXT
from foretell.service.engine.engine import LocalEngine
from foretell.service.engine.ipc import (
    Frame,
    Kind,
    Peer,
    frame,
    pack,
    pack_document,
    unpack,
    unpack_document,
    unpack_names,
)
from foretell.service.engine.registry import Model, Pending, Registry
from foretell.service.engine.told import NOTHING, Told
from foretell.service.errors import ModelFailedError, NotReadyError, ServiceError, let_go, to_wire

_logger = logging.getLogger(__name__)

# How soon doors hear of what has changed by itself: a model that failed, a new version.
_LOOK_SECONDS = 0.1
# For doors to hear of a model that was loaded or unloaded on request.
_SEEN_SECONDS = 5.0
_POLL_SECONDS = 0.002
# For runs that are going on when the engine ends; a lost GPU's have failed by then.
_LAST_RUNS_SECONDS = 5.0
# Frames that are sent in one turn of the event loop.
_TOGETHER = 64

_Pieces = list[bytes | memoryview]


class EngineServer:
    """Serves doors.

    Args:
        engine: What they share.
    """

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self._doors: set[_Door] = set()
        self._number = 0
        # What doors were told last.
        self._snapshot: Registry | None = None
        self._telling = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._abouts: WeakKeyDictionary[Model, _Pieces] = WeakKeyDictionary()
        self._numbers = itertools.count(1)
        self._handles: WeakKeyDictionary[Model, int] = WeakKeyDictionary()
        self._models: WeakValueDictionary[int, Model] = WeakValueDictionary()
        self._done: deque[tuple[_Door, int, Pending]] = deque()
        self._woken = False
        self._closing = False
        self._loop = asyncio.get_running_loop()

    async def serve(self, listener: socket.socket, tick: Callable[[], bool]) -> None:
        """Serve until told to stop; what was accepted by then is still answered, within seconds.

        Args:
            listener: A Unix socket, listening.
            tick: Called every tenth of a second; says whether to go on.
        """
        # The socket's name is not this process' to remove: another one will take its place.
        options: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        server = await self._loop.create_unix_server(lambda: _Door(self), sock=listener, **options)
        while tick():
            await asyncio.sleep(_LOOK_SECONDS)
            changed = self._engine.repository.snapshot is not self._snapshot
            if changed and not self._telling.locked():
                self._begin_to_tell()
        self._closing = True
        end = self._loop.time() + _LAST_RUNS_SECONDS
        while self.busy and self._loop.time() < end:
            await asyncio.sleep(_POLL_SECONDS)
        server.close()
        for door in [*self._doors]:
            door.close()

    @property
    def doors(self) -> int:
        """How many are connected."""
        return len(self._doors)

    @property
    def busy(self) -> bool:
        """Whether any run is going on."""
        return any(door.runs for door in self._doors)

    def come(self, door: _Door) -> None:
        """A door has connected."""
        self._doors.add(door)
        self._begin_to_tell()

    def go(self, door: _Door) -> None:
        """A door is gone, and with it what waits for its clients."""
        self._doors.discard(door)
        runs, door.runs = door.runs, {}
        for run in runs.values():
            run.cancel()
        self._engine.metrics.elsewhere.pop(door, None)

    def take(self, door: _Door, come: Frame) -> None:
        """A frame of a door is here."""
        if come.kind == Kind.RUN:
            self._run(door, come)
        elif come.kind == Kind.CANCEL:
            if run := door.runs.pop(come.number, None):
                run.cancel()
        elif come.kind == Kind.COUNTS:
            (taken, in_flight), _ = unpack_document(come.body)
            self._engine.metrics.counts.merge(taken)
            self._engine.metrics.elsewhere[door] = in_flight
        elif come.kind == Kind.SEEN:
            door.seen = come.number
        else:
            door.begin(self._answer(door, come.number, *unpack_document(come.body)[0]))

    def _run(self, door: _Door, come: Frame) -> None:
        deadline, handle, admitted, named = RUN.unpack_from(come.body)
        model = self._models.get(handle)
        try:
            if self._closing:
                raise NotReadyError("the engine is stopping")
            if model is None:
                raise NotReadyError("the model was unloaded")
            arrays = RUN.size + named
            attention = unpack_names(come.body[RUN.size : arrays]) if named else ()
            feeds = unpack(come.body, arrays)
            run = model.submit(feeds, attention=attention, deadline=deadline, admitted=admitted)
        except ServiceError as error:
            let_go(error)
            door.send(_error(come.number, error))
            return
        door.runs[come.number] = run
        run.add_done_callback(partial(self._finished, door, come.number))

    def _finished(self, door: _Door, number: int, run: Pending) -> None:
        """A run is done, on a worker's thread or this one."""
        self._done.append((door, number, run))
        # Those that are done until the loop gets to it need no wake of their own.
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._woken = False
        while self._done:
            door, number, run = self._done.popleft()
            # What is not there any more was cancelled.
            if door.runs.pop(number, None) is None:
                continue
            try:
                ran = RAN.pack(run.submitted, run.began, run.ended, run.loading, run.batch)
                told = frame(Kind.OUTPUTS, number, ran, *pack(run.result()))
            except ServiceError as error:
                let_go(error)
                if isinstance(error, ModelFailedError) and error.__cause__ is not None:
                    _logger.error("model failed", exc_info=error)
                door.send(_error(number, error))
            except Exception:
                # The others are still to be told.
                _logger.exception("a run ended in a way that nobody foresaw")
                door.send(_error(number, ModelFailedError("the model could not be run")))
            else:
                door.send(told)

    async def _answer(self, door: _Door, number: int, method: str, given: list[Any]) -> None:
        """Do what a door asks for, and say what came of it."""
        engine = self._engine
        try:
            answer: object = None
            arrays: Arrays = {}
            match method:
                case "index":
                    answer = [
                        (entry.name, entry.version, entry.state, entry.reason)
                        for entry in await engine.index()
                    ]
                case "load":
                    await engine.load(*given)
                    await self._all_know()
                case "unload":
                    await engine.unload(*given)
                    await self._all_know()
                case "statistics":
                    arrays = _text(await engine.statistics(*given))
                case "render":
                    arrays = _text(await engine.render())
                case "example":
                    answer, arrays = await self._example(given[0])
        except ServiceError as error:
            let_go(error)
            door.send(_error(number, error))
        except Exception:
            _logger.exception("a call of a door failed for a reason nobody foresaw")
            door.send(_error(number, ServiceError("the server failed; its log says why")))
        else:
            door.send(frame(Kind.ANSWER, number, *pack_document(answer, arrays)))

    async def _example(self, handle: int) -> tuple[object, Arrays]:
        model = self._models.get(handle)
        if model is None:
            raise NotReadyError("the model was unloaded")
        found = await model.example()
        if found is None:
            return None, {}
        about = {"timestamps": found.timestamps.tolist(), "series": found.series}
        return about, {"history": found.history, "actual": found.actual}

    async def _all_know(self) -> None:
        """Wait until every door knows what is served now; a slow one is not waited for long."""
        # Others are told of it even if the door that asked is gone.
        await asyncio.shield(self._begin_to_tell())
        end = self._loop.time() + _SEEN_SECONDS
        while any(door.seen < door.sent for door in self._doors) and self._loop.time() < end:
            await asyncio.sleep(_POLL_SECONDS)

    def _begin_to_tell(self) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _tell(self) -> None:
        """Tell each door what is served, but what it knows."""
        async with self._telling:
            self._snapshot = self._engine.repository.snapshot
            doors = [*self._doors]
            try:
                # Of thousands of versions it takes a while.
                told, news = await asyncio.to_thread(self._news, doors)
            except Exception:
                # Until something changes; the doors go on with what they know.
                _logger.exception("the doors could not be told what is served")
                return
            for door, frames in zip(doors, news, strict=True):
                door.told = told
                if frames:
                    door.sent = self._number
                for start in range(0, len(frames), _TOGETHER):
                    for each in frames[start : start + _TOGETHER]:
                        door.send(each)
                    await asyncio.sleep(0)

    def _news(self, doors: Iterable[_Door]) -> tuple[Told, list[list[_Pieces]]]:
        """What is served, and for each door the frames that tell what it does not know of it."""
        snapshot = self._engine.repository.snapshot
        told = Told.of(snapshot, self._handle)
        models = {self._handle(model): model for model in snapshot.models}
        self._number += 1
        # Most know the same.
        written: dict[int, list[_Pieces]] = {}
        for known in (door.told for door in doors):
            if id(known) not in written and told != known:
                before = known or NOTHING
                new = sorted(told.handles - before.handles)
                frames = [frame(Kind.MODEL, each, *self._about(models[each])) for each in new]
                changes = pack_document(told.since(before), {})
                written[id(known)] = [*frames, frame(Kind.DIRECTORY, self._number, *changes)]
        return told, [written.get(id(door.told), []) for door in doors]

    def _about(self, model: Model) -> _Pieces:
        """What a door needs of a model, written once for all doors."""
        if model not in self._abouts:
            self._abouts[model] = pack_document(_about(model), _calibration(model))
        return self._abouts[model]

    def _handle(self, model: Model) -> int:
        if model not in self._handles:
            handle = self._handles[model] = next(self._numbers)
            self._models[handle] = model
        return self._handles[model]


class _Door(Peer):
    """The connection of a door.

    Attributes:
        runs: Those that are not done, by number.
        told: What it was told is served; None before it was told anything.
        sent: The number of the frame that said so.
        seen: That of the last one that it has read.
    """

    def __init__(self, host: EngineServer) -> None:
        super().__init__(host.take)
        self._host = host
        self._tasks: set[asyncio.Task[None]] = set()
        self.runs: dict[int, Pending] = {}
        self.told: Told | None = None
        self.sent = self.seen = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._host.come(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        for task in self._tasks:
            task.cancel()
        self._host.go(self)

    def begin(self, answering: Coroutine[Any, Any, None]) -> None:
        """Answer what takes time."""
        task = asyncio.ensure_future(answering)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _error(number: int, error: ServiceError) -> list[bytes | memoryview]:
    return frame(Kind.ERROR, number, *pack_document(to_wire(error), {}))


def _text(text: bytes) -> Arrays:
    return {TEXT: np.frombuffer(text, np.uint8)}


def _about(model: Model) -> dict[str, Any]:
    return {
        "manifest": model.manifest.model_dump(mode="json"),
        "provider": model.provider,
        "max_batch": model.max_batch,
    }


def _calibration(model: Model) -> Arrays:
    calibration = model.intervals.calibration
    if calibration is None:
        return {}
    return {"levels": calibration.levels, "offsets": calibration.offsets}
