"""Natural batching: a free thread takes the waiting windows; none is delayed to fill a batch.

Windows are counted, not requests: a run of many windows is split over batches, and the rest of a
batch is filled from other runs. Only windows of the same graph of the same model share one.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue

from foretell.service.arrays import DISTRIBUTION, FORECAST, MARGIN, Arrays, joined
from foretell.service.engine.fairness import Slice
from foretell.service.engine.queues import Batch, Queue
from foretell.service.engine.root import Root
from foretell.service.engine.usage import Limits, Observer
from foretell.service.errors import (
    DeviceLostError,
    ModelFailedError,
    NotReadyError,
    ServiceError,
    kept,
)

_logger = logging.getLogger(__name__)

_Call = tuple[Callable[[int], None], Future[None]]


class Scheduler:
    """The inference threads, numbered from 0, which run every model of this process."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._root = Root(threads)
        # Pending calls of each thread that has not left.
        self._calls: dict[int, deque[_Call]] = {thread: deque() for thread in range(threads)}
        # When each busy thread began its batch or call.
        self._began: dict[int, float] = {}
        self._closing = False
        self._threads = [
            threading.Thread(target=self._serve, args=(own,), name=f"inference-{own}", daemon=True)
            for own in range(threads)
        ]
        self._beside: SimpleQueue[tuple[Callable[[], None], Future[None]] | None] = SimpleQueue()
        self._threads.append(
            threading.Thread(target=self._serve_beside, name="beside", daemon=True)
        )
        for thread in self._threads:
            thread.start()

    def add(
        self,
        run_batch: Callable[[int, str, Arrays], Arrays],
        limits: Limits,
        observer: Observer,
    ) -> Queue:
        """Make a queue.

        `run_batch` runs a batch: it takes the thread's index, the graph's name and `[batch, …]`
        arrays, and returns `[batch, …]` arrays. Several inference threads call it at the same time.
        """
        queue = Queue(self._root, run_batch, observer, limits)
        with self._root.lock:
            self._check_open()
            self._root.queues.add(queue)
        return queue

    def on_threads(self, function: Callable[[int], None]) -> list[Future[None]]:
        """Call a function on every remaining thread, with its index, before its next batch."""
        futures: list[Future[None]] = []
        with self._root.lock:
            self._check_open()
            for calls in self._calls.values():
                futures.append(Future())
                calls.append((function, futures[-1]))
            self._root.wake(self.threads)
        return futures

    def beside(self, function: Callable[[], None]) -> Future[None]:
        """Call a function on an extra thread, after earlier calls.

        It may be called with the queues' lock. Closing the scheduler cancels calls that have not
        begun.
        """
        self._check_open()
        future: Future[None] = Future()
        self._beside.put((function, future))
        return future

    @property
    def lost(self) -> ServiceError | None:
        """Why all threads have left; None while any is left."""
        return self._root.lost

    @property
    def going(self) -> bool:
        """Whether any of its threads is alive."""
        return any(thread.is_alive() for thread in self._threads)

    @property
    def busy_seconds(self) -> float:
        """The longest time that a thread has spent on its current batch or call."""
        return time.monotonic() - min(self._began.copy().values(), default=math.inf)

    def close(self, timeout: float) -> None:
        """Close every queue and stop the threads; runs that still wait after `timeout` fail."""
        end = time.monotonic() + timeout
        with self._root.lock:
            self._closing = True
            queues = self._root.queues.copy()
        self._root.drain(queues, timeout, "the server stopped before this was run")
        stopped = NotReadyError("the server stopped before this was called")
        self._dismiss(range(self.threads), stopped)
        self._beside.put(None)
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _check_open(self) -> None:
        if self._closing:
            raise NotReadyError("the server is stopping")

    def _dismiss(self, threads: Iterable[int], error: ServiceError) -> None:
        """Make threads leave; their calls fail, and after the last thread all waiting runs fail."""
        root = self._root
        with root.lock:
            left = [call for thread in threads for call in self._calls.pop(thread, ())]
            root.threads = len(self._calls)
            if not self._calls:
                root.lost = error
                for queue in root.queues:
                    queue.fail(error)
            root.wake(self.threads)
        for _, future in left:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        root.notify()

    def _serve(self, thread: int) -> None:
        while self._step(thread):
            pass

    def _serve_beside(self) -> None:
        while self._step_beside():
            pass

    def _step_beside(self) -> bool:
        """Make the next call of `beside`; its frame frees the call before the next wait."""
        call = self._beside.get()
        if call is None:
            return False
        function, future = call
        if self._closing:
            future.cancel()
        _call(-1, lambda _: function(), future)
        return True

    def _step(self, thread: int) -> bool:
        """Do the next job; its frame frees the job before the next wait."""
        job = self._next(thread)
        if job is None:
            return False
        self._began[thread] = time.monotonic()
        lost = self._run(thread, job) if isinstance(job, Batch) else _call(thread, *job)
        del self._began[thread]
        if lost is not None:
            self._dismiss([thread], lost)
        return True

    def _next(self, thread: int) -> Batch | _Call | None:
        """Wait for the next job of a thread; None once it has left."""
        root = self._root
        slept = False
        while True:
            with root.lock:
                root.idle -= slept
                if (calls := self._calls.get(thread)) is None:
                    return None
                if calls:
                    return calls.popleft()
                if root.waiting:
                    # Idle threads get their share: on the CPU two small batches beat a large one.
                    most = math.ceil(root.waiting / (1 + root.idle))
                    return root.next().take(most)
                if root.background.runs and not root.background.running:
                    run, queue = root.background.next()
                    return queue.take_background(run)
                # A condition does the same, with far more calls.
                bell = threading.Lock()
                bell.acquire()
                root.asleep.append(bell)
                root.idle += 1
            slept = bell.acquire()

    def _run(self, thread: int, batch: Batch) -> DeviceLostError | None:
        """Run a batch, without the lock; returns an error that makes the thread leave."""
        root, queue, slices = self._root, batch.queue, batch.slices
        if root.ended:
            root.notify()
        lost = None
        times = None
        try:
            if slices:
                feeds = assemble(slices)
                assembled = time.monotonic()
                outputs = queue.run_batch(thread, slices[0][0].graph, feeds)
                ran = time.monotonic()
                check_rows(outputs, batch.windows)
                _deliver(queue, slices, outputs)
                times = (assembled - batch.taken, ran - assembled)
        except BaseException as error:
            if not isinstance(error, ServiceError):
                error.add_note("".join(traceback.format_tb(error.__traceback__)))
            # Frames of its traceback hold the batch, whose runs hold the error.
            queue.finish(batch, kept(error))
            lost = error if isinstance(error, DeviceLostError) else None
        else:
            queue.finish(batch, None)
        root.notify()
        if times is not None:
            try:
                if batch.background:
                    queue.observer.ran_in_background(sum(times))
                else:
                    queue.observer.ran(batch.windows, batch.graph.max_batch, *times)
            except Exception:
                _logger.exception("a batch was not counted")
        return lost


def assemble(slices: Sequence[Slice]) -> Arrays:
    """The feeds of a batch, `[batch, …]` by input name; a single slice is not copied."""
    feeds = {}
    for name in slices[0][0].feeds:
        parts = [run.feeds[name][start:stop] for run, start, stop in slices]
        feeds[name] = parts[0] if len(parts) == 1 else joined(parts)
    return feeds


def check_rows(outputs: Arrays, windows: int) -> None:
    """Raise ModelFailedError unless every output has a row for each window."""
    for name, rows in outputs.items():
        if rows.ndim == 0 or len(rows) != windows:
            raise ModelFailedError(
                f"expected {windows} windows of outputs, got {name} {rows.shape}"
            )


def _deliver(queue: Queue, slices: Sequence[Slice], outputs: Arrays) -> None:
    """Give each run its rows of the outputs: views, or copies if it is split."""
    first = 0
    for run, start, stop in slices:
        last = first + stop - start
        wanted = _wanted(outputs, run.attention) if run.attention else outputs
        part = {name: rows[first:last] for name, rows in wanted.items()}
        if last - first == run.windows:
            run.outputs = part
        else:
            for name, rows in queue.outputs_of(run, part).items():
                rows[start:stop] = part[name]
        first = last


def _wanted(outputs: Arrays, attention: Sequence[str]) -> Arrays:
    """The outputs of a run: all but attention that it does not name."""
    names = (FORECAST, MARGIN, DISTRIBUTION, *attention)
    return {name: outputs[name] for name in names if name in outputs}


def _call(
    thread: int, function: Callable[[int], None], future: Future[None]
) -> DeviceLostError | None:
    """Make a call, unless it was cancelled; its error goes to the future. Returns as `_run`."""
    if future.set_running_or_notify_cancel():
        try:
            function(thread)
            future.set_result(None)
        except BaseException as error:
            future.set_exception(error)
            return error if isinstance(error, DeviceLostError) else None
    return None
