"""The engine as a door has it that is a process of its own."""

from __future__ import annotations

import asyncio
import itertools
import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from foretell.bundle.calibration import Calibration
from foretell.bundle.example import Example
from foretell.bundle.manifest import Manifest
from foretell.service.arrays import Arrays
from foretell.service.engine.engine import Status
from foretell.service.engine.intervals import Intervals
from foretell.service.engine.ipc import (
    Frame,
    Kind,
    Peer,
    frame,
    pack,
    pack_document,
    pack_names,
    unpack,
    unpack_document,
)
from foretell.service.engine.registry import (
    LOADING,
    IndexEntry,
    Named,
    Registry,
    State,
    VersionState,
    unready,
)
from foretell.service.engine.run import own_error
from foretell.service.engine.told import updated
from foretell.service.errors import EngineLostError, NotReadyError, ServiceError, from_wire
from foretell.service.metrics import Metrics

_logger = logging.getLogger(__name__)

# Of a run: its deadline, the model's handle, whether it was admitted, and bytes of the names of the
# attention outputs that are wanted, which follow.
RUN = struct.Struct("<dI?xH")
# Of its outputs: when it was submitted, began and ended, how long its model took to come, and the
# windows of its largest batch. A multiple of 16 bytes: arrays follow.
RAN = struct.Struct("<ddddQ8x")
# Of an answer that is one long text: the name of the array of its bytes.
TEXT = "text"

_RECONNECT_SECONDS = 0.05
_COUNT_SECONDS = 1.0


@dataclass(slots=True, eq=False, repr=False)
class RemoteRun:
    """A run that was sent to the engine; see `registry.Pending`. For the event loop alone."""

    _cancel: Callable[[], None] | None
    _callback: Callable[[Any], object] | None = None
    _outputs: Arrays | None = None
    _error: ServiceError | None = None
    submitted: float = 0.0
    began: float = 0.0
    ended: float = 0.0
    loading: float = 0.0
    batch: int = 0

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """See `Pending.add_done_callback`; one is enough."""
        self._callback = callback
        if self.done():
            callback(self)

    def done(self) -> bool:
        """See `Pending.done`."""
        return self._cancel is None

    def result(self) -> Arrays:
        """See `Pending.result`."""
        if self._error is not None:
            raise own_error(self._error)
        assert self._outputs is not None  # noqa: S101 - it is done
        return self._outputs

    def cancel(self) -> bool:
        """See `Pending.cancel`."""
        if self._cancel is None:
            return False
        self._cancel()
        self._cancel = None
        return True

    def succeed(self, body: memoryview) -> None:
        """Its outputs are here."""
        ran = RAN.unpack_from(body)
        self.submitted, self.began, self.ended, self.loading, self.batch = ran
        self._outputs = unpack(body, RAN.size)
        self._cancel = None
        if self._callback is not None:
            self._callback(self)

    def fail(self, error: ServiceError) -> None:
        """There will be none."""
        self._error = error
        self._cancel = None
        if self._callback is not None:
            self._callback(self)


@dataclass(eq=False, repr=False)
class RemoteModel(Named):
    """A version that the engine runs; see `registry.Model`.

    Attributes:
        engine: Takes its runs.
        link: To the process that it is in.
        handle: What that calls it.
        manifest: Of its bundle.
        intervals: Its quantiles.
        provider: What runs it.
        max_batch: Most windows run together.
        failure: Why it does not work any more, as the engine last said.
    """

    engine: EngineClient
    link: _Link
    handle: int
    manifest: Manifest
    intervals: Intervals
    provider: str
    max_batch: int
    failure: str | None = None
    # The engine says whether it is ready.
    on_demand = False

    def submit(
        self,
        feeds: Arrays,
        *,
        attention: Sequence[str] = (),
        deadline: float,
        admitted: bool = False,
    ) -> RemoteRun:
        """See `Model.submit`; what is not accepted fails later."""
        names = pack_names(attention) if attention else b""
        head = RUN.pack(deadline, self.handle, admitted, len(names))
        return self.engine.run(self.link, [head, names, *pack(feeds)])

    async def example(self) -> Example | None:
        """See `Model.example`."""
        # A handle means nothing to the next engine.
        if self.link.lost.done():
            raise EngineLostError(LOADING)
        told, arrays = await self.engine.call("example", self.handle)
        if told is None:
            return None
        return Example(timestamps=np.array(told["timestamps"]), series=told["series"], **arrays)


class EngineClient:
    """The engine in another process; see `local.Engine`.

    While there is none, requests are refused with `EngineLostError`, and it is looked for again and
    again.

    Args:
        path: The socket it listens on.
        metrics: Where this door counts; the engine is told once a second.
    """

    def __init__(self, path: Path, metrics: Metrics) -> None:
        self.metrics = metrics
        self._path = path
        self._link: _Link | None = None
        self._runs: dict[int, RemoteRun] = {}
        self._calls: dict[int, asyncio.Future[memoryview]] = {}
        # Those of them that a server which stops does not wait for.
        self._changes: set[int] = set()
        self._numbers = itertools.count(1)
        # What this engine served, or the last one until another tells what it does.
        self._served: _Served | None = None
        # Models by what was told of them, which the next engine tells again of most.
        self._read_before: WeakValueDictionary[bytes, RemoteModel] = WeakValueDictionary()
        self._known = asyncio.Event()
        self._draining = False
        self._task: asyncio.Task[None] | None = None
        self.registry = Registry(unavailable=LOADING)
        # Whether the engine is ready, and what it reports.
        self._status: tuple[bool, Mapping[str, str]] = False, {}

    async def start(self) -> None:
        """Connect, and wait until it is known what is served."""
        self._task = asyncio.create_task(self._stay_connected())
        await self._known.wait()

    @property
    def status(self) -> Status:
        """See `Engine.status`."""
        ready, models = self._status
        if self._draining:
            ready, models = False, unready(models, "draining")
        return Status.of(self.metrics, models, ready=ready)

    async def index(self) -> list[IndexEntry]:
        """See `Engine.index`."""
        found, _ = await self.call("index")
        return [IndexEntry(name, version, State(state), why) for name, version, state, why in found]

    async def load(self, name: str, version: str | None) -> None:
        """See `Engine.load`."""
        await self.call("load", name, version)

    async def unload(self, name: str, version: str | None) -> None:
        """See `Engine.unload`."""
        await self.call("unload", name, version)

    async def statistics(self, name: str | None, version: str | None) -> bytes:
        """See `Engine.statistics`."""
        self._tell_counts()
        _, arrays = await self.call("statistics", name, version)
        return arrays[TEXT].tobytes()

    async def render(self) -> bytes:
        """See `Engine.render`."""
        self._tell_counts()
        _, arrays = await self.call("render")
        return arrays[TEXT].tobytes()

    def drain(self) -> None:
        """See `Engine.drain`."""
        self._draining = True
        for number in self._changes:
            if not self._calls[number].done():
                self._calls[number].set_exception(NotReadyError("the server is stopping"))

    async def close(self) -> None:
        """See `Engine.close`: the engine goes on for other doors."""
        self.drain()
        self._tell_counts()
        if self._task is not None:
            self._task.cancel()
        if self._link is not None:
            self._link.close()

    def run(self, link: _Link, pieces: list[bytes | memoryview]) -> RemoteRun:
        """Send a run to the engine at the other end of a connection.

        Raises:
            EngineLostError: there is nobody to send it to.
        """
        # A handle means nothing to the next engine.
        if link.lost.done():
            raise EngineLostError(LOADING)
        number = next(self._numbers)
        told = frame(Kind.RUN, number, *pieces)
        run = self._runs[number] = RemoteRun(lambda: self._give_up(number))
        link.send(told)
        return run

    async def call(self, method: str, *given: object) -> tuple[Any, Arrays]:
        """Have the engine do something: what JSON can say of the answer, and its arrays.

        Raises:
            ServiceError: it cannot, or there is nobody to do it.
        """
        changes = method in ("load", "unload")
        if changes and self._draining:
            raise NotReadyError("the server is stopping")
        link, number = self._link, next(self._numbers)
        if link is None:
            raise EngineLostError(LOADING)
        answer = self._calls[number] = asyncio.get_running_loop().create_future()
        if changes:
            self._changes.add(number)
        link.send(frame(Kind.CALL, number, *pack_document([method, given], {})))
        try:
            return unpack_document(await answer)
        finally:
            # In this order: a signal may have `drain` look at both in between.
            self._changes.discard(number)
            del self._calls[number]

    def _give_up(self, number: int) -> None:
        if self._runs.pop(number, None) is not None and self._link is not None:
            self._link.send(frame(Kind.CANCEL, number))

    async def _stay_connected(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                _, link = await loop.create_unix_connection(lambda: _Link(self), str(self._path))
            except OSError:
                await asyncio.sleep(_RECONNECT_SECONDS)
                continue
            following = asyncio.ensure_future(self._follow(link))
            try:
                while not link.lost.done():
                    await asyncio.wait([link.lost], timeout=_COUNT_SECONDS)
                    self._tell_counts()
            finally:
                following.cancel()
            await asyncio.sleep(_RECONNECT_SECONDS)

    def _tell_counts(self) -> None:
        # While there is nobody to tell, what was counted stays here.
        if self._link is not None:
            told = (self.metrics.counts.take(), self.metrics.in_flight)
            self._link.send(frame(Kind.COUNTS, 0, *pack_document(told, {})))

    def take(self, link: _Link, come: Frame) -> None:
        """A frame of the engine is here."""
        if come.kind == Kind.OUTPUTS:
            if run := self._runs.pop(come.number, None):
                run.succeed(come.body)
        elif come.kind == Kind.ERROR:
            error = from_wire(unpack_document(come.body)[0])
            if run := self._runs.pop(come.number, None):
                run.fail(error)
            elif (answer := self._calls.get(come.number)) and not answer.done():
                answer.set_exception(error)
        elif come.kind == Kind.ANSWER:
            if (answer := self._calls.get(come.number)) and not answer.done():
                answer.set_result(come.body)
        else:
            link.unread.put_nowait(come)

    def lose(self, link: _Link) -> None:
        """The connection has ended."""
        if self._link is link:
            self._link = None
            if not self._draining:
                _logger.error("the engine is gone")
        self.registry = Registry(unavailable=LOADING)
        self._status = False, dict.fromkeys(self._status[1], LOADING)
        lost = "the process that runs the models has ended; another one takes its place"
        runs, self._runs = self._runs, {}
        for run in runs.values():
            run.fail(EngineLostError(lost))
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(EngineLostError(lost))

    async def _follow(self, link: _Link) -> None:
        """Learn what is served, on a thread: of thousands of versions it takes a while."""
        served = _Served()
        while not link.lost.done():
            come = [await link.unread.get()]
            while not link.unread.empty():
                come.append(link.unread.get_nowait())
            try:
                await asyncio.to_thread(self._read, link, served, come)
            except Exception:
                # All of it is told again to who connects again.
                _logger.exception("what the engine serves could not be read")
                link.close()
                return
            if come[-1].kind == Kind.DIRECTORY and not link.lost.done():
                # Only from here on is it known what could be run.
                self._link, self._served = link, served
                self.registry, self._status = served.registry, served.status
                link.send(frame(Kind.SEEN, come[-1].number))
                self._known.set()

    def _read(self, link: _Link, served: _Served, frames: list[Frame]) -> None:
        for come in frames:
            if come.kind == Kind.MODEL:
                served.models[come.number] = self._model(link, come)
            else:
                served.learn(unpack_document(come.body)[0])

    def _model(self, link: _Link, come: Frame) -> RemoteModel:
        digest = sha256(come.body).digest()
        same = self._read_before.get(digest)
        if same is None:
            model = self._new_model(link, come)
        else:
            model = replace(same, link=link, handle=come.number, failure=None)
        self._read_before[digest] = model
        return model

    def _new_model(self, link: _Link, come: Frame) -> RemoteModel:
        told, arrays = unpack_document(come.body)
        manifest = Manifest.model_validate(told["manifest"])
        calibration = None
        if arrays:
            calibration = Calibration(*(arrays[name].copy() for name in ("levels", "offsets")))
        return RemoteModel(
            engine=self,
            link=link,
            handle=come.number,
            manifest=manifest,
            intervals=Intervals(manifest, calibration),
            provider=told["provider"],
            max_batch=told["max_batch"],
        )


class _Served:
    """What an engine serves, as far as it was told; for one thread at a time.

    Attributes:
        models: By handle.
        registry: What is served.
        status: Whether the engine is ready, and what it reports.
    """

    def __init__(self) -> None:
        self.models: dict[int, RemoteModel] = {}
        self.registry = Registry(unavailable=LOADING)
        self.status: tuple[bool, Mapping[str, str]] = False, {}

    def learn(self, changes: dict[str, Any]) -> None:
        """Learn what has changed; see `Told.since`."""
        self.status = changes["ready"], updated(self.status[1], changes["report"])
        if not (changes["slots"] or self.registry.unavailable):
            return
        slots = {name: dict(versions) for name, versions in self.registry.versions.items()}
        for (name, version), told in changes["slots"]:
            versions = slots.setdefault(name, {})
            versions.pop(version, None)
            if told is not None:
                handle, failure, refused = told
                model = None if handle is None else self.models[handle]
                if model is not None:
                    model.failure = failure
                versions[version] = VersionState(model, refused)
        self.registry = Registry(
            {name: versions for name, versions in slots.items() if versions},
            changes["pins"],
        )
        kept = {*self.registry.models}
        self.models = {handle: model for handle, model in self.models.items() if model in kept}


class _Link(Peer):
    """The connection to the engine.

    Attributes:
        lost: Is done once it has ended.
        unread: Frames that tell what is served and were not read yet.
    """

    def __init__(self, engine: EngineClient) -> None:
        super().__init__(engine.take)
        self._engine = engine
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.unread: asyncio.Queue[Frame] = asyncio.Queue()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._engine.lose(self)
        self.lost.set_result(None)
