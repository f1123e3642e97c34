"""What CUDA does not allow at the same time in a process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Exclusion:
    """Keeps captures of CUDA graphs away from the calls that would break them.

    While onnxruntime captures, CUDA forbids every thread of the process, whichever GPU it uses, to
    allocate or free memory, to copy without a stream, and to wait for a GPU as a whole; who does so
    all the same gets an error, and so does the capture. What goes to a stream of its own may go on:
    copies of pinned memory and replays.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._capturing = False
        self._captures_waiting = 0
        self._calls = 0

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Around a capture: there is one at a time, and no call."""
        with self._changed:
            self._captures_waiting += 1
            try:
                self._changed.wait_for(lambda: not self._capturing and not self._calls)
            finally:
                self._captures_waiting -= 1
            self._capturing = True
        try:
            yield
        finally:
            with self._changed:
                self._capturing = False
                self._changed.notify_all()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Around what a capture forbids, once on a thread; captures that wait come first."""
        with self._changed:
            self._changed.wait_for(lambda: not self._capturing and not self._captures_waiting)
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()
