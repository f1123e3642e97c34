"""Natural batching: whoever is free takes what waits; nothing is ever delayed to fill a batch.

The batcher counts windows, not requests: work of many windows is split over batches, and the rest
of a batch is filled from the work behind it. Rows of different graphs never share a batch.
"""

from __future__ import annotations

import copy
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from service.errors import (
    DeadlineExceededError,
    ModelFailedError,
    NotReadyError,
    QueueFullError,
    ServiceError,
)

Arrays = dict[str, NDArray[Any]]
Run = Callable[[str, Arrays], Arrays]

_LONGEST_RETRY = 60


class Observer(Protocol):
    """Told what the batcher does, from its worker threads."""

    def waited(self, seconds: float) -> None:
        """Work went from the queue into its first batch."""

    def ran(self, windows: int, seconds: float) -> None:
        """A batch was run."""


@dataclass(eq=False)
class _Work:
    graph: str
    feeds: Arrays
    windows: int
    deadline: float
    submitted: float
    future: Future[Arrays] = field(default_factory=Future)
    taken: int = 0
    delivered: int = 0
    parts: dict[int, Arrays] = field(default_factory=dict)

    @property
    def waiting(self) -> int:
        return self.windows - self.taken


class _Slice(NamedTuple):
    """Windows `start` to `stop` of some work, as part of a batch."""

    work: _Work
    start: int
    stop: int


class Batcher:
    """A bounded queue and the threads that empty it.

    Args:
        run: Runs a batch: graph name and `[batch, …]` arrays in, `[batch, …]` arrays out. Called
            from several threads at once when there are several workers.
        workers: Number of threads.
        max_batch: Most windows in a batch.
        max_queue: Most windows waiting.
        observer: Told of waits and batches.
        graph_limits: Most windows in a batch of a graph, where that is fewer.
    """

    def __init__(
        self,
        run: Run,
        *,
        workers: int,
        max_batch: int,
        max_queue: int,
        observer: Observer,
        graph_limits: Mapping[str, int] | None = None,
    ) -> None:
        self._run = run
        self._max_batch = max_batch
        self._graph_limits = graph_limits or {}
        self._max_queue = max_queue
        self._observer = observer
        self._changed = threading.Condition()
        self._queues: dict[str, deque[_Work]] = {}
        self._waiting = 0
        self._idle = 0
        self._closed = False
        self._window_seconds = 0.0
        self._threads = [
            threading.Thread(target=self._serve, name=f"batcher-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Windows in the queue."""
        return self._waiting

    def submit(self, graph: str, feeds: Arrays, *, deadline: float) -> Future[Arrays]:
        """Queue windows.

        Args:
            graph: What to run them through.
            feeds: `[windows, …]` by input name, at least one window.
            deadline: On the clock of `time.monotonic`; work still waiting then is dropped.

        Returns:
            A future of `[windows, …]` by output name. Cancelling it frees what still waits. It may
            fail with `DeadlineExceededError`, with `NotReadyError`, with a `ServiceError` that
            `run` raised, or with `ModelFailedError` because of anything else.

        Raises:
            QueueFullError: the windows do not fit the queue.
            NotReadyError: the batcher is closed.
        """
        windows = len(next(iter(feeds.values())))
        work = _Work(graph, feeds, windows, deadline, submitted=time.monotonic())
        with self._changed:
            if self._closed:
                raise NotReadyError("the server is stopping")
            self._check_room(windows)
            self._queues.setdefault(graph, deque()).append(work)
            self._waiting += windows
            self._changed.notify(windows)
        return work.future

    def check_room(self) -> None:
        """Find out early whether work can be submitted at all.

        Raises:
            QueueFullError: not even one window fits the queue.
        """
        with self._changed:
            self._check_room(1)

    def close(self, timeout: float) -> None:
        """Refuse new work, finish what was accepted, and stop the threads.

        Args:
            timeout: Seconds to finish; what is then still waiting fails with `NotReadyError`.
        """
        end = time.monotonic() + timeout
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        with self._changed:
            left = [work for queue in self._queues.values() for work in queue]
            self._queues.clear()
            self._waiting = 0
            for work in left:
                _fail(work, NotReadyError("the server stopped before this was run"))

    def _check_room(self, windows: int) -> None:
        if self._waiting + windows > self._max_queue:
            self._drop_abandoned()
        if self._waiting + windows > self._max_queue:
            raise QueueFullError(
                f"{self._waiting} windows are waiting and {windows} more do not fit: "
                f"at most {self._max_queue} may wait",
                retry_after=self._drain_seconds(),
            )

    def _drop_abandoned(self) -> None:
        """Free the places of work that was cancelled or has expired."""
        now = time.monotonic()
        for graph, queue in list(self._queues.items()):
            kept = deque(work for work in queue if not _is_over(work, now))
            del self._queues[graph]
            if kept:
                self._queues[graph] = kept
        self._waiting = sum(work.waiting for queue in self._queues.values() for work in queue)

    def _drain_seconds(self) -> int:
        seconds = math.ceil(self._waiting * self._window_seconds / len(self._threads))
        return min(max(seconds, 1), _LONGEST_RETRY)

    def _serve(self) -> None:
        while (batch := self._next()) is not None:
            self._process(batch)

    def _next(self) -> list[_Slice] | None:
        """The next batch, once there is one; None when closed and empty."""
        with self._changed:
            while True:
                if batch := self._take():
                    return batch
                if self._closed:
                    return None
                self._idle += 1
                self._changed.wait()
                self._idle -= 1

    def _take(self) -> list[_Slice]:
        """Take windows of the graph whose work has waited longest."""
        batch: list[_Slice] = []
        while not batch and (queue := self._oldest()):
            # Workers that are free get their share: on the CPU two small batches beat a large one.
            share = math.ceil(self._waiting / (1 + self._idle))
            limit = self._graph_limits.get(queue[0].graph, self._max_batch)
            room = min(share, limit, self._max_batch)
            now = time.monotonic()
            while queue and room:
                work = queue[0]
                taken = 0 if _is_over(work, now) else min(room, work.waiting)
                if taken:
                    batch.append(_Slice(work, work.taken, work.taken + taken))
                    work.taken += taken
                    room -= taken
                    self._waiting -= taken
                if not taken or not work.waiting:
                    self._waiting -= work.waiting
                    queue.popleft()
        return batch

    def _oldest(self) -> deque[_Work] | None:
        """The queue whose first work has waited longest; what nobody waits for is dropped."""
        now = time.monotonic()
        for graph, queue in list(self._queues.items()):
            while queue and _is_over(queue[0], now):
                self._waiting -= queue.popleft().waiting
            if not queue:
                del self._queues[graph]
        return min(self._queues.values(), key=lambda queue: queue[0].submitted, default=None)

    def _process(self, batch: list[_Slice]) -> None:
        """Run a batch; whatever goes wrong is told to those who wait, and the thread lives on."""
        try:
            for work in self._complete(batch):
                # Copies much, and others need the lock.
                outputs = _join([work.parts[start] for start in sorted(work.parts)])
                with self._changed:
                    _succeed(work, outputs)
        except Exception as error:
            with self._changed:
                for part in batch:
                    _fail(part.work, _own(error))

    def _complete(self, batch: list[_Slice]) -> list[_Work]:
        """Run a batch; returns the work that now has all its parts."""
        started = time.monotonic()
        for part in batch:
            if part.start == 0:
                self._observer.waited(started - part.work.submitted)
        outputs = self._run(batch[0].work.graph, _assemble(batch))
        windows = sum(part.stop - part.start for part in batch)
        seconds = time.monotonic() - started
        self._observer.ran(windows, seconds)
        first = 0
        with self._changed:
            self._window_seconds = _smoothed(self._window_seconds, seconds / windows)
            for work, start, stop in batch:
                last = first + stop - start
                work.parts[start] = {name: rows[first:last] for name, rows in outputs.items()}
                work.delivered += stop - start
                first = last
            return [work for work, _, _ in batch if work.delivered == work.windows]


def _smoothed(average: float, sample: float) -> float:
    return sample if average == 0 else 0.9 * average + 0.1 * sample


def _is_over(work: _Work, now: float) -> bool:
    """Whether nobody waits for the work any more; an expired one is told so."""
    if now >= work.deadline:
        _fail(work, DeadlineExceededError("the deadline passed while the request was waiting"))
    return work.future.done()


def _assemble(batch: list[_Slice]) -> Arrays:
    if len(batch) == 1:
        work, start, stop = batch[0]
        return {name: rows[start:stop] for name, rows in work.feeds.items()}
    return {
        name: np.concatenate([work.feeds[name][start:stop] for work, start, stop in batch])
        for name in batch[0].work.feeds
    }


def _join(parts: list[Arrays]) -> Arrays:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _own(error: Exception) -> ServiceError:
    """What one of several waiters is told: each raises it, which adds to its traceback."""
    if isinstance(error, ServiceError):
        own, cause = copy.copy(error), error.__cause__
    else:
        own, cause = ModelFailedError("the model could not be run"), error
    own.__cause__ = cause
    return own


def _succeed(work: _Work, outputs: Arrays) -> None:
    if not work.future.done() and work.future.set_running_or_notify_cancel():
        work.future.set_result(outputs)


def _fail(work: _Work, error: Exception) -> None:
    # The first failure of split work is its outcome; the future cannot take a second.
    if not work.future.done() and work.future.set_running_or_notify_cancel():
        work.future.set_exception(error)
