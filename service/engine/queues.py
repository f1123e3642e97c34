"""Work, and which of it goes into the next batch; without threads, under the batcher's lock."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from foretell.service.arrays import Arrays
from foretell.service.errors import ModelFailedError, ServiceError
from foretell.service.gil import joined

_logger = logging.getLogger(__name__)

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


class Work:
    """Windows to run together or in parts; the future of their outputs, `[windows, …]` by name.

    `concurrent.futures.Future` would cost as much as all the rest of the batcher. Times are on the
    clock of `time.monotonic`.

    Args:
        graph: What to run them through.
        feeds: `[windows, …]` by input name, at least one window.
        attention: As of `arrays.asked_for`: the outputs that are wanted.
        deadline: When its client gives it up.
        drop: Ends the work as cancelled, unless it has ended.

    Attributes:
        submitted: When it was made.
        began: When the first of its batches was taken; infinity before.
        ended: When the last of them had run.
        batch: Windows of the largest of them.
        loading: 0: its model is in memory.
    """

    loading = 0.0

    def __init__(
        self,
        graph: str,
        feeds: Arrays,
        attention: Sequence[str],
        deadline: float,
        drop: Callable[[Work], None],
    ) -> None:
        self.graph = graph
        self.feeds = feeds
        self.attention = attention
        self.deadline = deadline
        self.submitted = time.monotonic()
        self.began = math.inf
        self.ended = 0.0
        self.batch = 0
        # What it holds: its feeds and, once it is split, arrays for all of its outputs.
        self.bytes = 0
        self.outputs: Arrays = {}
        for rows in feeds.values():
            self.bytes += rows.nbytes
        # How many windows it has, are in batches (the first ones first), and were run.
        self.windows = len(rows)
        self.taken = 0
        self.delivered = 0
        # What it failed with, and whether its outcome is decided: under the batcher's lock.
        self.error: Exception | None = None
        self.over = False
        self._drop = drop
        self._callbacks: deque[Callable[[Work], object]] = deque()

    def done(self) -> bool:
        """Whether it has its outputs, has failed or was cancelled."""
        return self.over

    def result(self, timeout: float | None = None) -> Arrays:
        """Wait for its outputs, `[windows, …]` by name, for at most `timeout` seconds.

        Raises:
            TimeoutError: they are not there by then.
            Exception: what it failed with; `CancelledError` if it was cancelled.
        """
        if not self.over:
            done = threading.Event()
            self.add_done_callback(lambda _: done.set())
            if not done.wait(timeout):
                raise TimeoutError
        if self.error is not None:
            raise own_error(self.error)
        return self.outputs

    def cancel(self) -> bool:
        """Give it up: what of it still waits is not run. Returns False if it was done before."""
        if not self.over:
            self._drop(self)
        return isinstance(self.error, CancelledError)

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """Have a function called with it when it is done, on any thread; at once if it is."""
        self._callbacks.append(callback)
        # If it ends right now, this sees that, or who ends it sees the callback, or both do.
        if self.over:
            self.notify()

    def notify(self) -> None:
        """Call the callbacks, each once; for whoever has ended it, without the lock."""
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:
                return
            tell(callback, self)


# Windows `start` to `stop` of some work, as part of a batch.
Slice = tuple[Work, int, int]


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


def own_error(error: BaseException) -> Exception:
    """A copy of an error for one client: raising an error adds to its traceback.

    Who keeps what was raised keeps the frames that it passed, and most of these keep him: a cycle,
    for which garbage would have to be collected. What is no error of the service becomes the cause
    of one.
    """
    if isinstance(error, CancelledError):
        return error
    if isinstance(error, ServiceError):
        # Not by `copy`, which would call the constructor with the message alone.
        own = type(error).__new__(type(error), *error.args)
        own.__dict__.update(error.__dict__)
        own.__cause__ = error.__cause__
        return own
    failure = ModelFailedError("the model could not be run")
    failure.__cause__ = error
    return failure


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


def tell(callback: Callable[..., object], *values: object) -> None:
    """Call what others wrote, without the lock; if it fails, that costs a line in the log."""
    try:
        callback(*values)
    except Exception:
        _logger.exception("a callback of a queue failed")


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
        self.works: OrderedDict[Work, None] = OrderedDict()
        self.pace = 0.0
        self._small: OrderedDict[Work, None] = OrderedDict()
        self._odd = 0
        self._windows = 0.0
        self._seconds = 0.0

    def add(self, work: Work) -> None:
        """Work comes to wait."""
        self.works[work] = None
        if work.windows <= max(1, self.max_batch // 2):
            self._small[work] = None
        if self.paused:
            self.queue.aside += work.windows
        else:
            self.count(work.windows)

    def remove(self, work: Work) -> None:
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

    def take(self, most: int, now: float) -> tuple[list[Slice], list[Work]]:
        """Take `most` windows or fewer: one slice of each work; and late work that was in the way.

        Both leave. `now` is on the clock of `time.monotonic`.
        """
        most = min(most, self.max_batch)
        kept = 0
        if self.waiting > most and self._small:
            # Of an odd number, small work gets the larger half every other time.
            kept = (most + self._odd) // 2
            self._odd ^= 1
        taken: dict[Work, int] = {}
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
