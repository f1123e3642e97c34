"""Workers that have nothing to do."""

from __future__ import annotations

import threading


class Idle:
    """Workers asleep; the last one to fall asleep wakes first, as its caches are the warmest.

    Args:
        lock: Held by whoever calls a method here.

    Attributes:
        count: How many there are, with those that were woken and do not have the lock yet.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._asleep: list[threading.Condition] = []
        self.count = 0

    def sleep(self) -> None:
        """Wait to be woken, without the lock."""
        own = threading.Condition(self._lock)
        self._asleep.append(own)
        self.count += 1
        own.wait()
        self.count -= 1

    def wake(self, most: int) -> None:
        """Wake up to so many workers."""
        for _ in range(min(most, len(self._asleep))):
            self._asleep.pop().notify()
