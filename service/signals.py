"""Signals that end a server, and signals that it ignores."""

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

# Signals of a closing terminal and of its keys. Without a handler they end Python at once.
_TERMINAL = (signal.SIGHUP, signal.SIGQUIT)
# Log rotation sends these to programs that write log files. They, too, would end Python.
_IGNORED = (signal.SIGUSR1, signal.SIGUSR2)
_ALL = (signal.SIGTERM, signal.SIGINT, *_TERMINAL, *_IGNORED)
# `timeout`, for one, signals a process and then its group: that is one signal.
_ECHO_SECONDS = 0.5


@contextmanager
def stop_signals(handler: Callable[..., object]) -> Iterator[None]:
    """Call a handler, as of `signal.signal`, for signals that end the server.

    For the main thread. Ignored signals of terminals stay ignored, as under `nohup`.
    """
    before: dict[signal.Signals, Any] = {}
    for number in (signal.SIGTERM, signal.SIGINT, *_TERMINAL):
        if number not in _TERMINAL or signal.getsignal(number) is not signal.SIG_IGN:
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
def stop_signals_woken(handler: Callable[..., object]) -> Iterator[socket.socket]:
    """As `stop_signals`; yields a socket that gets a byte as soon as a signal arrives.

    Python only calls a handler once the main thread runs Python code again.
    """
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            with stop_signals(handler):
                yield reader
        finally:
            signal.set_wakeup_fd(before)


def end_at_once(*_: object) -> NoReturn:
    """End this process, which has no requests yet; may be a signal's handler."""
    logging.shutdown()
    os._exit(0)


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Block signals for processes that are started here, until they call `accept_signals`.

    A signal to all processes of a server would end a process without its handlers.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def accept_signals() -> None:
    """Accept SIGTERM, including a deferred one; other signals are for the parent."""
    for number in (signal.SIGINT, *_TERMINAL, *_IGNORED):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ALL)


class SignalDebounce:
    def __init__(self) -> None:
        # Time of the last signal that was not an echo, on the clock of `time.monotonic`.
        self.last = -math.inf

    def is_echo(self) -> bool:
        now = time.monotonic()
        if now - self.last < _ECHO_SECONDS:
            return True
        self.last = now
        return False
