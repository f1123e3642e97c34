"""The queues of models, with their limits; guarded by the lock of their root."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import NamedTuple

import numpy as np

from foretell.service.arrays import Arrays
from foretell.service.engine.fairness import GraphQueue, Node, Slice
from foretell.service.engine.root import Root
from foretell.service.engine.run import Run, own_error
from foretell.service.engine.usage import Limits, Observer, Usage
from foretell.service.errors import (
    DeadlineExceededError,
    NotReadyError,
    QueueFullError,
    ServiceError,
    TooLargeError,
)

MAX_RETRY_SECONDS = 60
_LATE = "the deadline passed before the forecast was ready"
_PAUSED = "the model is not in memory, and a run in the background does not load it"


class Batch(NamedTuple):
    """Windows that are run together; empty if all runs that were met are late."""

    queue: Queue
    graph: GraphQueue
    slices: list[Slice]
    windows: int
    # When it was taken, on the clock of `time.monotonic`, and the seconds charged in advance.
    taken: float
    expected: float
    background: bool = False


class Queue(Node[GraphQueue]):
    """The queue of one model, made by `Scheduler.add`; `running` counts its batches."""

    def __init__(
        self,
        root: Root,
        run_batch: Callable[[int, str, Arrays], Arrays],
        observer: Observer,
        limits: Limits,
    ) -> None:
        super().__init__(root)
        self.run_batch = run_batch
        self.observer = observer
        self.running = 0
        self.closing = False
        # Whether a thread waits for the end of its runs.
        self.awaited = False
        self._root = root
        self._limits = limits
        self._bytes = 0
        self._graphs: dict[str, GraphQueue] = {}
        # No waiting run has an earlier deadline.
        self._earliest = math.inf

    @property
    def usage(self) -> Usage:
        """Approximate current usage, and its limits."""
        return Usage(
            self.waiting + self.held, self._limits.windows, self._bytes, self._limits.bytes
        )

    @property
    def left(self) -> int:
        """Number of waiting windows and running batches."""
        return self.waiting + self.held + self.running

    def submit(
        self,
        graph: str,
        feeds: Arrays,
        *,
        attention: Sequence[str] = (),
        deadline: float,
        admitted: bool = False,
        background: bool = False,
    ) -> Run:
        """Queue at least one window, `[windows, …]` by input name; returns the run, a future.

        A run that waits at its deadline, on the clock of `time.monotonic`, never runs. It fails
        only once an inference thread or a full queue finds it, so the caller must watch the clock
        and cancel, which frees its windows at once. Attention outputs that are not named are
        dropped. An `admitted` run continues an accepted request: a full or closing queue does not
        refuse it. A `background` run is taken only while no other run of any queue waits, and its
        windows do not count here; it is not held, but refused.

        Raises:
            QueueFullError: the queue has no room for them; `TooLargeError` if it never will.
            NotReadyError: it is closed.
            DeviceLostError: no inference thread is left.
            ServiceError: the graph is paused, and its session cannot be opened now.
        """
        run = Run(self._cancel, graph, feeds, attention, deadline, background=background)
        root = self._root
        try:
            with root.lock:
                if self not in root.queues or (self.closing and not admitted):
                    raise NotReadyError("the model is stopping")
                if root.lost is not None:
                    raise own_error(root.lost)
                if background:
                    self._add_background(run)
                    return run
                is_full = (
                    self.waiting + self.held + run.windows > self._limits.windows
                    or self._bytes + run.bytes > self._limits.bytes
                )
                if is_full and not admitted:
                    self._make_room(run)
                (self._graphs.get(graph) or self._make(graph)).add(run)
                self._bytes += run.bytes
                self._earliest = min(self._earliest, deadline)
                root.wake(run.windows)
        finally:
            if root.ended:
                root.notify()
        return run

    def pause(self, graph: str, ask: Callable[[], object]) -> None:
        """Hold later runs of a graph; earlier ones are run.

        `ask` requests the session, for each held run; it may raise a `ServiceError`, which refuses
        the run. It is called under the lock: it must not wait, nor call the queue.
        """
        with self._root.lock:
            each = self._graphs.get(graph) or self._make(graph)
            each.ask = ask
            self.fail_background(NotReadyError(_PAUSED), graph)
            if each.held_runs:
                try:
                    ask()
                except ServiceError as error:
                    self._fail_held(error, graph)
        self._root.notify()

    def resume(self, graph: str, max_batch: int) -> None:
        """Run the held and later runs of a graph, in batches of at most `max_batch`."""
        with self._root.lock:
            each = self._graphs.get(graph) or self._make(graph)
            each.max_batch = max_batch
            each.resume()
            self._root.wake(self.waiting)
            if self.awaited:
                self._root.drained.notify_all()

    def fail_held(
        self, error: Exception, *, graph: str | None = None, before: float = math.inf
    ) -> list[Run]:
        """Fail held runs, of one graph or all, that were made at or before a time."""
        with self._root.lock:
            failed = self._fail_held(error, graph, before)
        self._root.notify()
        return failed

    @property
    def held_since(self) -> float:
        """When the oldest held run was made; infinity without held runs."""
        with self._root.lock:
            return min((_made(run) for run in self._held()), default=math.inf)

    def note_loaded(self) -> list[Run]:
        """Mark the held runs as loaded; returns those that are marked for the first time."""
        with self._root.lock:
            held, now = self._held(), time.monotonic()
            first = [run for run in held if not run.loading]
            for run in held:
                run.loading, run.submitted = now - _made(run), now
        return first

    def wait_while_held(self, graph: str, timeout: float) -> None:
        with self._root.lock:
            each = self._graphs.get(graph) or self._make(graph)
            self.awaited = True
            self._root.drained.wait_for(lambda: not each.held_runs, timeout)
            self.awaited = self.closing

    def settle(self, timeout: float) -> None:
        """Wait until all accepted runs but the held ones have ended."""
        with self._root.lock:
            self.awaited = True
            self._root.drained.wait_for(lambda: not (self.waiting or self.running), timeout)
            self.awaited = self.closing

    def close(self, timeout: float) -> None:
        """Refuse new runs and finish accepted ones; after `timeout` seconds the rest fails.

        A running batch is not interrupted: close again to wait for it.
        """
        self._root.drain([self], timeout, "the model stopped before this was run")

    def fail(self, error: Exception) -> None:
        """Fail all waiting runs; with the lock."""
        for run in self._runs():
            self.end(run, error)
        self.fail_background(error)

    def fail_background(self, error: Exception, graph: str | None = None) -> None:
        """Fail the waiting background runs, of one graph or all; with the lock."""
        for run in self._root.background.of(self, graph):
            self.end(run, error)

    def take(self, most: int) -> Batch:
        """The next batch, of at most `most` windows; at least one must wait; with the lock."""
        now = time.monotonic()
        graph = self.next()
        slices, late = graph.take(most, now)
        for run in late:
            self.end(run, DeadlineExceededError(_LATE))
        windows = sum([stop - start for _, start, stop in slices])
        graph.charge(windows * graph.pace)
        self.running += 1
        return Batch(self, graph, slices, windows, now, windows * graph.pace)

    def take_background(self, run: Run) -> Batch:
        """A batch of the next windows of a background run alone; with the lock."""
        now, graph, background = time.monotonic(), self._graphs[run.graph], self._root.background
        slices = []
        if run.deadline <= now:
            self.end(run, DeadlineExceededError(_LATE))
        else:
            slices.append((run, *background.take(run, graph.max_batch)))
        windows = sum([stop - start for _, start, stop in slices])
        background.running = True
        self.running += 1
        return Batch(self, graph, slices, windows, now, 0.0, background=True)

    def outputs_of(self, run: Run, part: Arrays) -> Arrays:
        """Arrays for the outputs of all parts of a split run; empty if it has ended."""
        with self._root.lock:
            if not (run.outputs or run.over):
                for name, rows in part.items():
                    run.outputs[name] = np.empty((run.windows, *rows.shape[1:]), rows.dtype)
                size = sum(rows.nbytes for rows in run.outputs.values())
                if not run.background:
                    run.bytes += size
                    self._bytes += size
            return run.outputs

    def finish(self, batch: Batch, error: BaseException | None) -> None:
        """Account for a batch that was delivered, or failed."""
        with self._root.lock:
            now = time.monotonic()
            for run, start, stop in batch.slices:
                run.began = min(run.began, batch.taken)
                run.ended = now
                run.batch = max(run.batch, batch.windows)
                run.delivered += stop - start
                if error is not None or run.delivered == run.windows:
                    self.end(run, error)
            if batch.background:
                self._root.background.running = False
                self._root.wake(min(1, len(self._root.background.runs)))
            elif batch.slices:
                batch.graph.charge(now - batch.taken - batch.expected)
                batch.graph.measure(batch.windows, now - batch.taken)
            self.running -= 1
            if self.awaited:
                self._root.drained.notify_all()

    def end(self, run: Run, error: BaseException | None) -> None:
        """End a run, unless it has ended; with the lock."""
        if run.over:
            return
        if error is None:
            run.over = True
        else:
            run.end(error)
        if run.background:
            self._root.background.end(run)
        else:
            self._bytes -= run.bytes
            if run.taken < run.windows:
                self._graphs[run.graph].remove(run)
        self._root.ended.append((run, self.observer))
        if self.awaited:
            self._root.drained.notify_all()

    def _cancel(self, run: Run) -> None:
        with self._root.lock:
            self.end(run, CancelledError())
        self._root.notify()

    def _add_background(self, run: Run) -> None:
        """Add a background run, after the late ones have ended; may raise as `submit`."""
        if (self._graphs.get(run.graph) or self._make(run.graph)).ask is not None:
            raise NotReadyError(_PAUSED)
        for late, queue in self._root.background.late():
            queue.end(late, DeadlineExceededError(_LATE))
        self._root.background.add(run, self)
        self._root.wake(1)

    def _make(self, graph: str) -> GraphQueue:
        self._graphs[graph] = GraphQueue(self, self._limits.batch)
        return self._graphs[graph]

    def _held(self, name: str | None = None) -> list[Run]:
        """The held runs, of one graph or all."""
        graphs = self._graphs.items()
        return [run for key, graph in graphs if name in (None, key) for run in graph.held_runs]

    def _runs(self) -> list[Run]:
        return [*self._held(), *(run for graph in self._graphs.values() for run in graph.runs)]

    def _fail_held(
        self, error: Exception, graph: str | None, before: float = math.inf
    ) -> list[Run]:
        failed = [run for run in self._held(graph) if _made(run) <= before]
        for run in failed:
            self.end(run, error)
        return failed

    def _make_room(self, run: Run) -> None:
        """End late runs to make room for a run, or raise QueueFullError or TooLargeError."""
        part = self._excess(run)
        if self._earliest <= (now := time.monotonic()):
            for one in self._runs():
                if one.deadline <= now:
                    self.end(one, DeadlineExceededError(_LATE))
            self._earliest = min((one.deadline for one in self._runs()), default=math.inf)
            part = self._excess(run)
        if part <= 0:
            return
        limits = self._limits
        message = (
            f"{self.waiting + self.held} windows are waiting and {run.windows} more do not fit: at "
            f"most {limits.windows} may wait, and hold {limits.bytes} bytes, where there are "
            f"{self._bytes} and {run.bytes} more"
        )
        if run.windows > limits.windows or run.bytes > limits.bytes:
            raise TooLargeError(message)
        seconds = sum(graph.waiting * graph.pace for graph in self._graphs.values())
        sharing = max(1, len(self._root.active))
        retry_after = max(1, math.ceil(min(part, 1.0) * seconds * sharing / self._root.threads))
        raise QueueFullError(message, retry_after=min(retry_after, MAX_RETRY_SECONDS))

    def _excess(self, run: Run) -> float:
        """The share of the queue that must end before a run fits; at 0 or less it fits."""
        windows, size = self.waiting + self.held, self._bytes
        return max(
            (windows + run.windows - self._limits.windows) / max(1, windows),
            (size + run.bytes - self._limits.bytes) / max(1, size),
        )


def _made(run: Run) -> float:
    """When a run was made, which may be before its model was loaded."""
    return run.submitted - run.loading
