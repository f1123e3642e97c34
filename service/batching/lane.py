"""Work of one graph that waits, and which of it goes into the next batch."""

from __future__ import annotations

from collections import OrderedDict

from foretell.service.batching.work import Slice, Work

_MEMORY = 0.9


class Lane:
    """Work whose windows may share a batch.

    Where not all that waits fits a batch, half of it is for what has waited longest, and half for
    what has waited longest of the short work, which fits such a half. So long work holds up no
    short work, short work that keeps coming does not hold up long work, and none waits for more
    than twice the batches that strictly first come, first served would take.

    Args:
        max_batch: Most windows in a batch.

    Attributes:
        waiting: Windows that are in no batch yet.
    """

    def __init__(self, max_batch: int) -> None:
        self.max_batch = max_batch
        self.waiting = 0
        self._works: OrderedDict[Work, None] = OrderedDict()
        self._short: OrderedDict[Work, None] = OrderedDict()
        self._odd = 0
        self._windows = 0.0
        self._seconds = 0.0

    def add(self, work: Work) -> None:
        """Work comes to wait."""
        self._works[work] = None
        if work.windows <= max(1, self.max_batch // 2):
            self._short[work] = None
        self.waiting += work.windows

    def discard(self, work: Work) -> int:
        """Take work out; returns how many windows of it waited."""
        if work not in self._works:
            return 0
        self._remove(work)
        self.waiting -= work.waiting
        return work.waiting

    def works(self) -> list[Work]:
        """The work that waits, or whose last part does; oldest first."""
        return list(self._works)

    def take(self, room: int) -> list[Slice]:
        """Take at most `room` windows, and at most a batch; each work has one slice."""
        room = min(room, self.max_batch)
        kept = 0
        if self.waiting > room and self._short:
            # Of an odd number, the half is the larger one every other time.
            kept = (room + self._odd) // 2
            self._odd ^= 1
        taken: dict[Work, int] = {}
        left = self._fill(taken, self._works, room - kept)
        left = self._fill(taken, self._short, left + kept)
        self._fill(taken, self._works, left)
        return [Slice(work, work.taken - windows, work.taken) for work, windows in taken.items()]

    def measured(self, windows: int, seconds: float) -> None:
        """A batch kept a worker busy; the latest count most."""
        self._windows = _MEMORY * self._windows + windows
        self._seconds = _MEMORY * self._seconds + seconds

    def expected(self, windows: int) -> float:
        """Seconds that so many windows keep a worker busy; 0 before any were measured."""
        return windows * self._seconds / self._windows if self._windows else 0.0

    def _fill(self, taken: dict[Work, int], works: OrderedDict[Work, None], room: int) -> int:
        """Take from `works` in order; returns how much room is left."""
        while room and works:
            work = next(iter(works))
            windows = min(room, work.waiting)
            work.taken += windows
            taken[work] = taken.get(work, 0) + windows
            self.waiting -= windows
            room -= windows
            if not work.waiting:
                self._remove(work)
        return room

    def _remove(self, work: Work) -> None:
        del self._works[work]
        self._short.pop(work, None)
