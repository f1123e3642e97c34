"""Starts processes that do the same, and sees to it that they live as long as it does."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from foretell.service.errors import StartError

_logger = logging.getLogger(__name__)

# onnxruntime's threads and CUDA's state do not survive a fork.
_context = multiprocessing.get_context("spawn")

Pulse = Callable[[], None]
# Runs in a process, with its number, until that is told to stop by SIGTERM.
Target = Callable[[int, Pulse], None]

_TICK_SECONDS = 1.0
_MOST_MISSED = 60
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_STEADY_SECONDS = 60.0


class Supervisor:
    """Runs a function in several processes until SIGTERM or SIGINT.

    One that ends takes no other with it: another takes its place, after a pause that grows if that
    happens again and again. One that cannot even begin ends all.

    Args:
        target: Module-level function or a partial of one.
        count: Number of processes.
        stop_seconds: Time they have to end when they are told to.
        on_end: Called with the number of a process that has ended.
    """

    def __init__(
        self,
        target: Target,
        count: int,
        *,
        stop_seconds: float,
        on_end: Callable[[int], None],
    ) -> None:
        self._stop_seconds = stop_seconds
        self._workers = [_Worker(target, slot, stop_seconds, on_end) for slot in range(count)]
        self._signals = 0

    def run(self) -> bool:
        """Watch until told to stop.

        Returns:
            Whether all processes have ended as they should.

        Raises:
            StartError: one could not begin; the message is its reason.
        """
        with self._listening() as woken:
            try:
                for worker in self._workers:
                    worker.start()
                self._watch(woken)
            except BaseException:
                self._stop(woken)
                raise
            return self._stop(woken)

    def _watch(self, woken: socket.socket) -> None:
        ticked = time.monotonic()
        while not self._signals:
            self._wait(woken, _TICK_SECONDS)
            now = time.monotonic()
            for worker in self._workers:
                worker.check(now)
            # Counted rather than timed: a machine that was asleep kills nobody.
            if now - ticked >= _TICK_SECONDS:
                ticked = now
                for worker in self._workers:
                    worker.tick()

    def _stop(self, woken: socket.socket) -> bool:
        end = time.monotonic() + self._stop_seconds
        told = -1
        while any(worker.alive for worker in self._workers) and time.monotonic() < end:
            if told != self._signals:
                # Told again, they do not wait for what they have begun.
                told = self._signals
                for worker in self._workers:
                    worker.terminate()
            self._wait(woken, min(_TICK_SECONDS, max(0.0, end - time.monotonic())))
        clean = [worker.end() for worker in self._workers]
        return all(clean)

    def _wait(self, woken: socket.socket, seconds: float) -> None:
        """Until a process says something or ends, or a signal comes."""
        waited = [source for worker in self._workers for source in worker.sources]
        connection.wait([woken, *waited], seconds)
        with suppress(BlockingIOError):
            woken.recv(64)

    @contextmanager
    def _listening(self) -> Iterator[socket.socket]:
        """Have signals counted, and a byte sent for each."""

        def count(*_: object) -> None:
            self._signals += 1

        ours, pythons = socket.socketpair()
        with ours, pythons:
            ours.setblocking(False)
            pythons.setblocking(False)
            before = signal.set_wakeup_fd(pythons.fileno(), warn_on_full_buffer=False)
            handlers = {
                number: signal.signal(number, count) for number in (signal.SIGTERM, signal.SIGINT)
            }
            try:
                yield ours
            finally:
                signal.set_wakeup_fd(before)
                for number, handler in handlers.items():
                    signal.signal(number, handler)


class _Worker:
    """The place of one process, whoever fills it."""

    def __init__(
        self,
        target: Target,
        slot: int,
        stop_seconds: float,
        on_end: Callable[[int], None],
    ) -> None:
        self._target = target
        self._slot = slot
        self._stop_seconds = stop_seconds
        self._on_end = on_end
        self._process: SpawnProcess | None = None
        self._reports: Connection | None = None
        self._reason: str | None = None
        self._has_served = False
        self._serves = False
        self._missed = 0
        self._since = 0.0
        self._pause = 0.0
        self._resumes = 0.0

    @property
    def alive(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and self._process.is_alive()

    @property
    def sources(self) -> list[Connection | int]:
        """What changes when the process says something or ends."""
        if self._process is None or self._reports is None:
            return []
        return [self._reports, self._process.sentinel]

    def start(self) -> None:
        """Fill the place."""
        reports, theirs = _context.Pipe(duplex=False)
        arguments = (self._target, self._slot, theirs, self._stop_seconds)
        process = _context.Process(target=_enter, args=arguments, name=f"worker-{self._slot}")
        try:
            process.start()
        except BaseException:
            reports.close()
            raise
        finally:
            theirs.close()
        self._process, self._reports = process, reports
        self._since = time.monotonic()
        self._serves, self._reason, self._missed = False, None, 0

    def check(self, now: float) -> None:
        """Take note of what the process said, and replace it if it has ended.

        Raises:
            StartError: it has ended before it ever served.
        """
        if self._process is None:
            if now >= self._resumes:
                try:
                    self.start()
                except OSError as error:
                    # Of memory or of processes: the others go on.
                    self._pause = min(2 * self._pause, _LONGEST_PAUSE) or _FIRST_PAUSE
                    self._resumes = now + self._pause
                    _logger.error("no process starts: %s; again in %g s", error, self._pause)
            return
        self._listen()
        if self._process.is_alive():
            return
        how = self._reason or f"a process of the server ended with {_said(self._process.exitcode)}"
        self.end()
        if not self._has_served:
            raise StartError(how if self._reason else f"{how} before it could serve")
        steady = self._serves and now - self._since > _STEADY_SECONDS
        again = self._pause and not steady
        self._pause = min(2 * self._pause, _LONGEST_PAUSE) if again else _FIRST_PAUSE
        self._resumes = now + self._pause
        _logger.error("%s; another one takes its place in %g s", how, self._pause)

    def tick(self) -> None:
        """Another second without a word; a process that says nothing for a minute is stuck."""
        self._missed += 1
        if self._serves and self._missed > _MOST_MISSED and self._process is not None:
            _logger.error("process %d is stuck", self._process.pid)
            self._process.kill()

    def terminate(self) -> None:
        """Tell the process to end."""
        if self._process is not None and self.alive:
            self._process.terminate()

    def end(self) -> bool:
        """Clear the place, by force if need be; returns whether the process ended as it should."""
        if self._process is None or self._reports is None:
            return True
        process, self._process = self._process, None
        killed = process.is_alive()
        if killed:
            _logger.error("process %d does not end by itself", process.pid)
            process.kill()
        process.join()
        self._reports.close()
        self._on_end(self._slot)
        # One that was told while it still began did not catch the signal.
        return not killed and process.exitcode in (0, -signal.SIGTERM)

    def _listen(self) -> None:
        assert self._reports is not None  # noqa: S101 - there is a process
        with suppress(EOFError, OSError):
            while self._reports.poll():
                self._reason = self._reports.recv()
                if self._reason is None:
                    self._serves = self._has_served = True
                    self._missed = 0


def _enter(target: Target, slot: int, reports: Connection, stop_seconds: float) -> None:
    """The beginning of a process."""
    # From a terminal it goes to all processes; who watches tells them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(stop_seconds,), daemon=True).start()

    def pulse() -> None:
        with suppress(OSError):
            reports.send(None)

    try:
        target(slot, pulse)
    except StartError as error:
        with suppress(OSError):
            reports.send(str(error))
        sys.exit(2)


def _end_with_parent(stop_seconds: float) -> None:
    """End when nobody watches any more."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101 - this is a child
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(stop_seconds)
    os._exit(1)


def _said(status: int | None) -> str:
    if status is not None and status < 0:
        return f"{signal.Signals(-status).name}"
    return f"status {status}"
