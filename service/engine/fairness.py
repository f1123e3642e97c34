"""Fair queueing: the choice of windows for the next batch; without threads, under one lock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Generic, TypeVar

from foretell.service.engine.run import Run

# The weight of earlier batches, next to the latest, in the measured pace.
_DECAY = 0.9

# Windows `start` to `stop` of a run, as part of a batch.
Slice = tuple[Run, int, int]
_Child = TypeVar("_Child", bound="Node[Any]")


class Node(Generic[_Child]):
    """A node of the tree; its children with waiting windows share it evenly.

    Start-time fair queueing (Goyal, Vin and Cheng, 1996) of the seconds of inference threads. The
    next child is the one with the least service, and among equals the one whose turn was longest
    ago. An idle child saves nothing up: it begins at the virtual time.

    Attributes:
        waiting: Windows that may be in the next batch.
        held: Windows that wait for the session of their graph; of a model's queue only.
        active: Children with waiting windows.
        service: Seconds of inference threads that it has used.
        virtual_time: The service of the child whose turn was last, before that turn.
    """

    def __init__(self, parent: Node[Any] | None) -> None:
        self.parent = parent
        self.waiting = 0
        self.held = 0
        self.active: dict[_Child, None] = {}
        self.service = 0.0
        self.virtual_time = 0.0

    def count(self, windows: int) -> None:
        """Add to the windows that wait, here and above."""
        node: Node[Any] = self
        while (parent := node.parent) is not None:
            if not node.waiting:
                node.service = max(node.service, parent.virtual_time)
                parent.active[node] = None
            node.waiting += windows
            if not node.waiting:
                del parent.active[node]
            node = parent
        node.waiting += windows

    def charge(self, seconds: float) -> None:
        """Add to the service, here and above."""
        node: Node[Any] | None = self
        while node is not None:
            node.service += seconds
            node = node.parent

    def next(self) -> _Child:
        """The child whose turn it is; at least one must be active."""
        child = min(self.active, key=attrgetter("service"))
        self.virtual_time = max(self.virtual_time, child.service)
        self.active[child] = self.active.pop(child)
        return child


class GraphQueue(Node[Any]):
    """The runs of one graph of a model, whose windows may share a batch.

    If not all windows fit a batch, half of it is for the oldest runs, and half for the oldest small
    runs, which fit such a half. So large runs do not hold up small ones, and a stream of small runs
    does not hold up large ones. No run waits for more than twice the batches of strict first come,
    first served.

    Attributes:
        ask: Callback that requests the graph's session; None while it is open.
        runs: Runs with waiting windows; oldest first.
        held_runs: Runs that wait for the session; oldest first.
        pace: Measured seconds of an inference thread for a window; 0 before the first batch.
    """

    def __init__(self, queue: Node[Any], max_batch: int) -> None:
        super().__init__(queue)
        self.queue = queue
        self.max_batch = max_batch
        self.ask: Callable[[], object] | None = None
        # Plain dicts are slow to read from the front after deletions there.
        self.runs: OrderedDict[Run, None] = OrderedDict()
        self.held_runs: OrderedDict[Run, None] = OrderedDict()
        self.pace = 0.0
        self._small: OrderedDict[Run, None] = OrderedDict()
        self._odd = 0
        self._windows = 0.0
        self._seconds = 0.0

    def add(self, run: Run) -> None:
        """Queue a run; ServiceError if the session is not open, and cannot be opened now."""
        if self.ask is not None:
            self.ask()
            self.held_runs[run] = None
            self.queue.held += run.windows
            return
        self.runs[run] = None
        if run.windows <= max(1, self.max_batch // 2):
            self._small[run] = None
        self.count(run.windows)

    def remove(self, run: Run) -> None:
        if run in self.runs:
            del self.runs[run]
            self._small.pop(run, None)
            if windows := run.windows - run.taken:
                self.count(-windows)
        elif run in self.held_runs:
            del self.held_runs[run]
            self.queue.held -= run.windows

    def resume(self) -> None:
        """Queue the held runs with the others."""
        self.ask = None
        held, self.held_runs = self.held_runs, OrderedDict()
        for run in held:
            self.queue.held -= run.windows
            self.add(run)

    def take(self, most: int, now: float) -> tuple[list[Slice], list[Run]]:
        """Take at most `most` windows, one slice of each run; also returns the late runs it met."""
        most = min(most, self.max_batch)
        reserved = 0
        if self.waiting > most and self._small:
            # When `most` is odd, small runs get the larger half every other time.
            reserved = (most + self._odd) // 2
            self._odd ^= 1
        taken: dict[Run, int] = {}
        late = []
        room = 0
        for runs, more in ((self.runs, most - reserved), (self._small, reserved), (self.runs, 0)):
            room += more
            while room and runs:
                run = next(iter(runs))
                if run.deadline <= now:
                    self.remove(run)
                    late.append(run)
                    continue
                windows = min(room, run.windows - run.taken)
                room -= windows
                run.taken += windows
                taken[run] = taken.get(run, 0) + windows
                if run.taken == run.windows:
                    del self.runs[run]
                    self._small.pop(run, None)
        if taken:
            self.count(-sum(taken.values()))
        return [(run, run.taken - windows, run.taken) for run, windows in taken.items()], late

    def measure(self, windows: int, seconds: float) -> None:
        self._windows = _DECAY * self._windows + windows
        self._seconds = _DECAY * self._seconds + seconds
        self.pace = self._seconds / self._windows
