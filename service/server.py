"""A process that serves HTTP, and its graceful end."""

from __future__ import annotations

import asyncio
import logging
import math
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

import uvicorn

from foretell.service.api.app import by_port, create_app, create_operations_app
from foretell.service.engine.client import EngineClient
from foretell.service.engine.engine import Engine, LocalEngine
from foretell.service.engine.health import REPLACE_ME, HealthMonitor, end
from foretell.service.engine.limits import (
    MallocTrimmer,
    freeze_garbage_collection,
    return_free_memory,
)
from foretell.service.engine.loading import load
from foretell.service.forecast.parse import forget_parsers
from foretell.service.http.protocol import MOST_REFUSED, Connection, Limits, protocol
from foretell.service.http.sockets import Acceptor, accept_all, listen
from foretell.service.metrics import Metrics, Processes
from foretell.service.opening import open_agents, open_ledger
from foretell.service.settings import Settings
from foretell.service.signals import SignalDebounce, end_at_once, stop_signals, stop_signals_woken
from foretell.service.tracing import open_tracer

_logger = logging.getLogger(__name__)

# Files for loads, logs, metrics and refused connections.
_OTHER_FILES = 32 + MOST_REFUSED
_TICKS_A_SECOND = 10
# Without an engine after five seconds, clients get an error instead of waiting.
_START_TICKS = 50


def run(settings: Settings) -> None:
    """Serve from one process until SIGTERM or SIGINT; accepted requests are still answered."""
    with ExitStack() as stack:
        # A wrong address should fail at once.
        listeners = [each for port in settings.ports for each in listen(settings.host, port)]
        sockets = [stack.enter_context(each) for each in listeners]
        metrics = Metrics()
        with _ending_at_once():
            repository = load(settings, metrics)
            monitor = HealthMonitor(repository, settings.grace_seconds, math.inf)
            engine = LocalEngine(repository, metrics, open_ledger(settings, repository, metrics))
            server = _Server(settings, engine, sockets, monitor=monitor)
        server.run(sockets)
        end(engine, REPLACE_ME if server.gave_up else 0)


def run_worker(
    settings: Settings,
    path: Path,
    sockets: list[socket.socket],
    processes: Processes,
    heartbeat: Callable[[], None],
) -> None:
    """Serve from one of several HTTP workers until SIGTERM.

    `path` is the engine's socket. `sockets` belong to `Settings.ports`, in order, and do not listen
    yet. `heartbeat` is called about once a second while the worker accepts connections.
    """
    engine = EngineClient(path, Metrics(processes))
    freeze_garbage_collection()
    _Server(settings, engine, sockets, heartbeat=heartbeat).run(sockets)


@contextmanager
def _ending_at_once() -> Iterator[None]:
    """Let SIGTERM or SIGINT end this process at once, as it has accepted nothing yet.

    Without a handler they would not end the first process of a container, and Python's handlers
    only run once the main thread returns from a load.
    """
    with stop_signals_woken(lambda *_: None) as wakeup:
        own = wakeup.dup()

        def wait() -> None:
            with own:
                if own.recv(1):
                    end_at_once()

        threading.Thread(target=wait, name="signals", daemon=True).start()
        yield


def _configuration(
    settings: Settings, engine: Engine, sockets: list[socket.socket]
) -> uvicorn.Config:
    tracer = open_tracer() if settings.traces else None
    app: Any = create_app(settings, engine, tracer=tracer, agents=open_agents(settings))
    port = None
    if settings.operations_port is not None:
        port = sockets[-1].getsockname()[1]
        app = by_port(app, port, create_operations_app(engine))
    connections = _allow_connections(settings.max_connections)
    limits = Limits(connections, settings.header_timeout_seconds, port)
    return uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", protocol(limits, engine.metrics)),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        # Only the log reads the address of a client.
        proxy_headers=False,
        timeout_keep_alive=max(1, round(settings.keep_alive_seconds)),
        timeout_graceful_shutdown=max(1, round(settings.grace_seconds)),
    )


def _allow_connections(count: int) -> int:
    """The number of connections with enough files, up to `count`."""
    used = len(list(Path("/dev/fd").iterdir()))
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return count
    allowed = max(1, min(count, limit - used - _OTHER_FILES))
    if allowed < count:
        _logger.warning(
            "serves %d connections at a time, not %d: the process may open %d files; raise the "
            "hard limit (ulimit -Hn), or lower FORETELL_MAX_CONNECTIONS",
            allowed,
            count,
            limit,
        )
    return allowed


def _free_memory() -> None:
    """Free the parsers that are kept between requests, and return free memory to the system."""
    forget_parsers()
    return_free_memory()


class _Server(uvicorn.Server):
    """Ends after a signal or the loss of a GPU, and is not ready from that moment.

    It has a monitor if the engine is in this process, or else a heartbeat.
    """

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        sockets: list[socket.socket],
        *,
        monitor: HealthMonitor | None = None,
        heartbeat: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(_configuration(settings, engine, sockets))
        self._engine = engine
        self._monitor = monitor
        self._heartbeat = heartbeat
        self._trimmer = MallocTrimmer(_free_memory)
        self._drain_delay_seconds = settings.drain_delay_seconds
        self._stops_at = math.inf
        self._debounce = SignalDebounce()
        # Whether it ended without a signal.
        self.gave_up = False
        self._acceptor: Acceptor | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer, and log the addresses."""
        starting = asyncio.ensure_future(self._engine.start())
        for _ in range(_START_TICKS):
            if self.should_exit:
                starting.cancel()
                return
            if (await asyncio.wait([starting], timeout=1 / _TICKS_A_SECOND))[0]:
                break
        await super().startup(sockets)
        if not self.started:
            return
        self._connection = partial(
            cast("Callable[..., Connection]", self.config.http_protocol_class),
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        self._acceptor = Acceptor(sockets or (), self._connection, self._engine.metrics)
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            address = f"[{host}]" if ":" in host else host
            _logger.info("serving on http://%s:%s", address, port)

    async def on_tick(self, counter: int) -> bool:
        """Check connections, GPUs and memory, mostly once a second."""
        now = asyncio.get_running_loop().time()
        if now >= self._stops_at:
            self.should_exit = True
        self._trimmer.trim(now, busy=self._engine.metrics.in_flight > 0)
        if counter % _TICKS_A_SECOND == 0:
            for connection in cast("set[Connection]", set(self.server_state.connections)):
                connection.check(now)
            if self._monitor is not None and not self.should_exit and self._monitor.is_over(now):
                self.gave_up = True
                self._engine.drain()
                self.should_exit = True
            if self._heartbeat is not None:
                self._heartbeat()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and answer the requests of all connections."""
        loop = asyncio.get_running_loop()
        if self._acceptor is not None:
            await self._acceptor.close()
        # The kernel may have connected clients that this process has not seen yet: closing the
        # sockets would reset their connections.
        serving = []
        for listener in sockets or ():
            # Without a free file no more connections can be answered.
            with suppress(OSError):
                for late in accept_all(listener):
                    connecting = loop.connect_accepted_socket(self._last_connection, late)
                    serving.append(asyncio.ensure_future(connecting))
        for listener in sockets or ():
            # The parent also holds a worker's socket, so closing it here would not be enough.
            listener.shutdown(socket.SHUT_RDWR)
        await super().shutdown(sockets)
        await asyncio.gather(*serving, return_exceptions=True)

    def _last_connection(self) -> Connection:
        connection = self._connection()
        connection.shutdown()
        return connection

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle all signals that end a server; uvicorn handles two of them."""
        with stop_signals(self.handle_exit):
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Start to stop; after a second signal, stop at once."""
        is_second = self.should_exit or self._stops_at < math.inf
        if self._heartbeat is None:
            if self._debounce.is_echo():
                return
            _logger.info("stops: %s", signal.Signals(sig).name)
        else:
            # The parent debounces the signals of its workers, and sends SIGINT for the second one.
            if is_second and sig == signal.SIGTERM:
                return
            is_second = sig == signal.SIGINT
        self._engine.drain()
        self.force_exit = is_second
        # The event loop, which `on_tick` compares it with, uses the same clock.
        self._stops_at = time.monotonic() + self._drain_delay_seconds
        # Before it answers requests, load balancers need no delay.
        at_once = not (self.started and self._drain_delay_seconds)
        self.should_exit = self.force_exit or at_once
