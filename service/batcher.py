"""Natural batching: whoever is free takes what waits; nothing is ever delayed to fill a batch.

The batcher counts windows, not requests: work of many windows is split over batches, and the rest
of a batch is filled from other work. Only windows of the same graph of the same model share one.
Models have even shares of the workers' seconds, and the graphs of a model even shares of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from foretell.service.arrays import Arrays
from foretell.service.batching.backlog import Backlog, Batch, Run
from foretell.service.batching.call import reason_of_loss
from foretell.service.batching.observer import Observer, tell
from foretell.service.batching.queue import Queue
from foretell.service.batching.room import Room
from foretell.service.batching.schedule import Schedule
from foretell.service.batching.work import assemble, divide
from foretell.service.errors import DeadlineExceededError, DeviceLostError, NotReadyError


class Batcher:
    """The threads that run every model of this process.

    Args:
        workers: How many run batches; their indices are from 0.
    """

    def __init__(self, workers: int) -> None:
        self._schedule = Schedule(workers)
        self._workers = [
            threading.Thread(
                target=self._serve, args=(worker,), name=f"batcher-{worker}", daemon=True
            )
            for worker in range(workers)
        ]
        self._timer = threading.Thread(target=self._watch, name="batcher-timer", daemon=True)
        for thread in (*self._workers, self._timer):
            thread.start()

    @property
    def workers(self) -> int:
        """How many run batches."""
        return len(self._workers)

    def add(
        self,
        run: Run,
        *,
        max_batch: int,
        max_windows: int,
        max_bytes: int,
        observer: Observer,
        graph_limits: Mapping[str, int] | None = None,
    ) -> Queue:
        """Make a queue.

        Args:
            run: Runs a batch: the worker's index, the graph's name and `[batch, …]` arrays in,
                `[batch, …]` arrays out. Called from the workers' threads, at once from several.
            max_batch: Most windows in a batch.
            max_windows: Most windows waiting.
            max_bytes: Most bytes that work holds until it has its outcome.
            observer: Told what happens to the work.
            graph_limits: Most windows in a batch of a graph, where that is fewer.

        Raises:
            NotReadyError: the batcher is closed.
        """
        room = Room(max_windows, max_bytes)
        backlog = Backlog(run, observer, room, max_batch, graph_limits or {})
        self._schedule.add(backlog)
        return Queue(self._schedule, backlog)

    def on_workers(self, function: Callable[[int], None]) -> list[Future[None]]:
        """Have every worker call a function with its index, before its next batch.

        Returns:
            A future for each worker that has not left, in the order of their indices.

        Raises:
            NotReadyError: the batcher is closed.
        """
        return [*self._schedule.call(function)]

    def close(self, timeout: float) -> None:
        """Close every queue, and stop the threads.

        Args:
            timeout: Seconds to finish what was accepted; what then still waits fails with
                `NotReadyError`. Threads that are still busy then end with what they are at.
        """
        end = time.monotonic() + timeout
        for work in self._schedule.close(None, timeout):
            work.fail(NotReadyError("the server stopped before this was run"))
        for call in self._schedule.stop():
            call.fail(NotReadyError("the server stopped before this was called"))
        for thread in (*self._workers, self._timer):
            thread.join(max(0.0, end - time.monotonic()))

    def _serve(self, worker: int) -> None:
        while self._step(worker):
            pass

    def _step(self, worker: int) -> bool:
        """Do the next thing; nothing of it is held while the worker waits for another one."""
        job = self._schedule.next(worker)
        if job is None:
            return False
        lost = self._process(worker, job) if isinstance(job, Batch) else job.make(worker)
        if lost is None:
            return True
        for left in self._schedule.retire(worker, lost):
            left.fail(DeviceLostError(lost))
        return False

    def _process(self, worker: int, batch: Batch) -> str | None:
        """Run a batch; whatever goes wrong is told to those who wait, and the thread lives on.

        Returns:
            Why it does not, if the worker's device is lost.
        """
        lost = None
        observer = batch.backlog.observer
        for work, start, _ in batch.slices:
            if start == 0:
                tell(observer.waited, batch.taken - work.submitted)
        started = time.monotonic()
        try:
            feeds = assemble(batch.slices)
            assembled = time.monotonic()
            outputs = batch.backlog.run(worker, batch.slices[0].work.graph, feeds)
            ran = time.monotonic()
            self._deliver(batch, outputs)
        except BaseException as error:
            lost = reason_of_loss(error)
            for work in self._schedule.failed(batch):
                work.fail(error)
        else:
            tell(observer.assembled, assembled - started)
            tell(observer.ran, batch.windows, ran - assembled)
            tell(observer.filled, batch.windows / batch.lane.max_batch)
        self._schedule.done(batch)
        return lost

    def _deliver(self, batch: Batch, outputs: Arrays) -> None:
        for part, rows in divide(batch.slices, outputs):
            work, start, stop = part
            if part.whole:
                work.outputs = rows
            else:
                for name, kept in self._schedule.keep(batch.backlog, work, rows).items():
                    kept[start:stop] = rows[name]
        for work in self._schedule.delivered(batch):
            work.succeed()

    def _watch(self) -> None:
        while self._tell_late():
            pass

    def _tell_late(self) -> bool:
        late = self._schedule.late()
        for backlog, work in late or ():
            work.fail(DeadlineExceededError("the deadline passed before the forecast was ready"))
            if work.waiting:
                tell(backlog.observer.expired)
        return late is not None
