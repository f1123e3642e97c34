"""Runs without a waiting client: they are taken only while no other windows wait.

One batch of them runs at a time, alone, so that most inference threads stay free for others.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from foretell.service.engine.run import Run
from foretell.service.errors import QueueFullError

if TYPE_CHECKING:
    from foretell.service.engine.queues import Queue

# Most windows and bytes of all models that wait or run. The bound is small: results that come much
# later are of little use.
MOST_WINDOWS = 512
MOST_BYTES = 32 * 1024 * 1024
_RETRY_SECONDS = 1


class Background:
    """The background runs of all models, oldest first; guarded by the lock of their root.

    Attributes:
        running: Whether a batch of them runs.
        runs: Waiting runs and their queues.
    """

    def __init__(self) -> None:
        self.running = False
        self.runs: OrderedDict[Run, Queue] = OrderedDict()
        self._windows = 0
        self._bytes = 0

    def add(self, run: Run, queue: Queue) -> None:
        """Add a run.

        Raises:
            QueueFullError: it does not fit.
        """
        if self._windows + run.windows > MOST_WINDOWS or self._bytes + run.bytes > MOST_BYTES:
            raise QueueFullError(
                f"{self._windows} windows wait in the background, with {self._bytes} bytes: "
                f"{run.windows} more with {run.bytes} bytes do not fit",
                retry_after=_RETRY_SECONDS,
            )
        self.runs[run] = queue
        self._windows += run.windows
        self._bytes += run.bytes

    def of(self, queue: Queue, graph: str | None = None) -> list[Run]:
        """The waiting runs of a queue, of one graph or all."""
        runs = self.runs.items()
        return [run for run, own in runs if own is queue and graph in (None, run.graph)]

    def late(self) -> list[tuple[Run, Queue]]:
        """The waiting runs whose deadline has passed."""
        now = time.monotonic()
        return [(run, queue) for run, queue in self.runs.items() if run.deadline <= now]

    def next(self) -> tuple[Run, Queue]:
        """The oldest waiting run, and its queue."""
        return next(iter(self.runs.items()))

    def take(self, run: Run, most: int) -> tuple[int, int]:
        """Take the next windows of a run, at most `most`; returns their start and stop."""
        start, run.taken = run.taken, min(run.windows, run.taken + most)
        if run.taken == run.windows:
            del self.runs[run]
        return start, run.taken

    def end(self, run: Run) -> None:
        """Forget a run that has ended."""
        self.runs.pop(run, None)
        self._windows -= run.windows
        self._bytes -= run.bytes
