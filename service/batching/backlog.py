"""All that waits in a queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from foretell.service.arrays import Arrays
from foretell.service.batching.lane import Lane
from foretell.service.batching.observer import Observer
from foretell.service.batching.room import Room
from foretell.service.batching.turns import Turns
from foretell.service.batching.work import Slice, Work

Run = Callable[[int, str, Arrays], Arrays]


@dataclass(eq=False, slots=True)
class Batch:
    """Slices of work that run together.

    Attributes:
        backlog: Where they waited.
        lane: And in which lane.
        slices: At most one of any work.
        windows: How many these are.
        taken: When, on the clock of `time.monotonic`.
        expected: Seconds that a worker would be busy with it.
    """

    backlog: Backlog
    lane: Lane
    slices: list[Slice]
    windows: int
    taken: float
    expected: float


class Backlog:
    """The work of one queue; its graphs have even shares of the seconds that the queue has.

    Args:
        run: Runs a batch.
        observer: Told what happens to the work.
        room: How much may wait.
        max_batch: Most windows in a batch.
        graph_limits: Most windows in a batch of a graph, where that is fewer.

    Attributes:
        running: Batches that workers are busy with.
        draining: Whether new work is refused.
        closed: Whether all work is.
    """

    def __init__(
        self,
        run: Run,
        observer: Observer,
        room: Room,
        max_batch: int,
        graph_limits: Mapping[str, int],
    ) -> None:
        self.run = run
        self.observer = observer
        self.room = room
        self.running = 0
        self.draining = False
        self.closed = False
        self._max_batch = max_batch
        self._graph_limits = graph_limits
        self._lanes: dict[str, Lane] = {}
        self._turns: Turns[Lane] = Turns()

    @property
    def waiting(self) -> int:
        """Windows that are in no batch yet."""
        return self.room.windows

    @property
    def busy(self) -> bool:
        """Whether windows wait or run."""
        return self.waiting > 0 or self.running > 0

    def works(self) -> list[Work]:
        """The work that waits, or whose last part does."""
        return [work for lane in self._lanes.values() for work in lane.works()]

    def seconds(self) -> float:
        """How long one worker would be busy with all that waits."""
        return sum(lane.expected(lane.waiting) for lane in self._lanes.values())

    def add(self, work: Work) -> None:
        """Work comes to wait."""
        lane = self._lanes.get(work.graph)
        if lane is None:
            limit = min(self._max_batch, self._graph_limits.get(work.graph, self._max_batch))
            lane = self._lanes[work.graph] = Lane(limit)
        lane.add(work)
        self._turns.join(lane)
        self.room.windows += work.windows
        self.room.bytes += work.bytes

    def take(self, most: int, now: float) -> Batch:
        """The next batch; something must wait.

        Args:
            most: Most windows of it.
            now: On the clock of `time.monotonic`.
        """
        lane = self._turns.next()
        slices = lane.take(most)
        windows = sum(stop - start for _, start, stop in slices)
        batch = Batch(self, lane, slices, windows, now, lane.expected(windows))
        if not lane.waiting:
            self._turns.leave(lane)
        self._turns.charge(lane, batch.expected)
        self.room.windows -= windows
        self.running += 1
        return batch

    def done(self, batch: Batch, seconds: float) -> None:
        """A worker was busy with a batch for so long."""
        self._turns.charge(batch.lane, seconds - batch.expected)
        batch.lane.measured(batch.windows, seconds)
        self.running -= 1

    def keep(self, work: Work, outputs: Arrays) -> Arrays:
        """Where the outputs of all parts of split work go, whose first ones are given."""
        if not work.outputs:
            work.outputs = {
                name: np.empty((work.windows, *rows.shape[1:]), rows.dtype)
                for name, rows in outputs.items()
            }
            size = sum(rows.nbytes for rows in work.outputs.values())
            work.bytes += size
            self.room.bytes += size
        return work.outputs

    def end(self, work: Work) -> int:
        """Work leaves, run or not; returns how many windows of it still waited."""
        lane = self._lanes[work.graph]
        windows = lane.discard(work)
        if not lane.waiting:
            self._turns.leave(lane)
        self.room.windows -= windows
        self.room.bytes -= work.bytes
        return windows
