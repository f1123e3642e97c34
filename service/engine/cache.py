"""The models in memory, if not all of them fit: the least recently used one is evicted."""

from __future__ import annotations

import gc
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Protocol

from foretell.bundle.errors import NoRoomError
from foretell.service.engine.limits import Memory, return_free_memory
from foretell.service.engine.messages import without_folder
from foretell.service.engine.queues import MAX_RETRY_SECONDS, Queue
from foretell.service.engine.registry import Named
from foretell.service.engine.run import Run
from foretell.service.errors import (
    LoadFailedError,
    ModelLoadingError,
    NotReadyError,
    ShortageError,
)
from foretell.service.metrics import Metrics

_logger = logging.getLogger(__name__)

# The pause after a load that failed; twice as long each time.
_FIRST_SECONDS, _LONGEST_SECONDS = 1.0, 60.0
# The weight of earlier loads, next to the latest, in the mean.
_DECAY = 0.8


class Evictable(Named, Protocol):
    """A model that a cache loads and evicts."""

    folder: Path
    queue: Queue
    # When a run last wanted it, on the clock of `time.monotonic`.
    used: float

    @property
    def failure(self) -> str | None:
        """Why it does not work; None while it works."""

    def open(self) -> list[Run]:
        """Load it and release the held runs; returns those held for the first time."""

    def evict(self, timeout: float) -> None:
        """Finish accepted runs within `timeout` seconds; later runs load it again."""


class CacheEntry:
    """A cache's record of a model; it only changes under the cache's lock."""

    def __init__(self, model: Evictable) -> None:
        self.model = model
        # The pending or current load; its result is the reason for a failure, or empty.
        self.load: Future[str] | None = None
        # Why the last load failed, and whether the next may succeed with the same bundle.
        self.refused = ""
        self.may_pass = False
        self.closed = False
        # Seconds that its last load took.
        self.seconds: float | None = None
        # Seconds from the last failed load to the next attempt, and the time of that attempt.
        self.pause = 0.0
        self.retry_at = 0.0
        # When to look for runs that have waited too long.
        self.look_at = math.inf

    def __str__(self) -> str:
        return f"{self.model.name}@{self.model.version}"


class ModelCache:
    """The models in memory; a thread loads the models that runs wait for, one after another.

    Before a load the cache evicts the least recently used models, idle ones first. An evicted model
    finishes its accepted runs within `drain_seconds`. At most `most` models are in memory. A run
    waits `wait_seconds` for its model; after that the load goes on.
    """

    def __init__(
        self,
        memory: Memory,
        metrics: Metrics,
        *,
        most: int | None,
        wait_seconds: float,
        drain_seconds: float,
    ) -> None:
        self._memory = memory
        self._metrics = metrics
        self._most = math.inf if most is None else most
        self._wait_seconds = wait_seconds
        self._drain_seconds = drain_seconds
        # Held briefly, also by threads that hold the queues' lock: no queue is called under it.
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        # When to look for runs that have waited too long, with the entry of their model; earliest
        # first.
        self._looks: list[tuple[float, int, CacheEntry]] = []
        self._numbers = count()
        self._looks_changed = threading.Condition(lock)
        # Models to load, in the order in which runs first wanted them.
        self._wanted: OrderedDict[CacheEntry, None] = OrderedDict()
        self._present: set[CacheEntry] = set()
        self._began = 0.0
        self._mean = 0.0
        self._stopped = False
        # Held while a model is opened, so that memory is counted once.
        self._opening = threading.Lock()
        self._loader = threading.Thread(target=self._serve, name="load", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name="load-waits", daemon=True)
        self._loader.start()
        self._watcher.start()

    @contextmanager
    def room(self, folder: Path) -> Iterator[None]:
        """Evict models for one that this context opens, to stay; LoadFailedError if full."""
        with self._opening:
            self._make_room(folder)
            yield

    def want(self, entry: CacheEntry) -> None:
        """Request the load of a model, or raise NotReadyError; called with the queues' lock."""
        with self._changed:
            self._check_open(entry)
            if entry.load is None:
                if (pause := entry.retry_at - time.monotonic()) > 0:
                    raise _refusal(entry, pause)
                self._request(entry)

    def load(self, entry: CacheEntry) -> None:
        """Wait until a model is in memory; a failed model is loaded again."""
        if entry in self._present and entry.model.failure:
            with self._opening:
                self._evict(entry)
        with self._changed:
            self._check_open(entry)
            entry.model.used = time.monotonic()
            if entry in self._present:
                return
            load = entry.load or self._request(entry)
        if reason := load.result():
            raise ShortageError(reason) if entry.may_pass else LoadFailedError(reason)
        with self._changed:
            self._check_open(entry)

    def forget(self, entry: CacheEntry) -> None:
        """Never load a model again, as it is closed; runs that wait for it fail."""
        with self._changed:
            entry.closed = True
            is_present = entry in self._present
            self._present.discard(entry)
        if not is_present:
            entry.model.queue.fail_held(NotReadyError("the model is stopping"))

    def retry_after(self, entry: CacheEntry) -> int:
        """Whole seconds until a model should be loaded, estimated from earlier loads."""
        with self._changed:
            seconds = self._began - time.monotonic() if self._began else 0.0
            for each in self._wanted:
                seconds += self._mean if each.seconds is None else each.seconds
                if each is entry:
                    break
        return min(max(1, math.ceil(seconds)), MAX_RETRY_SECONDS)

    def stop(self) -> None:
        """Load nothing any more; runs that wait fail."""
        with self._changed:
            self._stopped = True
            entries = [*self._wanted]
            self._changed.notify_all()
            self._looks_changed.notify_all()
        for entry in entries:
            self._end(entry, "the server is stopping", NotReadyError("the server is stopping"))

    @property
    def going(self) -> bool:
        return self._loader.is_alive()

    def join(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        for thread in (self._watcher, self._loader):
            thread.join(max(0.0, end - time.monotonic()))

    def _check_open(self, entry: CacheEntry) -> None:
        if self._stopped or entry.closed:
            raise NotReadyError(f"the {'server' if self._stopped else 'model'} is stopping")

    def _request(self, entry: CacheEntry) -> Future[str]:
        """Add a model to the pending loads; with the lock."""
        entry.load = Future()
        self._wanted[entry] = None
        self._look(entry, time.monotonic() + self._wait_seconds)
        self._changed.notify_all()
        return entry.load

    def _look(self, entry: CacheEntry, at: float) -> None:
        """Set the one time to look for runs that have waited too long; with the lock."""
        entry.look_at = at
        heappush(self._looks, (at, next(self._numbers), entry))
        if self._looks[0][2] is entry:
            self._looks_changed.notify_all()

    def _look_for_oldest(self, entry: CacheEntry) -> None:
        """Look once the oldest run that waits for a load will have waited too long."""
        since = min(entry.model.queue.held_since, time.monotonic())
        with self._changed:
            if entry.load is not None:
                self._look(entry, since + self._wait_seconds)

    def _watch(self) -> None:
        """End waits that last too long."""
        while (entry := self._next_look()) is not None:
            self._expire(entry)
            del entry

    def _next_look(self) -> CacheEntry | None:
        """Wait until it is time to look at a model; None once the server is stopping."""
        with self._changed:
            while not self._stopped:
                pause = None
                if self._looks:
                    at, _, entry = self._looks[0]
                    pause = at - time.monotonic()
                    if pause <= 0:
                        heappop(self._looks)
                        if entry.look_at == at:
                            return entry
                        continue
                    del entry
                self._looks_changed.wait(pause)
        return None

    def _expire(self, entry: CacheEntry) -> None:
        queue, seconds = entry.model.queue, self._wait_seconds
        retry_after = self.retry_after(entry)
        error = ModelLoadingError(
            f"{entry} is being loaded, for longer than the {seconds:g} s that a request waits for "
            f"it; it should be there in {retry_after} s",
            param="model",
            retry_after=retry_after,
        )
        for run in queue.fail_held(error, before=time.monotonic() - seconds):
            if not run.loading:
                self._metrics.waited("expired", seconds)
        self._look_for_oldest(entry)

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._stopped)
                if self._stopped:
                    return
                entry = next(iter(self._wanted))
                self._began = time.monotonic()
            try:
                self._load(entry)
            # One bad bundle must not stop the others from being served.
            except Exception as error:
                self._refuse(entry, error)

    def _load(self, entry: CacheEntry) -> None:
        model = entry.model
        with self._opening:
            if entry.closed:
                self._end(entry, "")
                return
            self._make_room(model.folder)
            waited = model.open()
            seconds = time.monotonic() - self._began
            self._metrics.loaded(model.name, model.version, seconds)
            _logger.info("loaded %s (%s) in %.2f s, on demand", entry, model.digest, seconds)
            for run in waited:
                self._metrics.waited("loaded", run.loading)
            with self._changed:
                if not entry.closed:
                    self._present.add(entry)
                model.used = time.monotonic()
                entry.seconds = seconds
                self._mean = _DECAY * self._mean + (1 - _DECAY) * seconds if self._mean else seconds
                entry.retry_at, entry.pause = 0.0, 0.0
                self._note(entry, "")
                # Under the same lock: if the model is evicted next, runs need another load.
                self._end(entry, "")

    def _refuse(self, entry: CacheEntry, error: Exception) -> None:
        if entry.closed:
            self._end(entry, "")
            return
        model = entry.model
        message = str(error) or type(error).__name__
        _logger.error("could not load %s: %s", entry, message)
        self._metrics.refused(model.name, model.version)
        reason = without_folder(message, model.folder.parent.parent)
        with self._changed:
            entry.may_pass = isinstance(error, (OSError, NoRoomError))
            self._note(entry, reason)
            entry.pause = min(max(2 * entry.pause, _FIRST_SECONDS), _LONGEST_SECONDS)
            entry.retry_at = time.monotonic() + entry.pause
        self._end(entry, reason, _refusal(entry, entry.pause))

    def _note(self, entry: CacheEntry, refused: str) -> None:
        """Store why the last load failed, or empty; HTTP workers are only sent differences."""
        if entry.refused != refused:
            entry.refused = refused
            self._metrics.changed()

    def _end(self, entry: CacheEntry, reason: str, refusal: NotReadyError | None = None) -> None:
        """End a load; with a refusal the runs that wait for it fail."""
        with self._changed:
            load, entry.load = entry.load, None
            self._wanted.pop(entry, None)
            self._began = 0.0
            entry.look_at = math.inf
        if refusal is not None:
            now = time.monotonic()
            for run in entry.model.queue.fail_held(refusal):
                if not run.loading:
                    self._metrics.waited("refused", now - run.submitted)
        if load is not None:
            load.set_result(reason)

    def _make_room(self, folder: Path) -> None:
        """Evict models until a bundle fits, or raise LoadFailedError; with `_opening` held."""
        self._memory.check_alone(folder)
        while True:
            with self._changed:
                present = [*self._present]
            # Idle models come first.
            last = min(
                present,
                key=lambda entry: (entry.model.queue.usage.bytes > 0, entry.model.used),
                default=None,
            )
            if len(present) < self._most:
                try:
                    self._memory.check(folder)
                    return
                except LoadFailedError:
                    if last is None:
                        raise
            if last is not None:
                self._evict(last)
                self._metrics.evicted(last.model.name, last.model.version)
                _logger.info("evicted %s", last)

    def _evict(self, entry: CacheEntry) -> None:
        """Evict a model, unless it was closed meanwhile; with `_opening` held."""
        with self._changed:
            if entry not in self._present:
                return
            self._present.discard(entry)
        failure = entry.model.failure
        entry.model.evict(self._drain_seconds)
        # Unfinished runs have waited already.
        self._look_for_oldest(entry)
        if failure:
            self._metrics.changed()
        # The model is part of reference cycles, which would stay uncollected for hours.
        gc.collect()
        return_free_memory()


def _refusal(entry: CacheEntry, seconds: float) -> NotReadyError:
    return NotReadyError(
        f"{entry} could not be loaded; /readyz says why",
        param="model",
        retry_after=max(1, math.ceil(seconds)),
    )
