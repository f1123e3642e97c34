"""A served model: its bundle, its queue, and its sessions, which come and go."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from foretell.bundle import calibration, layout
from foretell.bundle.errors import BundleError
from foretell.bundle.example import Example
from foretell.bundle.manifest import Manifest
from foretell.bundle.placement import misplacement
from foretell.bundle.private_copy import PrivateCopy
from foretell.service.arrays import HISTORY, Arrays
from foretell.service.engine.cache import CacheEntry, ModelCache
from foretell.service.engine.graphs import Graphs
from foretell.service.engine.intervals import Intervals
from foretell.service.engine.messages import without_folder
from foretell.service.engine.registry import Named
from foretell.service.engine.run import Run, own_error
from foretell.service.engine.runtime import Runtime
from foretell.service.engine.scheduler import Scheduler, check_rows
from foretell.service.engine.selftest import Health
from foretell.service.engine.served_bundle import ServedBundle
from foretell.service.engine.signatures import Signers
from foretell.service.engine.usage import Limits, Observer, Usage
from foretell.service.errors import ModelFailedError, NotReadyError, QueueFullError
from foretell.service.session import Session

# Attention values that one run may return, 64 MiB: a long context has far more than forecasts.
_ATTENTION_VALUES = 16 * 1024 * 1024
_STOP_SECONDS = 0.5
# Opening a graph keeps a core busy: after a failure not every request tries again.
_REOPEN_SECONDS = 10.0


@dataclass(frozen=True)
class Capacity:
    """Limits of a model's queue; with `max_batch` None the device's fastest batch is used."""

    max_batch: int | None
    max_windows: int
    max_bytes: int


class Model(Named):
    """A bundle and its queue, in which runs wait until the session that they need is open.

    With a cache only the manifest and the quantiles are read at first. The model is loaded when a
    run needs it, and may be evicted for others. Without a cache it is loaded at once, to stay. The
    graph of attention is opened in either case when a run needs it.

    Raises:
        BundleError: the bundle is damaged, breaks the contract, is not signed as `signers` require,
            or its probes give other forecasts on this device. `NoRoomError` without room for a
            copy.
        StartError: the device does not work.
    """

    def __init__(
        self,
        folder: Path,
        runtime: Runtime,
        scheduler: Scheduler,
        capacity: Capacity,
        observer: Observer,
        *,
        cache: ModelCache | None = None,
        signers: Signers | None = None,
        anywhere: bool = False,
    ) -> None:
        self.folder = folder
        self._bundle = ServedBundle(folder, signers, on_gpu=runtime.on_gpu)
        self.manifest = about = self._bundle.manifest
        self.digest = self._bundle.digest
        self.provider = runtime.provider
        # When a run last wanted it, on the clock of `time.monotonic`.
        self.used = 0.0
        self.on_demand = cache is not None
        self._cache = cache
        self._entry = CacheEntry(self)
        self._scheduler = scheduler
        self._observer = observer
        # Tests and sessions read only this copy: the folder may change.
        copy = self._copy = PrivateCopy(folder, about.files) if cache is None else None
        try:
            # The copy has found any damage by now: damage is reported before a wrong place.
            if not anywhere and (reason := misplacement(folder, about)):
                raise BundleError(reason)
            read = partial(self._bundle.read, copy=copy)
            self.intervals = Intervals(about, calibration.read(folder, about, read))
        except BaseException:
            if copy is not None:
                copy.close()
            raise
        self._graphs = Graphs(folder, about, runtime, scheduler, capacity.max_batch)
        self._sessions: dict[str, Session] = {}
        self._health = self._new_health()
        self._changing = threading.Lock()
        self._closed = False
        self._attention = _Attention()
        limits = Limits(self.max_batch, capacity.max_windows, capacity.max_bytes)
        self.queue = scheduler.add(self._run, limits, observer)
        if copy is not None:
            try:
                self._load(copy)
            except BaseException:
                self.queue.close(0.0)
                raise
        else:
            self._hold(layout.FORECAST_GRAPH)
            self._hold(layout.EXPLAIN_GRAPH)

    @property
    def usage(self) -> Usage:
        return self.queue.usage

    @property
    def max_batch(self) -> int:
        return self._graphs.max_batch

    @property
    def resident(self) -> bool:
        return bool(self._sessions)

    @property
    def failure(self) -> str | None:
        """Why it has failed or its last load failed; None while it works."""
        failure = self._health.failure
        if failure is None:
            return self._entry.refused or None
        return without_folder(failure, self.folder.parent.parent)

    def is_of_folder(self) -> bool:
        """Whether its folder still has the content that was opened; OSError if unreadable."""
        return self._bundle.is_of_folder()

    async def example(self) -> Example | None:
        """The example window of the bundle, if any; NotReadyError if the bundle was changed."""
        try:
            return await asyncio.to_thread(self._bundle.example, self._copy)
        except (BundleError, OSError) as error:
            raise NotReadyError("the model's bundle was changed since it was loaded") from error

    def submit(
        self,
        feeds: Arrays,
        *,
        attention: Sequence[str] = (),
        deadline: float,
        admitted: bool = False,
        background: bool = False,
    ) -> Run:
        """Queue windows, as `registry.Model`; the run may wait for a load."""
        if self._health.failure is not None:
            raise ModelFailedError("the model has failed; /readyz says why")
        if not background:
            # Models that only run in the background are evicted first.
            self.used = time.monotonic()
        graph = layout.EXPLAIN_GRAPH if attention else layout.FORECAST_GRAPH
        try:
            return self.queue.submit(
                graph,
                feeds,
                attention=attention,
                deadline=deadline,
                admitted=admitted,
                background=background,
            )
        except QueueFullError as error:
            if self._cache is not None and not self._sessions and not background:
                error.retry_after = self._cache.retry_after(self._entry)
            raise

    def run(self, feeds: Arrays) -> Arrays:
        """Run windows, `[windows, …]` by name, before waiting runs; the caller is its only user.

        ModelFailedError: a run fails. DeviceLostError: no GPU is left. NotReadyError: the scheduler
        is closed.
        """
        starts = iter(range(0, len(feeds[HISTORY]), self.max_batch))
        found: dict[int, Arrays] = {}

        def batches(thread: int) -> None:
            for start in starts:
                batch = {name: rows[start : start + self.max_batch] for name, rows in feeds.items()}
                found[start] = self._run(thread, layout.FORECAST_GRAPH, batch)
                check_rows(found[start], len(batch[HISTORY]))

        calls = self._scheduler.on_threads(batches)
        if not calls:
            raise own_error(self._scheduler.lost or NotReadyError("no inference thread is left"))
        wait(calls)
        for error in (call.exception() for call in calls):
            if error is not None:
                raise own_error(error)
        parts = [found[start] for start in sorted(found)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def load(self) -> None:
        """Load it into memory, or raise LoadFailedError."""
        if self._cache is not None:
            self._cache.load(self._entry)

    def open(self) -> list[Run]:
        """Load it for the cache and release held runs; returns those held for the first time."""
        if not self._bundle.has_manifest():
            raise BundleError(f"{self.folder}: was changed since it was read; load it again")
        return self._load(PrivateCopy(self.folder, self.manifest.files))

    def evict(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        self._hold(layout.FORECAST_GRAPH)
        self._health.close()
        # Accepted runs get the graph of attention that is being opened for them. Otherwise models
        # with requests for attention could evict each other without end.
        self.queue.wait_while_held(layout.EXPLAIN_GRAPH, timeout)
        with self._changing:
            copy, self._copy = self._copy, None
            self._hold(layout.EXPLAIN_GRAPH)
        self.queue.settle(max(0.0, end - time.monotonic()))
        self._close_sessions(copy, end)
        self._health = self._new_health()

    def close(self, timeout: float) -> None:
        """Refuse new runs, finish accepted ones within `timeout` seconds, and drop the rest."""
        end = time.monotonic() + timeout
        self._health.close()
        if self._cache is not None:
            self._cache.forget(self._entry)
        self.queue.close(timeout)
        with self._changing:
            self._closed = True
            copy, self._copy = self._copy, None
        self._close_sessions(copy, end)

    def _hold(self, graph: str) -> None:
        """Hold runs of a graph until the next load."""
        assert self._cache is not None  # noqa: S101 - others stay
        self.queue.pause(graph, partial(self._cache.want, self._entry))

    def _run(self, thread: int, graph: str, feeds: Arrays) -> Arrays:
        session = self._sessions.get(graph)
        if session is None:
            raise NotReadyError("the model was closed before this was run")
        try:
            outputs = session.run(feeds, thread)
        except ModelFailedError:
            self._health.failed()
            raise
        if self._health.failures:
            self._health.succeeded()
        return outputs

    def _load(self, copy: PrivateCopy) -> list[Run]:
        """Open and test a copy, and release held runs; returns those held for the first time."""
        session = None
        try:
            session, test = self._graphs.load(copy)
            with self._changing:
                if self._closed:
                    raise NotReadyError("the model is stopping")
                self._copy, self._test = copy, test
                self._sessions[layout.FORECAST_GRAPH] = session
                self.provider = session.provider
                self._attention = _Attention()
                waited = self.queue.note_loaded()
                self.queue.resume(layout.FORECAST_GRAPH, self.max_batch)
                self.queue.pause(layout.EXPLAIN_GRAPH, self._ask_for_attention)
        except BaseException:
            if session is not None:
                session.close()
            copy.close()
            raise
        return waited

    def _new_health(self) -> Health:
        name = f"{self.name}@{self.version}"
        return Health(name, partial(self._graphs.on_threads, self._replay), self._observer.changed)

    def _replay(self, thread: int) -> None:
        self._test.replay(self._sessions[layout.FORECAST_GRAPH], thread)

    def _ask_for_attention(self) -> None:
        """Open the graph of attention, unless it is being opened; with the queues' lock.

        It is opened on the scheduler's extra thread: an inference thread would run nothing else
        meanwhile. All models share it, one at a time: each takes memory, and a CPU from the
        inference threads.
        """
        attention = self._attention
        if attention.is_opening:
            return
        if time.monotonic() < attention.retry_at:
            raise _not_opened() from BundleError(attention.failure)
        assert self._copy is not None  # noqa: S101 - it is loaded
        opening = partial(self._open_attention, attention, self._copy)
        # Set first: the attempt may already have failed when `beside` returns.
        attention.is_opening = True
        attention.opener = self._scheduler.beside(opening)

    def _open_attention(self, attention: _Attention, copy: PrivateCopy) -> None:
        session, failure = None, ""
        if copy is self._copy:
            try:
                session = self._graphs.open(layout.EXPLAIN_GRAPH, copy, self._test)
                self._test.replay(session)
            # A later attempt may find memory free, or a file readable.
            except Exception as error:
                # The error's traceback would keep the session alive.
                failure = str(error) or type(error).__name__
        with self._changing:
            if copy is self._copy:
                if failure:
                    attention.fail(failure)
                    refusal = _not_opened()
                    refusal.__cause__ = BundleError(failure)
                    self.queue.fail_held(refusal, graph=layout.EXPLAIN_GRAPH)
                elif session is not None:
                    self._sessions[layout.EXPLAIN_GRAPH], session = session, None
                    explained = max(1, _ATTENTION_VALUES // attention_values(self.manifest))
                    self.queue.resume(layout.EXPLAIN_GRAPH, min(explained, self.max_batch))
        # Outside the lock: a busy GPU may delay it.
        if session is not None:
            session.close()

    def _close_sessions(self, copy: PrivateCopy | None, end: float) -> None:
        with self._changing:
            sessions = list(self._sessions.values())
            # Objects that still hold this model must not hold the sessions' memory.
            self._sessions.clear()
        for session in sessions:
            session.stop()
        # A thread inside onnxruntime would abort the process when Python exits.
        self.queue.settle(_STOP_SECONDS)
        opener = self._attention.opener
        if opener is not None and not opener.cancel():
            wait([opener], max(_STOP_SECONDS, end - time.monotonic()))
        for session in sessions:
            session.close()
        if copy is not None and opener is not None:
            # The opener may still read the copy.
            opener.add_done_callback(lambda _: copy.close())
        elif copy is not None:
            copy.close()


@dataclass
class _Attention:
    """Whether the graph of attention is being opened, and how the last attempt ended."""

    is_opening: bool = False
    opener: Future[None] | None = None
    failure: str = ""
    retry_at: float = 0.0

    def fail(self, failure: str) -> None:
        self.failure = failure
        self.retry_at = time.monotonic() + _REOPEN_SECONDS
        self.is_opening = False


def _not_opened() -> ModelFailedError:
    return ModelFailedError("the model's attention graph could not be opened again")


def attention_values(manifest: Manifest) -> int:
    """1 plus the most values of attention that `explain.onnx` returns for a window."""
    return 1 + sum(sum(stage.sizes.values()) for stage in manifest.attention)
