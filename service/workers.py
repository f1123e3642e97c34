"""The parent of a server's processes: it starts an engine and HTTP workers, and replaces them."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from ctypes import c_int64
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from foretell.service import logs
from foretell.service.engine.limits import use_one_heap
from foretell.service.errors import StartError
from foretell.service.http.sockets import reserve
from foretell.service.metrics import Processes
from foretell.service.settings import Settings
from foretell.service.signals import (
    SignalDebounce,
    accept_signals,
    deferred_signals,
    stop_signals_woken,
)

_logger = logging.getLogger(__name__)

# onnxruntime's threads and CUDA's state do not survive a fork.
_context = multiprocessing.get_context("spawn")

Heartbeat = Callable[[], None]
# Function of a process, which runs until SIGTERM, and after SIGINT stops at once. It calls its
# heartbeat about once a second.
Target = Callable[[Heartbeat], None]

_TICK_SECONDS = 1.0
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_STEADY_SECONDS = 60.0
# Time after the grace period to close models, and to write the last lines of the log.
_END_SECONDS = 5.0
# The engine's event loop only passes messages on.
_ENGINE_STUCK_SECONDS = 15
_BACKLOG = 128
_PARENT = "supervisor"
# Functions of the processes, in modules that the parent does not import.
_HTTP_WORKER = "foretell.service.server:run_worker"
_ENGINE = "foretell.service.engine_process:run_engine"


@dataclass(eq=False)
class Child:
    """A process, and its replacements.

    Attributes:
        target: Module-level function, or a partial of one.
        stop_seconds: Time to end after the end of its parent.
        stuck_seconds: Time without a heartbeat after which a serving process is killed.
        sockets: Sockets that it listens on. During an immediate replacement new connections wait;
            before a delayed one the sockets stop listening, and other processes get the
            connections.
    """

    name: str
    target: Target
    processes: Processes
    stop_seconds: float
    stuck_seconds: int = 60
    sockets: Sequence[socket.socket] = ()
    _process: SpawnProcess | None = None
    # Each message is a heartbeat (None), or the reason why the process could not start.
    _messages: Connection | None = None
    _reason: str | None = None
    _has_served: bool = False
    _serves: bool = False
    _missed: int = 0
    _since: float = 0.0
    _pause: float = 0.0
    _resumes: float = 0.0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.is_alive() else None

    @property
    def sources(self) -> list[Connection | int]:
        """Handles that signal a message or the end of the process; empty once it has ended."""
        if self._process is None or not self._process.is_alive():
            return []
        open_ones = [self._messages] if self._messages and not self._messages.closed else []
        return [self._process.sentinel, *open_ones]

    def start(self) -> None:
        messages, sender = _context.Pipe(duplex=False)
        arguments = (self.target, sender, self.stop_seconds)
        process = _context.Process(target=_run, args=arguments, name=self.name)
        # Otherwise the first process would start the tracker, which unblocks the signals.
        resource_tracker.ensure_running()
        with sender:
            try:
                with deferred_signals():
                    process.start()
            except BaseException:
                messages.close()
                raise
        self._process, self._messages, self._since = process, messages, time.monotonic()
        self._serves, self._reason, self._missed = False, None, 0

    def check(self) -> None:
        """Replace the process if it has ended; raises `StartError` if it never served."""
        if self._process is None:
            self._restart()
        elif not self._process.is_alive():
            self.read()
            name, status = self.name, _status(self._process.exitcode)
            reason = self._reason or f"a process of the server ({name}) ended with {status}"
            self.end()
            if not self._has_served:
                raise StartError(reason if self._reason else f"{reason} before it could serve")
            if self._serves and time.monotonic() - self._since > _STEADY_SECONDS:
                self._pause = 0.0
            self.processes.replaced(name)
            _logger.error("%s; another one takes its place in %g s", reason, self._pause)
            if self._pause:
                for listener in self.sockets:
                    with suppress(OSError):
                        listener.shutdown(socket.SHUT_RDWR)
            self._back_off()
            self._restart()

    def _restart(self) -> None:
        """Start a process after the pause."""
        if time.monotonic() < self._resumes:
            return
        try:
            self.start()
        except OSError as error:
            # Memory or processes are short; the other processes go on.
            self._pause = self._pause or _FIRST_PAUSE
            _logger.error("no process starts: %s; again in %g s", error, self._pause)
            self._back_off()

    def _back_off(self) -> None:
        """Delay the next start, and double the pause for the one after it."""
        self._resumes = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE) or _FIRST_PAUSE

    def read(self) -> None:
        if self._process is None or self._messages is None or self._messages.closed:
            return
        try:
            while self._messages.poll():
                self._reason = self._messages.recv()
                if self._reason is None:
                    self._serves = self._has_served = True
                    self._missed = 0
                    self.processes.serves(self.name, self._process.pid or 0)
        except (EOFError, OSError):
            # An ending process closes its end of the pipe first.
            self._messages.close()

    def tick(self) -> None:
        """Count a second without a heartbeat."""
        self._missed += 1
        if self._serves and self._missed > self.stuck_seconds and self._process is not None:
            _logger.error("process %d (%s) is stuck", self._process.pid, self.name)
            self._process.kill()

    def end(self) -> bool:
        """Remove the process, killing it if necessary; returns whether it ended cleanly."""
        if self._process is None:
            return True
        self.processes.serves(self.name, 0)
        process, self._process = self._process, None
        killed = process.is_alive()
        if killed:
            _logger.error("process %d (%s) does not end by itself", process.pid, self.name)
            process.kill()
        process.join()
        if self._messages is not None:
            self._messages.close()
        # A starting process does not catch SIGTERM yet.
        return not killed and process.exitcode in (0, -signal.SIGTERM)


class Supervisor:
    """Runs processes until SIGTERM or SIGINT, and replaces processes that end.

    A process that ends is replaced at once or, after repeated ends, after a growing pause; the
    others go on. A process that can never serve ends all. Each group is stopped after the end of
    the previous groups, within `stop_seconds`.
    """

    def __init__(self, *groups: Sequence[Child], stop_seconds: float) -> None:
        self._groups = groups
        self._children = [child for group in groups for child in group]
        self._stop_seconds = stop_seconds
        self._signals = 0
        self._debounce = SignalDebounce()

    def run(self) -> bool:
        """Watch until a signal; returns whether all processes have ended cleanly."""
        with stop_signals_woken(self._count) as wakeup:
            wakeup.setblocking(False)
            try:
                for child in self._children:
                    child.start()
                self._watch(wakeup)
            except BaseException:
                self._stop(wakeup)
                raise
            return self._stop(wakeup)

    def _watch(self, wakeup: socket.socket) -> None:
        ticked = time.monotonic()
        while not self._signals:
            self._wait(wakeup, _TICK_SECONDS)
            for child in self._children:
                child.check()
            # Counted instead of timed: a machine that wakes up must not kill processes.
            now = time.monotonic()
            if now - ticked >= _TICK_SECONDS:
                ticked = now
                for child in self._children:
                    child.tick()

    def _stop(self, wakeup: socket.socket) -> bool:
        clean = True
        for group in self._groups:
            end, sent = time.monotonic() + self._stop_seconds, -1
            while any(child.pid for child in group) and time.monotonic() < end:
                if sent != self._signals:
                    # After a second signal processes stop at once.
                    number = signal.SIGTERM if sent < 0 else signal.SIGINT
                    sent = self._signals
                    for pid in filter(None, [child.pid for child in group]):
                        os.kill(pid, number)
                self._wait(wakeup, min(_TICK_SECONDS, max(0.0, end - time.monotonic())))
            ended = [child.end() for child in group]
            clean = clean and all(ended)
        return clean

    def _wait(self, wakeup: socket.socket, seconds: float) -> None:
        sources = [source for child in self._children for source in child.sources]
        connection.wait([wakeup, *sources], seconds)
        for child in self._children:
            child.read()
        with suppress(BlockingIOError):
            wakeup.recv(64)

    def _count(self, *_: object) -> None:
        if not self._debounce.is_echo():
            self._signals += 1


def shared_processes(names: Sequence[str], workers: int) -> Processes:
    """The processes of a server in shared memory, HTTP workers first, this one last."""
    numbers = _context.RawArray(c_int64, 2 * (len(names) + 1))
    processes = Processes((*names, _PARENT), workers, numbers)
    processes.serves(_PARENT, os.getpid())
    return processes


def _run(target: Target, messages: Connection, stop_seconds: float) -> None:
    # A terminal, or `timeout`, signals a whole group of processes, meant for the parent.
    os.setpgid(0, 0)
    use_one_heap()
    accept_signals()
    threading.Thread(target=_end_with_parent, args=(stop_seconds,), daemon=True).start()

    def send(reason: str | None = None) -> None:
        with suppress(OSError):
            messages.send(reason)

    try:
        target(send)
    except StartError as error:
        send(str(error))
        sys.exit(2)


def _end_with_parent(stop_seconds: float) -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(stop_seconds)
    os._exit(1)


def _status(code: int | None) -> str:
    if code is not None and code < 0:
        with suppress(ValueError):
            return signal.Signals(-code).name
        return f"signal {-code}"
    return f"status {code}"


def run(settings: Settings) -> None:
    """Serve from several processes until SIGTERM or SIGINT; StartError if one cannot start."""
    with ExitStack() as stack:
        # The parent holds the sockets: while a worker is replaced, new connections wait.
        sockets: list[list[socket.socket]] = [[] for _ in range(settings.workers)]
        for port in settings.ports:
            reserved = reserve(settings.host, port, settings.workers)
            for own, of_port in zip(sockets, reserved, strict=True):
                own += map(stack.enter_context, of_port)
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="foretell-"))) / "engine"
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        try:
            listener.bind(str(path))
        except OSError as error:
            raise StartError(f"cannot listen on {path} (TMPDIR): {error}") from error
        listener.listen(_BACKLOG)
        names = [f"worker-{number}" for number in range(settings.workers)]
        processes = shared_processes([*names, "engine"], settings.workers)
        stop_seconds = settings.drain_delay_seconds + settings.grace_seconds + _END_SECONDS
        workers = []
        for name, own in zip(names, sockets, strict=True):
            target = partial(_call, _HTTP_WORKER, settings, path, own, processes)
            workers.append(Child(name, target, processes, stop_seconds, sockets=own))
        target = partial(_call, _ENGINE, settings, listener, processes)
        engine = Child("engine", target, processes, stop_seconds, _ENGINE_STUCK_SECONDS)
        if not Supervisor(workers, [engine], stop_seconds=stop_seconds).run():
            sys.exit(1)


def _call(function: str, settings: Settings, *arguments: object) -> None:
    logs.configure(settings.log_level, settings.log_format)
    module, _, name = function.partition(":")
    getattr(import_module(module), name)(settings, *arguments)
