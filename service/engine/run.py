"""An accepted run of a model: the future of its outputs."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError

from foretell.service.arrays import Arrays
from foretell.service.errors import ModelFailedError, ServiceError

_logger = logging.getLogger(__name__)


class Run:
    """Windows to run through a model, together or in parts; the future of their outputs.

    Its runner calls `succeed` or `fail`, on any thread; the first call decides. A scheduler calls
    `end` with its lock held, and `notify` without. Times are on the clock of `time.monotonic`.
    `concurrent.futures.Future` would take as long as the rest of a scheduler.

    `cancel` fails the run with `CancelledError` unless it has ended. `feeds`, `[windows, …]` by
    input name, are empty if another process has them.

    Attributes:
        background: Whether it is taken only while nothing else waits.
        submitted: When it was made, or when the load ended that it waited for.
        began: When the first of its batches was taken; infinity before.
        ended: When the last of its batches had run.
        loading: Seconds that it waited for a load; 0 without a load.
        batch: Windows of the largest of its batches.
        bytes: Size of its feeds and, once it is split, of the arrays for its outputs.
        taken: Number of its first windows that are in batches.
        delivered: Number of its windows that were run.
        outputs: `[windows, …]` by name, once it has succeeded.
    """

    def __init__(
        self,
        cancel: Callable[[Run], None],
        graph: str = "",
        feeds: Arrays | None = None,
        attention: Sequence[str] = (),
        deadline: float = math.inf,
        *,
        background: bool = False,
    ) -> None:
        self.graph = graph
        self.feeds = feeds or {}
        self.attention = attention
        self.deadline = deadline
        self.background = background
        self.submitted = time.monotonic()
        self.began = math.inf
        self.ended = 0.0
        self.loading = 0.0
        self.batch = 0
        self.bytes = self.windows = 0
        for rows in self.feeds.values():
            self.bytes += rows.nbytes
            self.windows = len(rows)
        self.taken = 0
        self.delivered = 0
        self.outputs: Arrays = {}
        self.error: Exception | None = None
        self.over = False
        self._cancel = cancel
        self._callbacks: deque[Callable[[Run], object]] = deque()

    def done(self) -> bool:
        return self.over

    def result(self, timeout: float | None = None) -> Arrays:
        """Wait for its outputs, `[windows, …]` by name; raises its error, or TimeoutError."""
        if not self.over:
            done = threading.Event()
            self.add_done_callback(lambda _: done.set())
            if not done.wait(timeout):
                raise TimeoutError
        if self.error is not None:
            raise own_error(self.error)
        return self.outputs

    def cancel(self) -> bool:
        """Give it up: its waiting windows are not run. Returns False if it had ended before."""
        if not self.over:
            self._cancel(self)
        return isinstance(self.error, CancelledError)

    def add_done_callback(self, callback: Callable[[Run], object], /) -> None:
        """Call a function with it once it has ended, on any thread; at once if it has."""
        self._callbacks.append(callback)
        # If it ends right now, this thread or the ending one sees the callback, or both do.
        if self.over:
            self.notify()

    def succeed(self, outputs: Arrays) -> None:
        """End it with outputs, and call its callbacks; does nothing if it has ended."""
        if not self.over:
            self.outputs = outputs
            self.over = True
            self.notify()

    def fail(self, error: BaseException) -> None:
        """End it with an error, and call its callbacks; does nothing if it has ended."""
        if not self.over:
            self.end(error)
            self.notify()

    def end(self, error: BaseException) -> None:
        """End it with an error; `notify` has to follow."""
        self.outputs = {}
        self.error = own_error(error)
        if not self.taken:
            # No batch reads them, and its client may hold the run for longer.
            self.feeds = {}
        self.over = True

    def notify(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:
                return
            notify(callback, self)


def notify(callback: Callable[..., object], *values: object) -> None:
    """Call a callback of another part; its failure is only logged."""
    try:
        callback(*values)
    except Exception:
        _logger.exception("a callback of a run failed")


def own_error(error: BaseException) -> Exception:
    """A copy of an error for one client, as raising an error adds to its traceback.

    A raised error holds the frames that it passed, and most of these hold the run: a cycle, which
    only the garbage collector would free. An error that is not a `ServiceError` becomes the cause
    of a `ModelFailedError`.
    """
    if isinstance(error, CancelledError):
        return CancelledError()
    if isinstance(error, ServiceError):
        # `copy` would call the constructor with only the message.
        own = type(error).__new__(type(error), *error.args)
        own.__dict__.update(error.__dict__)
        own.__cause__ = error.__cause__
        return own
    failure = ModelFailedError("the model could not be run")
    failure.__cause__ = error
    return failure
