"""Signals that end a server: SIGTERM and SIGINT."""

from __future__ import annotations

import math
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# `timeout`, for one, signals a process and then its group: that is one signal.
_ECHO_SECONDS = 0.5


@contextmanager
def heard(handler: Callable[..., object]) -> Iterator[socket.socket]:
    """Have them call a function, within; for the main thread.

    Args:
        handler: As of `signal.signal`. It is called only once the main thread is back from what it
            is at.

    Yields:
        A socket that gets a byte for each at once.
    """
    ours, pythons = socket.socketpair()
    with ours, pythons:
        pythons.setblocking(False)
        before = signal.set_wakeup_fd(pythons.fileno(), warn_on_full_buffer=False)
        handlers = {
            number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(before)
            for number, handler_before in handlers.items():
                signal.signal(number, handler_before)


class Echoes:
    """Tells signals from echoes of the one before.

    Attributes:
        last: When the last signal came that was none, on the clock of `time.monotonic`.
    """

    def __init__(self) -> None:
        self.last = -math.inf

    def is_one(self) -> bool:
        """Whether the signal that has just come is one."""
        now = time.monotonic()
        if now - self.last < _ECHO_SECONDS:
            return True
        self.last = now
        return False
