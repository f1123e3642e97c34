"""The root of the queues of all models, with the lock that guards them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

from foretell.service.engine.background import Background
from foretell.service.engine.fairness import Node
from foretell.service.engine.run import Run, notify
from foretell.service.engine.usage import Observer
from foretell.service.errors import DeadlineExceededError, NotReadyError, ServiceError

if TYPE_CHECKING:
    from foretell.service.engine.queues import Queue


class Root(Node["Queue"]):
    """The root of the queues of all models; inference threads sleep on it.

    Attributes:
        lock: Guards the whole tree; no callbacks are called under it.
        threads: Inference threads that have not left.
        idle: Threads that sleep, or were woken and have not looked yet.
        lost: Why all threads have left; None while any is left.
        drained: Notified when runs of an awaited queue have ended.
        ended: Runs that have ended, before their callbacks are called.
        background: Runs that are taken only while no windows wait here.
        asleep: Held locks on which inference threads sleep until they are released.
    """

    def __init__(self, threads: int) -> None:
        super().__init__(None)
        self.lock = threading.Lock()
        self.queues: set[Queue] = set()
        self.threads = threads
        self.idle = 0
        self.lost: ServiceError | None = None
        self.drained = threading.Condition(self.lock)
        self.ended: list[tuple[Run, Observer]] = []
        self.background = Background()
        self.asleep: list[threading.Lock] = []

    def wake(self, most: int) -> None:
        """Wake inference threads; the last to fall asleep first, as its caches are the warmest."""
        for _ in range(min(most, len(self.asleep))):
            self.asleep.pop().release()

    def drain(self, queues: Iterable[Queue], timeout: float, reason: str) -> None:
        """Close queues; runs that still wait after `timeout` seconds fail for `reason`."""
        queues = set(queues)
        with self.lock:
            for queue in queues:
                queue.closing = queue.awaited = True
                queue.fail_background(NotReadyError(reason))
            self.drained.wait_for(lambda: not any(queue.left for queue in queues), timeout)
            self.queues -= queues
            for queue in queues:
                queue.fail(NotReadyError(reason))
        self.notify()

    def notify(self) -> None:
        """Call the callbacks of ended runs, and the observers; without the lock."""
        if not self.ended:
            return
        with self.lock:
            ended, self.ended = self.ended, []
        for run, observer in ended:
            run.notify()
            dropped = isinstance(run.error, (CancelledError, DeadlineExceededError))
            if dropped and run.taken < run.windows and not run.background:
                late = time.monotonic() >= run.deadline
                notify(observer.dropped, "expired" if late else "cancelled")
