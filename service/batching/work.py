"""Windows that somebody waits for, and the slices of them that go into batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np

from foretell.service.arrays import Arrays
from foretell.service.errors import ModelFailedError, ServiceError


class Work(Future[Arrays]):
    """Windows to run together or in parts; the future of their outputs, `[windows, …]` by name.

    Args:
        graph: What to run them through.
        feeds: `[windows, …]` by input name, at least one window.
        deadline: On the clock of `time.monotonic`.
        submitted: On the same clock.

    Attributes:
        windows: How many there are.
        taken: How many went into batches, the first ones first.
        delivered: How many have their outputs.
        bytes: What it holds: its feeds and, once it is split, room for its outputs.
        over: Whether its outcome is decided.
        outputs: Those that are there; of split work, in arrays for all.
        ticket: Of its deadline.
        began: When the first of its batches was taken; infinity before.
        ended: When the last of them had run.
        batch: Windows of the largest of them.
    """

    def __init__(self, graph: str, feeds: Arrays, deadline: float, submitted: float) -> None:
        super().__init__()
        self.graph = graph
        self.feeds = feeds
        self.deadline = deadline
        self.submitted = submitted
        self.windows = len(next(iter(feeds.values())))
        self.bytes = sum(rows.nbytes for rows in feeds.values())
        self.taken = 0
        self.delivered = 0
        self.over = False
        self.outputs: Arrays = {}
        self.ticket = -1
        self.began = math.inf
        self.ended = 0.0
        self.batch = 0

    @property
    def waiting(self) -> int:
        """Windows that are in no batch yet."""
        return self.windows - self.taken

    def ran(self, taken: float, ended: float, windows: int) -> None:
        """A batch that some of it was in has run; times are on the clock of `time.monotonic`."""
        self.began, self.ended = min(self.began, taken), max(self.ended, ended)
        self.batch = max(self.batch, windows)

    def succeed(self) -> None:
        """Tell who waits, if anybody still does."""
        if self.set_running_or_notify_cancel():
            self.set_result(self.outputs)

    def fail(self, error: BaseException) -> None:
        """As `succeed`; each of several gets a copy, as raising an error adds to its traceback."""
        self.outputs = {}
        if self.set_running_or_notify_cancel():
            self.set_exception(_own(error))


class Slice(NamedTuple):
    """Windows `start` to `stop` of some work, as part of a batch."""

    work: Work
    start: int
    stop: int

    @property
    def whole(self) -> bool:
        """Whether these are all windows of the work."""
        return self.stop - self.start == self.work.windows


def assemble(slices: Sequence[Slice]) -> Arrays:
    """The feeds of a batch, `[batch, …]` by input name; a single slice is not copied."""
    rows = [
        {name: feed[start:stop] for name, feed in work.feeds.items()}
        for work, start, stop in slices
    ]
    if len(rows) == 1:
        return rows[0]
    return {name: np.concatenate([feeds[name] for feeds in rows]) for name in rows[0]}


def divide(slices: Sequence[Slice], outputs: Arrays) -> Iterator[tuple[Slice, Arrays]]:
    """What is each slice's of the outputs of their batch, as views.

    Raises:
        ModelFailedError: the outputs have not as many rows as the batch.
    """
    windows = sum(stop - start for _, start, stop in slices)
    for name, rows in outputs.items():
        if rows.ndim == 0 or len(rows) != windows:
            raise ModelFailedError(f"a batch of {windows} windows came out as {name} {rows.shape}")
    first = 0
    for part in slices:
        last = first + part.stop - part.start
        yield part, {name: rows[first:last] for name, rows in outputs.items()}
        first = last


def _own(error: BaseException) -> ServiceError:
    if isinstance(error, ServiceError):
        # Not by `copy`, which would call the constructor with the message alone.
        own = type(error).__new__(type(error), *error.args)
        own.__dict__.update(error.__dict__)
        own.__cause__ = error.__cause__
        return own
    failure = ModelFailedError("the model could not be run")
    failure.__cause__ = error
    return failure
