"""Where the work of one model is submitted."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import cast

from foretell.service.arrays import Arrays
from foretell.service.batching.backlog import Backlog
from foretell.service.batching.observer import tell
from foretell.service.batching.schedule import Schedule
from foretell.service.batching.work import Work
from foretell.service.errors import NotReadyError


class Queue:
    """The queue of one model, which `Batcher.add` makes."""

    def __init__(self, schedule: Schedule, backlog: Backlog) -> None:
        self._schedule = schedule
        self._backlog = backlog

    @property
    def waiting(self) -> int:
        """Windows that are in no batch yet."""
        return self._backlog.waiting

    def submit(
        self, graph: str, feeds: Arrays, *, deadline: float, admitted: bool = False
    ) -> Future[Arrays]:
        """Queue windows.

        Args:
            graph: What to run them through.
            feeds: `[windows, …]` by input name, at least one window.
            deadline: On the clock of `time.monotonic`; the future fails then, and what of the work
                still waits is dropped.
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
        """
        work = Work(graph, feeds, deadline, submitted=time.monotonic())
        self._schedule.put(self._backlog, work, admitted=admitted)
        work.add_done_callback(self._forget)
        return work

    def check_room(self) -> None:
        """Find out early whether work can be submitted at all.

        Raises:
            QueueFullError: not even one window fits the queue.
        """
        self._schedule.check_room(self._backlog)

    def close(self, timeout: float) -> None:
        """Refuse new work and finish what was accepted.

        Args:
            timeout: Seconds to finish; what then still waits fails with `NotReadyError`. A batch
                that is being run is not interrupted: close again to wait for it.
        """
        for work in self._schedule.close(self._backlog, timeout):
            work.fail(NotReadyError("the model stopped before this was run"))

    def _forget(self, future: Future[Arrays]) -> None:
        """If it was cancelled, whoever waits did that: free its place."""
        work = cast("Work", future)
        if work.cancelled() and self._schedule.drop(self._backlog, work):
            work.set_running_or_notify_cancel()
            if work.waiting:
                observer = self._backlog.observer
                late = time.monotonic() >= work.deadline
                tell(observer.expired if late else observer.cancelled)
