"""Signals that end a server, and signals that leave it alone."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

# Of a terminal that closes, and of its keys. Python ends at once by both.
_OF_TERMINALS = (signal.SIGHUP, signal.SIGQUIT)
# Log rotation sends these to programs that write log files. Python ends at once by both.
_IGNORED = (signal.SIGUSR1, signal.SIGUSR2)
_EVERY = (signal.SIGTERM, signal.SIGINT, *_OF_TERMINALS, *_IGNORED)
# `timeout`, for one, signals a process and then its group: that is one signal.
_ECHO_SECONDS = 0.5


@contextmanager
def handled(handler: Callable[..., object]) -> Iterator[None]:
    """Calls a function when a signal asks the server to end; for the main thread.

    Those of terminals stay ignored if they were, as `nohup` has it.

    Args:
        handler: As of `signal.signal`. It is called only once the main thread is back from what it
            is at.
    """
    before: dict[signal.Signals, Any] = {}
    for number in (signal.SIGTERM, signal.SIGINT, *_OF_TERMINALS):
        if number not in _OF_TERMINALS or signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handler)
    for number in _IGNORED:
        if signal.getsignal(number) is signal.SIG_DFL:
            before[number] = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


@contextmanager
def heard(handler: Callable[..., object]) -> Iterator[socket.socket]:
    """Handles signals as `handled` does, and tells of them at once.

    Yields:
        A socket that gets a byte, the signal's number, for each signal at once.
    """
    ours, pythons = socket.socketpair()
    with ours, pythons:
        pythons.setblocking(False)
        before = signal.set_wakeup_fd(pythons.fileno(), warn_on_full_buffer=False)
        try:
            with handled(handler):
                yield ours
        finally:
            signal.set_wakeup_fd(before)


def end_at_once(*_: object) -> NoReturn:
    """End this process, which nobody waits for yet; may be the handler of a signal."""
    logging.shutdown()
    os._exit(0)


@contextmanager
def held_back() -> Iterator[None]:
    """Has signals wait in processes that are started within, until `let_in` is called there.

    Whoever signals all processes of a server would end one that is not yet ready for that.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _EVERY)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_in() -> None:
    """Take SIGTERM alone, and what of it has waited; other signals are for the one that watches."""
    for number in (signal.SIGINT, *_OF_TERMINALS, *_IGNORED):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _EVERY)


class SignalDebounce:
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
