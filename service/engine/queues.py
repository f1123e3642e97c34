"""Work, and which of it goes into the next batch; without threads, under the batcher's lock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from foretell.service.arrays import Arrays
from foretell.service.engine.run import Run
from foretell.service.errors import ModelFailedError
from foretell.service.gil import joined

# What the batches before count for, next to the latest, in the measured pace.
_DECAY = 0.9


class Usage(NamedTuple):
    """What a queue holds.

    Attributes:
        windows: Those that wait.
        most_windows: Most that may.
        bytes: What the work holds that waits or is run.
        most_bytes: Most that it may.
    """

    windows: int
    most_windows: int
    bytes: int
    most_bytes: int


# Windows `start` to `stop` of some work, as part of a batch.
Slice = tuple[Run, int, int]


def assemble(slices: Sequence[Slice]) -> Arrays:
    """The feeds of a batch, `[batch, …]` by input name; those of a single slice are not copied."""
    feeds = {}
    for name in slices[0][0].feeds:
        parts = [work.feeds[name][start:stop] for work, start, stop in slices]
        feeds[name] = parts[0] if len(parts) == 1 else joined(parts)
    return feeds


def check_rows(outputs: Arrays, windows: int) -> None:
    """Make sure that a batch of so many windows came out as as many rows of everything.

    Raises:
        ModelFailedError: it did not.
    """
    for name, rows in outputs.items():
        if rows.ndim == 0 or len(rows) != windows:
            raise ModelFailedError(f"a batch of {windows} windows came out as {name} {rows.shape}")


class Observer(Protocol):
    """Told what happens to a queue's work, on the thread it happens on, mostly a worker's."""

    def ran(self, windows: int, limit: int, assembled: float, ran: float) -> None:
        """A batch was run.

        Args:
            windows: How many it had.
            limit: How many it might have had.
            assembled: Seconds that putting it together took.
            ran: Seconds that running it took.
        """

    def dropped(self, reason: Literal["expired", "cancelled"]) -> None:
        """Work was given up that waited, or part of it: its deadline passed, or its client left."""

    def changed(self) -> None:
        """The model has failed, or works again."""


_Child = TypeVar("_Child", bound="Share[Any]")


class Share(Generic[_Child]):
    """A node of the tree of fair shares: all workers, the queues, and the graphs of each queue.

    The children with windows waiting have even shares of a node's seconds (start-time fair
    queueing): next is the one that has used least, of several the one whose turn was longest ago.
    None saves up by not waiting: it then counts as having used what the last one had at its turn.

    Args:
        parent: The node above it; the root has none.

    Attributes:
        waiting: Windows that are in no batch yet, and may be in the next.
        aside: Those that wait for something else than a worker, and take no part.
        active: The children that have some waiting.
        used: Seconds of workers.
        least: What the last child had used whose turn it was.
    """

    def __init__(self, parent: Share[Any] | None) -> None:
        self.parent = parent
        self.waiting = 0
        self.aside = 0
        self.active: dict[_Child, None] = {}
        self.used = 0.0
        self.least = 0.0

    def count(self, windows: int) -> None:
        """More windows wait, or fewer, here and above."""
        node: Share[Any] = self
        while (parent := node.parent) is not None:
            if not node.waiting:
                node.used = max(node.used, parent.least)
                parent.active[node] = None
            node.waiting += windows
            if not node.waiting:
                del parent.active[node]
            node = parent
        node.waiting += windows

    def charge(self, seconds: float) -> None:
        """More seconds are used, or fewer, here and above."""
        node: Share[Any] | None = self
        while node is not None:
            node.used += seconds
            node = node.parent

    def next(self) -> _Child:
        """The child whose turn it is; some must be active."""
        child = min(self.active, key=attrgetter("used"))
        self.least = max(self.least, child.used)
        self.active[child] = self.active.pop(child)
        return child


class GraphQueue(Share[Any]):
    """The work of one graph of a queue, whose windows may share a batch.

    Where not all of it fits a batch, half is for the oldest work, and half for the oldest small
    work, which fits such a half. So large work holds up no small work, small work that keeps coming
    does not hold up large work, and none waits for more than twice the batches that strictly first
    come, first served would take.

    Args:
        parent: The queue.
        max_batch: Most windows in a batch.

    Attributes:
        paused: Whether what waits is counted aside.
        works: The work that waits, or whose last part does; oldest first.
        pace: Seconds that a window keeps a worker busy, as measured; 0 before.
    """

    def __init__(self, parent: Share[GraphQueue], max_batch: int) -> None:
        super().__init__(parent)
        self.queue = parent
        self.max_batch = max_batch
        self.paused = False
        # Not plain dicts, which are slow to read from the front once that was deleted.
        self.works: OrderedDict[Run, None] = OrderedDict()
        self.pace = 0.0
        self._small: OrderedDict[Run, None] = OrderedDict()
        self._odd = 0
        self._windows = 0.0
        self._seconds = 0.0

    def add(self, work: Run) -> None:
        """Work comes to wait."""
        self.works[work] = None
        if work.windows <= max(1, self.max_batch // 2):
            self._small[work] = None
        if self.paused:
            self.queue.aside += work.windows
        else:
            self.count(work.windows)

    def remove(self, work: Run) -> None:
        """Work that is there leaves."""
        del self.works[work]
        self._small.pop(work, None)
        windows = work.windows - work.taken
        if windows and self.paused:
            self.queue.aside -= windows
        elif windows:
            self.count(-windows)

    def pause(self) -> None:
        """Have workers leave out what waits, and what will come."""
        if not self.paused:
            self.paused = True
            self.queue.aside += self.waiting
            self.count(-self.waiting)

    def resume(self) -> None:
        """Have workers take what waits."""
        if self.paused:
            self.paused = False
            windows = sum(work.windows - work.taken for work in self.works)
            self.queue.aside -= windows
            self.count(windows)

    def take(self, most: int, now: float) -> tuple[list[Slice], list[Run]]:
        """Take `most` windows or fewer: one slice of each work; and late work that was in the way.

        Both leave. `now` is on the clock of `time.monotonic`.
        """
        most = min(most, self.max_batch)
        kept = 0
        if self.waiting > most and self._small:
            # Of an odd number, small work gets the larger half every other time.
            kept = (most + self._odd) // 2
            self._odd ^= 1
        taken: dict[Run, int] = {}
        late = []
        room = 0
        for works, more in ((self.works, most - kept), (self._small, kept), (self.works, 0)):
            room += more
            while room and works:
                work = next(iter(works))
                if work.deadline <= now:
                    self.remove(work)
                    late.append(work)
                    continue
                windows = min(room, work.windows - work.taken)
                room -= windows
                work.taken += windows
                taken[work] = taken.get(work, 0) + windows
                if work.taken == work.windows:
                    self.remove(work)
        if taken:
            self.count(-sum(taken.values()))
        return [(work, work.taken - windows, work.taken) for work, windows in taken.items()], late

    def measured(self, windows: int, seconds: float) -> None:
        """A batch kept a worker busy."""
        self._windows = _DECAY * self._windows + windows
        self._seconds = _DECAY * self._seconds + seconds
        self.pace = self._seconds / self._windows
