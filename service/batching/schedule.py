"""What waits for the workers, and whose turn it is: where the threads meet."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable

from foretell.service.arrays import Arrays
from foretell.service.batching.backlog import Backlog, Batch
from foretell.service.batching.call import Call
from foretell.service.batching.deadlines import Deadlines
from foretell.service.batching.idle import Idle
from foretell.service.batching.turns import Turns
from foretell.service.batching.work import Work
from foretell.service.errors import DeviceLostError, NotReadyError


class Schedule:
    """The backlogs of all queues, under one lock; it calls nothing that others wrote.

    Queues have even shares of the workers' seconds. Work ends once, whatever ends it: who gets it
    from a method here, or True, is the one to tell who waits.

    Args:
        workers: How many there are.
    """

    def __init__(self, workers: int) -> None:
        self._lock = threading.Lock()
        self._went = threading.Condition(self._lock)
        self._alarm = threading.Condition(self._lock)
        self._alarm_at = -math.inf
        self._calls: dict[int, deque[Call]] = {worker: deque() for worker in range(workers)}
        self._lost: str | None = None
        self._backlogs: set[Backlog] = set()
        self._turns: Turns[Backlog] = Turns()
        self._deadlines: Deadlines[tuple[Backlog, Work]] = Deadlines()
        self._late: list[tuple[Backlog, Work]] = []
        self._waiting = 0
        self._idle = Idle(self._lock)
        self._closing = False
        self._stopped = False

    def add(self, backlog: Backlog) -> None:
        """A queue comes.

        Raises:
            NotReadyError: all are being closed.
        """
        with self._lock:
            self._check_open()
            self._backlogs.add(backlog)

    def put(self, backlog: Backlog, work: Work, *, admitted: bool) -> None:
        """Work comes to wait; see `Queue.submit`."""
        with self._lock:
            if backlog.closed or (backlog.draining and not admitted):
                raise NotReadyError("the model is stopping")
            self._check_workers()
            now = work.submitted
            self._expire(now)
            if not admitted:
                backlog.room.admit(
                    work.windows, work.bytes, now, lambda: self._drain_seconds(backlog)
                )
            backlog.add(work)
            self._turns.join(backlog)
            self._waiting += work.windows
            work.ticket = self._deadlines.add(work.deadline, (backlog, work))
            if work.deadline < self._alarm_at:
                self._alarm.notify()
            self._idle.wake(work.windows)

    def check_room(self, backlog: Backlog) -> None:
        """See `Queue.check_room`."""
        with self._lock:
            self._check_workers()
            self._expire(time.monotonic())
            backlog.room.check(lambda: self._drain_seconds(backlog))

    def call(self, function: Callable[[int], None]) -> list[Call]:
        """Have each worker make a call before its next batch; returns the calls.

        Raises:
            NotReadyError: all queues are being closed.
        """
        with self._lock:
            self._check_open()
            calls = {worker: Call(function) for worker in self._calls}
            for worker, call in calls.items():
                self._calls[worker].append(call)
            self._idle.wake(len(calls))
            return list(calls.values())

    def retire(self, worker: int, reason: str) -> list[Call | Work]:
        """A worker leaves for good, as its device is lost.

        Returns:
            What nobody is left to do: its calls, and once all have left, all work that waits.
        """
        with self._lock:
            left: list[Call | Work] = [*self._calls.pop(worker)]
            if not self._calls:
                self._lost = reason
                waiting = [(one, work) for one in self._backlogs for work in one.works()]
                left += [work for one, work in waiting if self._end(one, work)]
            return left

    def next(self, worker: int) -> Batch | Call | None:
        """Wait for what a worker is to do; None once there will be nothing."""
        with self._lock:
            while True:
                if self._calls[worker]:
                    return self._calls[worker].popleft()
                self._expire(time.monotonic())
                if self._turns:
                    return self._take()
                if self._stopped:
                    return None
                self._idle.sleep()

    def late(self) -> list[tuple[Backlog, Work]] | None:
        """Wait for deadlines to pass; returns the work that this ends, None once there is none."""
        with self._lock:
            while True:
                self._expire(time.monotonic())
                if self._late:
                    late, self._late = self._late, []
                    return late
                if self._stopped:
                    return None
                self._alarm_at = self._deadlines.first
                seconds = self._alarm_at - time.monotonic()
                self._alarm.wait(min(seconds, threading.TIMEOUT_MAX))
                self._alarm_at = -math.inf

    def keep(self, backlog: Backlog, work: Work, outputs: Arrays) -> Arrays:
        """Where the outputs of split work go, part by part; nowhere if it has ended.

        Args:
            backlog: Where it waits.
            work: The work.
            outputs: Those of one of its parts.
        """
        with self._lock:
            return {} if work.over else backlog.keep(work, outputs)

    def delivered(self, batch: Batch) -> list[Work]:
        """The outputs of a batch are there; returns the work that this ends."""
        with self._lock:
            now = time.monotonic()
            for work, start, stop in batch.slices:
                work.delivered += stop - start
                work.ran(batch.taken, now, batch.windows)
            return [
                work
                for work, _, _ in batch.slices
                if work.delivered == work.windows and self._end(batch.backlog, work)
            ]

    def failed(self, batch: Batch) -> list[Work]:
        """There will be no outputs of a batch; returns the work that this ends."""
        with self._lock:
            return [work for work, _, _ in batch.slices if self._end(batch.backlog, work)]

    def done(self, batch: Batch) -> None:
        """The worker has done all it had to for a batch."""
        with self._lock:
            seconds = time.monotonic() - batch.taken
            batch.backlog.done(batch, seconds)
            self._turns.charge(batch.backlog, seconds - batch.expected)
            self._leave(batch.backlog)

    def drop(self, backlog: Backlog, work: Work) -> bool:
        """Nobody waits for work any more; returns whether this ends it."""
        with self._lock:
            return self._end(backlog, work)

    def close(self, backlog: Backlog | None, timeout: float) -> list[Work]:
        """Refuse new work, and in the end all; wait for what was accepted.

        Args:
            backlog: Of which queue; None closes all, for good.
            timeout: Most seconds to wait.

        Returns:
            The work that this ends.
        """
        with self._lock:
            self._closing |= backlog is None
            closing = self._backlogs.copy() if backlog is None else {backlog}
            for one in closing:
                one.draining = True
            self._went.wait_for(lambda: not any(one.busy for one in closing), timeout)
            self._backlogs -= closing
            left = [(one, work) for one in closing for work in one.works()]
            ended = [work for one, work in left if self._end(one, work)]
            for one in closing:
                one.closed = True
                self._turns.forget(one)
            return ended

    def stop(self) -> list[Call]:
        """Have the threads end; returns the calls that are not made. All queues are closed."""
        with self._lock:
            self._stopped = True
            self._idle.wake(len(self._calls))
            self._alarm.notify_all()
            left = [call for calls in self._calls.values() for call in calls]
            for calls in self._calls.values():
                calls.clear()
            return left

    def _check_open(self) -> None:
        if self._closing:
            raise NotReadyError("the server is stopping")

    def _check_workers(self) -> None:
        if self._lost is not None:
            raise DeviceLostError(self._lost)

    def _drain_seconds(self, backlog: Backlog) -> float:
        """Until all that waits in a queue has run, if as many queues have work as do now."""
        return backlog.seconds() * max(1, len(self._turns)) / max(1, len(self._calls))

    def _take(self) -> Batch:
        backlog = self._turns.next()
        # Workers that are free get their share: on the CPU two small batches beat a large one.
        share = math.ceil(self._waiting / (1 + self._idle.count))
        batch = backlog.take(share, time.monotonic())
        self._turns.charge(backlog, batch.expected)
        self._waiting -= batch.windows
        self._leave(backlog)
        return batch

    def _expire(self, now: float) -> None:
        if self._deadlines.first <= now:
            late = self._deadlines.pop(now)
            self._late += [(backlog, work) for backlog, work in late if self._end(backlog, work)]
            self._alarm.notify()

    def _end(self, backlog: Backlog, work: Work) -> bool:
        """Take work out of all that knows it, unless it has ended before."""
        if work.over:
            return False
        work.over = True
        self._deadlines.discard(work.ticket)
        self._waiting -= backlog.end(work)
        self._leave(backlog)
        return True

    def _leave(self, backlog: Backlog) -> None:
        if not backlog.waiting:
            self._turns.leave(backlog)
        if backlog.draining and not backlog.busy:
            self._went.notify_all()
