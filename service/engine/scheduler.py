"""Natural batching: a worker that is free takes what waits; nothing is delayed to fill a batch.

The batcher counts windows, not requests: work of many windows is split over batches, and the rest
of a batch is filled from other work. Only windows of the same graph of the same queue share one.
Queues have even shares of the workers' seconds, and the graphs of a queue even shares of its own.
"""

from __future__ import annotations

import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from types import MappingProxyType
from typing import NamedTuple
from weakref import WeakSet

import numpy as np

from foretell.service.arrays import Arrays, asked_for
from foretell.service.engine.queues import (
    GraphQueue,
    Observer,
    Share,
    Slice,
    Usage,
    assemble,
    check_rows,
)
from foretell.service.engine.run import Run, notify, own_error
from foretell.service.errors import (
    DeadlineExceededError,
    DeviceLostError,
    NotReadyError,
    QueueFullError,
    ServiceError,
    TooLargeError,
    kept,
)

RunBatch = Callable[[int, str, Arrays], Arrays]
_Call = tuple[Callable[[int], None], Future[None]]

_MAX_RETRY_SECONDS = 60
_LATE = "the deadline passed before the forecast was ready"


class Limits(NamedTuple):
    """Of a queue.

    Attributes:
        batch: Most windows in a batch.
        windows: Most windows waiting.
        bytes: Most bytes that work holds until it has its outcome.
        graphs: Most windows in a batch of a graph, where that is fewer.
    """

    batch: int
    windows: int
    bytes: int
    graphs: Mapping[str, int] = MappingProxyType({})


class Scheduler:
    """The threads that run every model of this process.

    Args:
        workers: How many run batches; their indices are from 0.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        # Guards all that workers and queues share; no code of others is called under it.
        self.lock = threading.Lock()
        # The queues that are not closed, the root of their shares, and what waits for their end.
        self.queues: set[Queue] = set()
        self.share: Share[Queue] = Share(None)
        self.drained = threading.Condition(self.lock)
        # What each worker that has not left is to call, and why all have left, if so.
        self.calls: dict[int, deque[_Call]] = {worker: deque() for worker in range(workers)}
        self.lost: ServiceError | None = None
        # Run whose outcome is decided, and of which nobody was told yet.
        self.ended: list[tuple[Run, Observer]] = []
        # When each worker that is busy began what it is at.
        self._began: dict[int, float] = {}
        self._closing = False
        # Held locks: workers sleep on them until they are released.
        self._asleep: list[threading.Lock] = []
        # How many do, or were woken and have not looked yet.
        self._idle = 0
        self._threads = [
            threading.Thread(target=self._serve, args=(own,), name=f"batcher-{own}", daemon=True)
            for own in range(workers)
        ]
        self._beside: WeakSet[threading.Thread] = WeakSet()
        for thread in self._threads:
            thread.start()

    def add(self, run: RunBatch, limits: Limits, observer: Observer) -> Queue:
        """Make a queue.

        Args:
            run: Runs a batch: the worker's index, the graph's name and `[batch, …]` arrays in,
                `[batch, …]` arrays out. Called from the workers' threads, at once from several.
            limits: What it may hold.
            observer: Told what happens to the work.

        Raises:
            NotReadyError: the batcher is closed.
        """
        queue = Queue(self, run, observer, limits)
        with self.lock:
            self._check_open()
            self.queues.add(queue)
        return queue

    def on_workers(self, function: Callable[[int], None]) -> list[Future[None]]:
        """Have every worker call a function with its index, before its next batch.

        Returns:
            A future for each worker that has not left, in the order of their indices.

        Raises:
            NotReadyError: the batcher is closed.
        """
        futures: list[Future[None]] = []
        with self.lock:
            self._check_open()
            for calls in self.calls.values():
                futures.append(Future())
                calls.append((function, futures[-1]))
            self.wake(self.workers)
        return futures

    def beside(self, function: Callable[[], None], name: str) -> threading.Thread:
        """Call a function on a thread of its own, beside the workers.

        Raises:
            RuntimeError: the system has no thread left.
        """
        thread = threading.Thread(target=function, name=name, daemon=True)
        thread.start()
        self._beside.add(thread)
        return thread

    @property
    def going(self) -> bool:
        """Whether any of its threads is still at something."""
        return any(thread.is_alive() for thread in (*self._threads, *self._beside))

    @property
    def busy_seconds(self) -> float:
        """For how long a worker has been at the same batch or call; the longest of all."""
        return time.monotonic() - min(self._began.copy().values(), default=math.inf)

    def close(self, timeout: float) -> None:
        """Close every queue, and stop the threads.

        Args:
            timeout: Seconds to finish what was accepted; what then still waits fails with
                `NotReadyError`. Threads that are still busy then end with what they are at.
        """
        end = time.monotonic() + timeout
        with self.lock:
            self._closing = True
            queues = self.queues.copy()
        self.drain(queues, timeout, "the server stopped before this was run")
        stopped = NotReadyError("the server stopped before this was called")
        self._dismiss(range(self.workers), stopped)
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def drain(self, queues: set[Queue], timeout: float, reason: str) -> None:
        """Close queues; what still waits after so many seconds fails for that reason."""
        with self.lock:
            for queue in queues:
                queue.draining = True
            self.drained.wait_for(lambda: not any(queue.left for queue in queues), timeout)
            self.queues -= queues
            for queue in queues:
                queue.fail(NotReadyError(reason))
        self.tell_ended()

    def wake(self, most: int) -> None:
        """Wake workers; the last to fall asleep first, as its caches are the warmest."""
        for _ in range(min(most, len(self._asleep))):
            self._asleep.pop().release()

    def tell_ended(self) -> None:
        """Tell the clients of work that has ended, and the observers; without the lock."""
        if not self.ended:
            return
        with self.lock:
            ended, self.ended = self.ended, []
        for work, observer in ended:
            work.notify()
            dropped = isinstance(work.error, (CancelledError, DeadlineExceededError))
            if dropped and work.taken < work.windows:
                late = time.monotonic() >= work.deadline
                notify(observer.dropped, "expired" if late else "cancelled")

    def _check_open(self) -> None:
        if self._closing:
            raise NotReadyError("the server is stopping")

    def _dismiss(self, workers: Iterable[int], error: ServiceError) -> None:
        """Have workers leave; their calls fail, and if they were the last, all that waits."""
        with self.lock:
            left = [call for worker in workers for call in self.calls.pop(worker, ())]
            if not self.calls:
                self.lost = error
                for queue in self.queues:
                    queue.fail(error)
            self.wake(self.workers)
        for _, future in left:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        self.tell_ended()

    def _serve(self, worker: int) -> None:
        while self._step(worker):
            pass

    def _step(self, worker: int) -> bool:
        """Do what is next; nothing of it is held while the worker waits for something else."""
        job = self._next(worker)
        if job is None:
            return False
        self._began[worker] = time.monotonic()
        lost = job.queue.run(worker, job) if isinstance(job, _Batch) else _call(worker, *job)
        del self._began[worker]
        if lost is not None:
            self._dismiss([worker], lost)
        return True

    def _next(self, worker: int) -> _Batch | _Call | None:
        """Wait for what a worker is to do; None once it has left."""
        slept = False
        while True:
            with self.lock:
                self._idle -= slept
                if (calls := self.calls.get(worker)) is None:
                    return None
                if calls:
                    return calls.popleft()
                if self.share.waiting:
                    # Idle workers get their share: on the CPU two small batches beat a large one.
                    most = math.ceil(self.share.waiting / (1 + self._idle))
                    return self.share.next().take(most)
                # As a condition would, in far fewer calls.
                bell = threading.Lock()
                bell.acquire()
                self._asleep.append(bell)
                self._idle += 1
            slept = bell.acquire()


class Queue(Share[GraphQueue]):
    """The queue of one model, which `Scheduler.add` makes.

    Attributes:
        running: Batches that workers are busy with.
        draining: Whether new work is refused.
    """

    def __init__(
        self, scheduler: Scheduler, run: RunBatch, observer: Observer, limits: Limits
    ) -> None:
        super().__init__(scheduler.share)
        self.running = 0
        self.draining = False
        self._batcher = scheduler
        self._run = run
        self._observer = observer
        self._limits = limits
        self._bytes = 0
        self._graphs: dict[str, GraphQueue] = {}
        # No work that waits has an earlier deadline.
        self._earliest = math.inf

    @property
    def usage(self) -> Usage:
        """What it holds at about this moment, and may hold."""
        waiting = self.waiting + self.aside
        return Usage(waiting, self._limits.windows, self._bytes, self._limits.bytes)

    @property
    def left(self) -> int:
        """How many windows wait and batches run."""
        return self.waiting + self.aside + self.running

    def submit(
        self,
        graph: str,
        feeds: Arrays,
        *,
        attention: Sequence[str] = (),
        deadline: float,
        admitted: bool = False,
    ) -> Run:
        """Queue windows.

        Args:
            graph: What to run them through.
            feeds: `[windows, …]` by input name, at least one window.
            attention: As of `arrays.asked_for`: what else there is, is not kept.
            deadline: On the clock of `time.monotonic`. What still waits then is never run, but
                fails only when a worker or a full queue comes upon it: the client is to watch the
                clock itself, and to cancel.
            admitted: Whether this continues work that was accepted: it is not refused for lack of
                room, nor because the queue is closing.

        Returns:
            A future of `[windows, …]` by output name. Cancelling it frees at once what still waits.
            It may fail with `DeadlineExceededError`, with `NotReadyError`, with a `ServiceError`
            that `run` raised, or with `ModelFailedError` because of anything else.

        Raises:
            QueueFullError: the queue has no room for them.
            TooLargeError: it never has for so many.
            NotReadyError: it is closed.
            DeviceLostError: no worker is left.
        """
        work = Run(self._drop, graph, feeds, attention, deadline)
        scheduler = self._batcher
        try:
            with scheduler.lock:
                if self not in scheduler.queues or (self.draining and not admitted):
                    raise NotReadyError("the model is stopping")
                if scheduler.lost is not None:
                    raise own_error(scheduler.lost)
                if not admitted:
                    self._admit(work)
                self._put(work)
                scheduler.wake(work.windows)
        finally:
            if scheduler.ended:
                scheduler.tell_ended()
        return work

    def pause(self, graph: str) -> None:
        """Accept work of a graph, and run none of it until `resume`."""
        with self._batcher.lock:
            (self._graphs.get(graph) or self._make(graph)).pause()

    def resume(self, graph: str) -> None:
        """Run the work of a graph that was paused."""
        with self._batcher.lock:
            (self._graphs.get(graph) or self._make(graph)).resume()
            self._batcher.wake(self.waiting)

    def close(self, timeout: float) -> None:
        """Refuse new work and finish what was accepted.

        Args:
            timeout: Seconds to finish; what then still waits fails with `NotReadyError`. A batch
                that is being run is not interrupted: close again to wait for it.
        """
        self._batcher.drain({self}, timeout, "the model stopped before this was run")

    def fail(self, error: Exception) -> None:
        """End all work that waits."""
        for work in self._works():
            self._end(work, error)

    def take(self, most: int) -> _Batch:
        """The next batch, of `most` windows at most; some must wait."""
        now = time.monotonic()
        graph = self.next()
        slices, late = graph.take(most, now)
        for work in late:
            self._end(work, DeadlineExceededError(_LATE))
        windows = sum([stop - start for _, start, stop in slices])
        graph.charge(windows * graph.pace)
        self.running += 1
        return _Batch(self, graph, slices, windows, now, windows * graph.pace)

    def run(self, worker: int, batch: _Batch) -> DeviceLostError | None:
        """Run a batch, without the lock; whatever goes wrong is told to the clients.

        Returns:
            What went wrong, if the worker is to leave for it.
        """
        if self._batcher.ended:
            self._batcher.tell_ended()
        lost = None
        times = None
        try:
            if batch.slices:
                feeds = assemble(batch.slices)
                assembled = time.monotonic()
                outputs = self._run(worker, batch.slices[0][0].graph, feeds)
                ran = time.monotonic()
                self._deliver(batch, outputs)
                times = (assembled - batch.taken, ran - assembled)
        except BaseException as error:
            if not isinstance(error, ServiceError):
                error.add_note("".join(traceback.format_tb(error.__traceback__)))
            # Frames of its traceback hold the batch, whose work holds the error.
            self._finish(batch, kept(error))
            lost = error if isinstance(error, DeviceLostError) else None
        else:
            self._finish(batch, None)
        self._batcher.tell_ended()
        if times is not None:
            notify(self._observer.ran, batch.windows, batch.graph.max_batch, *times)
        return lost

    def _works(self) -> list[Run]:
        return [work for graph in self._graphs.values() for work in graph.works]

    def _admit(self, work: Run) -> None:
        """Make sure that there is room for work; what is late makes way for it."""
        part = self._excess(work)
        if part > 0 and self._earliest <= (now := time.monotonic()):
            for one in self._works():
                if one.deadline <= now:
                    self._end(one, DeadlineExceededError(_LATE))
            self._earliest = min((one.deadline for one in self._works()), default=math.inf)
            part = self._excess(work)
        if part <= 0:
            return
        most = self._limits
        said = (
            f"{self.usage.windows} windows are waiting and {work.windows} more do not fit: at most "
            f"{most.windows} may wait, and hold {most.bytes} bytes, where there are {self._bytes} "
            f"and {work.bytes} more"
        )
        if work.windows > most.windows or work.bytes > most.bytes:
            raise TooLargeError(said)
        seconds = sum(graph.waiting * graph.pace for graph in self._graphs.values())
        sharing, workers = max(1, len(self._batcher.share.active)), len(self._batcher.calls)
        retry_after = max(1, math.ceil(min(part, 1.0) * seconds * sharing / workers))
        raise QueueFullError(said, retry_after=min(retry_after, _MAX_RETRY_SECONDS))

    def _excess(self, work: Run) -> float:
        """What must go before work fits, as a part of all that is there; none if not over 0."""
        windows, size = self.waiting + self.aside, self._bytes
        return max(
            (windows + work.windows - self._limits.windows) / max(1, windows),
            (size + work.bytes - self._limits.bytes) / max(1, size),
        )

    def _put(self, work: Run) -> None:
        (self._graphs.get(work.graph) or self._make(work.graph)).add(work)
        self._bytes += work.bytes
        self._earliest = min(self._earliest, work.deadline)

    def _make(self, graph: str) -> GraphQueue:
        most = self._limits.batch
        most = min(most, self._limits.graphs.get(graph, most))
        self._graphs[graph] = GraphQueue(self, most)
        return self._graphs[graph]

    def _deliver(self, batch: _Batch, outputs: Arrays) -> None:
        """Give each work its rows of the outputs: views, or copies if it is split."""
        check_rows(outputs, batch.windows)
        first = 0
        for work, start, stop in batch.slices:
            last = first + stop - start
            wanted = asked_for(outputs, work.attention)
            own = {name: rows[first:last] for name, rows in wanted.items()}
            if last - first == work.windows:
                work.outputs = own
            else:
                for name, kept in self._outputs(work, own).items():
                    kept[start:stop] = own[name]
            first = last

    def _outputs(self, work: Run, part: Arrays) -> Arrays:
        """Where the outputs of all parts of split work go; nowhere if it has ended."""
        with self._batcher.lock:
            if not (work.outputs or work.over):
                for name, rows in part.items():
                    work.outputs[name] = np.empty((work.windows, *rows.shape[1:]), rows.dtype)
                size = sum(rows.nbytes for rows in work.outputs.values())
                work.bytes += size
                self._bytes += size
            return work.outputs

    def _finish(self, batch: _Batch, failure: BaseException | None) -> None:
        """A batch was delivered, or failed."""
        with self._batcher.lock:
            now = time.monotonic()
            for work, start, stop in batch.slices:
                work.began = min(work.began, batch.taken)
                work.ended = now
                work.batch = max(work.batch, batch.windows)
                work.delivered += stop - start
                if failure is not None or work.delivered == work.windows:
                    self._end(work, failure)
            if batch.slices:
                batch.graph.charge(now - batch.taken - batch.expected)
                batch.graph.measured(batch.windows, now - batch.taken)
            self.running -= 1
            if self.draining:
                self._batcher.drained.notify_all()

    def _drop(self, work: Run) -> None:
        with self._batcher.lock:
            self._end(work, CancelledError())
        self._batcher.tell_ended()

    def _end(self, work: Run, error: BaseException | None) -> None:
        """Decide the outcome of work, unless it has one."""
        if work.over:
            return
        work.end(error)
        self._bytes -= work.bytes
        graph = self._graphs[work.graph]
        if work in graph.works:
            graph.remove(work)
        self._batcher.ended.append((work, self._observer))
        if self.draining:
            self._batcher.drained.notify_all()


class _Batch(NamedTuple):
    queue: Queue
    graph: GraphQueue
    slices: list[Slice]
    windows: int
    taken: float  # On the clock of `time.monotonic`.
    expected: float  # Seconds that a worker would be busy with it.


def _call(
    worker: int, function: Callable[[int], None], future: Future[None]
) -> DeviceLostError | None:
    """Make a call, unless it was cancelled; what it raises is the future's. See `Queue.run`."""
    if future.set_running_or_notify_cancel():
        try:
            function(worker)
            future.set_result(None)
        except BaseException as error:
            future.set_exception(error)
            return error if isinstance(error, DeviceLostError) else None
    return None
