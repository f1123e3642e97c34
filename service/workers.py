"""A server: one process, or an engine and several doors, and what watches over these."""

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
from foretell.service.engine.limits import use_all_files, use_one_heap
from foretell.service.errors import StartError
from foretell.service.http.auth import Keys
from foretell.service.http.sockets import reserve
from foretell.service.metrics import Processes
from foretell.service.settings import Settings
from foretell.service.signals import SignalDebounce, heard, held_back, let_in

_logger = logging.getLogger(__name__)

# onnxruntime's threads and CUDA's state do not survive a fork.
_context = multiprocessing.get_context("spawn")

Heartbeat = Callable[[], None]
# Runs in a process until that is told to stop by SIGTERM, and then perhaps at once by SIGINT; calls
# its pulse about once a second.
Target = Callable[[Heartbeat], None]

_TICK_SECONDS = 1.0
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_STEADY_SECONDS = 60.0
_OWN_NAME = "supervisor"


@dataclass(frozen=True)
class WorkerSpec:
    """What one process does; another one takes its place when it ends.

    Attributes:
        name: Of the process.
        target: Module-level function or a partial of one.
        stuck_seconds: One that has served and says nothing for so long is killed.
        sockets: What it listens on. While another one takes its place at once, who connects waits;
            if that has to wait, too, they listen no more, and who connects gets to other processes.
    """

    name: str
    target: Target
    stuck_seconds: int = 60
    sockets: Sequence[socket.socket] = ()


class Supervisor:
    """Runs roles in a process each until SIGTERM or SIGINT.

    A process that ends takes no other with it: another takes its place, at once or, if that happens
    again and again, after a pause that grows. One that cannot even begin ends all.

    Args:
        roles: In the order in which they are told to stop, each once those before it have.
        stop_seconds: Time that each has to end when it is told to.
        processes: Where it is written down who serves; see `watched`.
    """

    def __init__(
        self, roles: Sequence[WorkerSpec], *, stop_seconds: float, processes: Processes
    ) -> None:
        self._stop_seconds = stop_seconds
        self._workers = [_Worker(role, stop_seconds, processes) for role in roles]
        self._signals = 0
        self._echoes = SignalDebounce()

    def run(self, *, together: int = 0) -> bool:
        """Watch until told to stop.

        Args:
            together: How many of the first roles are told to stop at once.

        Returns:
            Whether all processes have ended as they should.

        Raises:
            StartError: one could not begin; the message is its reason.
        """
        groups = [self._workers[:together], *([worker] for worker in self._workers[together:])]
        with heard(self._count) as woken:
            woken.setblocking(False)
            try:
                for worker in self._workers:
                    worker.start()
                self._watch(woken)
            except BaseException:
                self._stop(woken, groups)
                raise
            return self._stop(woken, groups)

    def _watch(self, woken: socket.socket) -> None:
        ticked = time.monotonic()
        while not self._signals:
            now = time.monotonic()
            self._wait(woken, min(worker.pause(now) for worker in self._workers))
            now = time.monotonic()
            for worker in self._workers:
                worker.check(now)
            # Counted rather than timed: a machine that was asleep kills nobody.
            if now - ticked >= _TICK_SECONDS:
                ticked = now
                for worker in self._workers:
                    worker.tick()

    def _stop(self, woken: socket.socket, groups: Sequence[Sequence[_Worker]]) -> bool:
        clean = True
        for group in groups:
            end, told = time.monotonic() + self._stop_seconds, -1
            while any(worker.alive for worker in group) and time.monotonic() < end:
                if told != self._signals:
                    # Told again, they do not wait for what they have begun.
                    number = signal.SIGTERM if told < 0 else signal.SIGINT
                    told = self._signals
                    for worker in group:
                        worker.tell(number)
                self._wait(woken, min(_TICK_SECONDS, max(0.0, end - time.monotonic())))
            ended = [worker.end() for worker in group]
            clean = clean and all(ended)
        return clean

    def _wait(self, woken: socket.socket, seconds: float) -> None:
        """Until a process says something or ends, or a signal comes."""
        waited = [source for worker in self._workers for source in worker.sources]
        connection.wait([woken, *waited], seconds)
        for worker in self._workers:
            worker.listen()
        with suppress(BlockingIOError):
            woken.recv(64)

    def _count(self, *_: object) -> None:
        if not self._echoes.is_one():
            self._signals += 1


class _Worker:
    """The place of one process, whoever fills it."""

    def __init__(self, role: WorkerSpec, stop_seconds: float, processes: Processes) -> None:
        self._role = role
        self._stop_seconds = stop_seconds
        self._processes = processes
        self._process: SpawnProcess | None = None
        self._reports: Connection | None = None
        self._reason: str | None = None
        self._has_served = False
        self._serves = False
        self._silent = False
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
        """What changes when the process says something or ends; nothing once it has ended."""
        if self._process is None or self._reports is None or not self.alive:
            return []
        # A process that ends has closed its end before it is gone.
        return [self._process.sentinel, *([] if self._silent else [self._reports])]

    def pause(self, now: float) -> float:
        """Seconds until something is to be done about it, at most a tick."""
        if self._process is not None:
            return _TICK_SECONDS
        return min(_TICK_SECONDS, max(0.0, self._resumes - now))

    def start(self) -> None:
        """Fill the place."""
        reports, theirs = _context.Pipe(duplex=False)
        arguments = (self._role.target, theirs, self._stop_seconds)
        process = _context.Process(target=_enter, args=arguments, name=self._role.name)
        # Begun by the first process otherwise, which would let signals in here.
        resource_tracker.ensure_running()
        try:
            with held_back():
                process.start()
        except BaseException:
            reports.close()
            raise
        finally:
            theirs.close()
        self._process, self._reports = process, reports
        self._since = time.monotonic()
        self._serves, self._silent, self._reason, self._missed = False, False, None, 0

    def check(self, now: float) -> None:
        """Replace the process if it has ended.

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
        if self._process.is_alive():
            return
        self.listen()
        name, status = self._role.name, _said(self._process.exitcode)
        how = self._reason or f"a process of the server ({name}) ended with {status}"
        self.end()
        if not self._has_served:
            raise StartError(how if self._reason else f"{how} before it could serve")
        if self._serves and now - self._since > _STEADY_SECONDS:
            self._pause = 0.0
        self._resumes = now + self._pause
        if self._pause:
            for listener in self._role.sockets:
                with suppress(OSError):
                    listener.shutdown(socket.SHUT_RDWR)
        self._processes.replaced(name)
        _logger.error("%s; another one takes its place in %g s", how, self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE) or _FIRST_PAUSE

    def listen(self) -> None:
        """Take note of what the process has said."""
        if self._reports is None:
            return
        try:
            while self._reports.poll():
                self._reason = self._reports.recv()
                if self._reason is None and self._process is not None:
                    self._serves = self._has_served = True
                    self._processes.serves(self._role.name, self._process.pid or 0)
                    self._missed = 0
        except (EOFError, OSError):
            self._silent = True

    def tick(self) -> None:
        """Another second without a word."""
        self._missed += 1
        if self._serves and self._missed > self._role.stuck_seconds and self._process is not None:
            _logger.error("process %d (%s) is stuck", self._process.pid, self._role.name)
            self._process.kill()

    def tell(self, number: int) -> None:
        """Send the process a signal, if there is one."""
        if self._process is not None and self.alive:
            os.kill(self._process.pid or 0, number)

    def end(self) -> bool:
        """Clear the place, by force if need be; returns whether the process ended as it should."""
        if self._process is None or self._reports is None:
            return True
        self._processes.serves(self._role.name, 0)
        process, self._process = self._process, None
        killed = process.is_alive()
        if killed:
            _logger.error("process %d (%s) does not end by itself", process.pid, self._role.name)
            process.kill()
        process.join()
        self._reports.close()
        self._reports = None
        # One that was told while it still began did not catch the signal.
        return not killed and process.exitcode in (0, -signal.SIGTERM)


def watched(roles: Sequence[str], workers: int) -> Processes:
    """Processes that this one will watch over, in memory that it shares with them.

    Args:
        roles: Their names; those that take requests come first.
        workers: How many of them do.
    """
    numbers = _context.RawArray(c_int64, 2 * (len(roles) + 1))
    processes = Processes((*roles, _OWN_NAME), workers, numbers)
    processes.serves(_OWN_NAME, os.getpid())
    return processes


def _enter(target: Target, reports: Connection, stop_seconds: float) -> None:
    """The beginning of a process."""
    # What a terminal, or `timeout`, tells all processes of a server is for the one that watches.
    os.setpgid(0, 0)
    use_one_heap()
    let_in()
    threading.Thread(target=_end_with_parent, args=(stop_seconds,), daemon=True).start()

    def heartbeat() -> None:
        with suppress(OSError):
            reports.send(None)

    try:
        target(heartbeat)
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
        with suppress(ValueError):
            return signal.Signals(-status).name
        return f"signal {-status}"
    return f"status {status}"


# Besides the grace period: to close models, and to write the last lines of the log.
_END_SECONDS = 5.0
# Its loop only passes on what doors and workers say.
_STUCK_SECONDS = 15
_BACKLOG = 128


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; what was accepted by then is still answered.

    Raises:
        StartError: the settings, the device, the repository or an address does not allow it.
    """
    use_one_heap()
    use_all_files()
    logs.configure(settings.log_level, settings.log_format)
    for name in Settings.unknown():
        _logger.warning("no setting is called %s: it is ignored", name)
    # Once for all processes, and before anything is loaded.
    Keys.read(settings)
    if not isinstance(settings.models, Path):
        # Whoever lacks it is told so, by the one who imports it here.
        import_module("foretell.storage.location")
    if settings.workers > 1:
        _serve_by_several(settings)
    else:
        # Imported by those who serve, not by the one who watches over them.
        from foretell.service.server import run

        run(settings)


def _serve_by_several(settings: Settings) -> None:
    with ExitStack() as stack:
        # They belong to this process: while a door is replaced, callers wait in its backlog.
        ports = [settings.port]
        if settings.operations_port is not None:
            ports.append(settings.operations_port)
        reserved = [
            [stack.enter_context(one) for one in sockets]
            for sockets in _reserve(settings.host, ports, settings.workers)
        ]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="foretell-")))
        path = folder / "engine"
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        try:
            listener.bind(str(path))
        except OSError as error:
            raise StartError(f"cannot listen on {path} (TMPDIR): {error}") from error
        listener.listen(_BACKLOG)
        names = [*(f"worker-{number}" for number in range(settings.workers)), "engine"]
        processes = watched(names, settings.workers)
        doors = [
            WorkerSpec(
                name,
                partial(_open_door, settings, path, sockets, processes),
                sockets=sockets,
            )
            for name, sockets in zip(names, reserved, strict=False)
        ]
        run = partial(_run_engine, settings, listener, processes)
        roles = [*doors, WorkerSpec(names[-1], run, _STUCK_SECONDS)]
        stop_seconds = settings.unready_seconds + settings.grace_seconds + _END_SECONDS
        supervisor = Supervisor(roles, stop_seconds=stop_seconds, processes=processes)
        if not supervisor.run(together=len(doors)):
            sys.exit(1)


def _reserve(host: str, ports: Sequence[int], count: int) -> list[list[socket.socket]]:
    """For each of `count` processes the sockets of all ports, in their order."""
    by_port = [reserve(host, port, count) for port in ports]
    return [[one for port in of_one for one in port] for of_one in zip(*by_port, strict=True)]


def _open_door(
    settings: Settings,
    path: Path,
    sockets: list[socket.socket],
    processes: Processes,
    heartbeat: Heartbeat,
) -> None:
    from foretell.service.server import run_door

    logs.configure(settings.log_level, settings.log_format)
    run_door(settings, path, sockets, processes, heartbeat)


def _run_engine(
    settings: Settings, listener: socket.socket, processes: Processes, heartbeat: Heartbeat
) -> None:
    from foretell.service.engine.process import run_engine

    logs.configure(settings.log_level, settings.log_format)
    run_engine(settings, listener, processes, heartbeat)
