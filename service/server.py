"""One process of a server: from settings to answers, and its graceful end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

import uvicorn

from foretell.service.app import ByPort, create_app, create_operations_app
from foretell.service.batcher import Batcher
from foretell.service.engine.cpus import usable_cpus
from foretell.service.engine.memory import Leftover, Memory, container_limit
from foretell.service.engine.runtime import Runtime
from foretell.service.metrics import Metrics, share
from foretell.service.model import Capacity, Model
from foretell.service.repository import Repository
from foretell.service.requests import parsing
from foretell.service.settings import Settings
from foretell.service.supervision.member import Member
from foretell.service.supervision.readiness import Readiness
from foretell.service.supervision.supervisor import Pulse
from foretell.service.telemetry.statistics import Statistics
from foretell.service.telemetry.tracing import open_tracer
from foretell.service.versions.policy import Policy
from foretell.service.versions.state import SharedState
from foretell.service.web.acceptor import Acceptor
from foretell.service.web.connections import Connection, Limits
from foretell.service.web.sockets import accept_all, listen

_logger = logging.getLogger(__name__)

# The exit status of a process that another one should take the place of: `EX_TEMPFAIL`.
_REPLACE_ME = 75
# Bundles, logs and metrics need some besides the connections.
_OTHER_FILES = 256
_TICKS_A_SECOND = 10


def run(settings: Settings, member: Member | None = None, pulse: Pulse | None = None) -> None:
    """Serve until SIGTERM or SIGINT; what was accepted by then is still answered.

    Args:
        settings: With ports that are free, or reserved for the server's processes.
        member: The place of this process; None if it is alone.
        pulse: Called about once a second from when it takes connections.

    Raises:
        StartError: the runtime, the repository or an address does not allow it.
    """
    with ExitStack() as stack:
        sockets = []
        if member is None:
            # A wrong address should fail at once.
            sockets = _listen(settings, stack)
            metrics, state, file = Metrics(), None, None
        else:
            share(member.metrics, member.slot)
            metrics, state, file = (
                Metrics(member.metrics, Statistics(member.statistics)),
                SharedState(member.state),
                member.readiness,
            )
        tracer = open_tracer() if settings.traces else None
        repository = load(settings, metrics, state)
        readiness = Readiness(repository, file)
        app: Any = create_app(settings, repository, metrics, readiness=readiness, tracer=tracer)
        if member is not None:
            # Of several, only those that can answer get connections.
            sockets = _listen(settings, stack, shared=True)
        port = None
        if settings.operations_port is not None:
            port = sockets[-1].getsockname()[1]
            app = ByPort(app, port, create_operations_app(readiness, metrics))
        limits = Limits(settings.max_connections, settings.header_timeout_seconds, port)
        configuration = _configuration(settings, app, partial(Connection, limits, metrics))
        server = _Server(configuration, metrics, readiness, repository, pulse)
        server.run(sockets)
        if repository.lost:
            # CUDA's state is in no order in which its libraries could be taken down.
            logging.shutdown()
            os._exit(_REPLACE_ME if server.gave_up else 0)


def load(settings: Settings, metrics: Metrics, state: SharedState | None = None) -> Repository:
    """Load the repository on the device of the settings.

    Args:
        settings: Device, limits and the repository's folder.
        metrics: Told of the models.
        state: Where the processes of the server agree on the models, if there are several.

    Raises:
        StartError: the device does not work, or no model could be loaded.
    """
    runtime = Runtime(settings.device)
    threads = settings.threads or max(1, usable_cpus() // settings.workers)
    batcher = Batcher(runtime.workers(threads))
    capacity = Capacity(settings.max_batch, settings.max_queue, settings.max_queue_bytes)
    limit = settings.max_memory_bytes or container_limit(settings.workers)
    repository = Repository(
        settings.models,
        partial(_open, runtime, batcher, capacity, metrics),
        metrics,
        policy=Policy(settings.versions, settings.pin),
        state=state,
        watch_seconds=settings.watch_seconds,
        memory=Memory(limit),
        request_seconds=settings.timeout_seconds,
        batcher=batcher,
        lost=lambda: runtime.lost,
    )
    repository.start()
    # What is loaded stays. Parsed JSON is many lists without cycles: looking through them for any
    # every 700 takes longer than parsing.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    return repository


def _open(
    runtime: Runtime, batcher: Batcher, capacity: Capacity, metrics: Metrics, folder: Path
) -> Model:
    observer = metrics.observer(folder.parent.name, folder.name)
    return Model(folder, runtime, batcher, capacity, observer)


def _listen(settings: Settings, stack: ExitStack, *, shared: bool = False) -> list[socket.socket]:
    """The socket of the service, and that of the operators if it is another one."""
    ports = [settings.port]
    if settings.operations_port is not None:
        ports.append(settings.operations_port)
    return [stack.enter_context(listen(settings.host, port, shared=shared)) for port in ports]


def _configuration(
    settings: Settings,
    app: Any,  # noqa: ANN401 - an ASGI application, whose types are not uvicorn's
    protocol: Callable[..., asyncio.Protocol],
) -> uvicorn.Config:
    _allow_files(settings.max_connections + _OTHER_FILES)
    return uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", protocol),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        # Nothing here asks for the address of a caller.
        proxy_headers=False,
        timeout_keep_alive=max(1, round(settings.keep_alive_seconds)),
        timeout_graceful_shutdown=max(1, round(settings.grace_seconds)),
    )


def _allow_files(count: int) -> None:
    """Raise the limit of open files, which many systems set to 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    if wanted < count:
        _logger.warning("may open %d files, too few for max_connections: see ulimit -n", wanted)


class _Server(uvicorn.Server):
    """Ends when asked to stop, or when it has lost a GPU, and says at once that it is not ready.

    Attributes:
        gave_up: Whether it ended by itself.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        metrics: Metrics,
        readiness: Readiness,
        repository: Repository,
        pulse: Pulse | None = None,
    ) -> None:
        super().__init__(config)
        self._metrics = metrics
        self._readiness = readiness
        self._repository = repository
        self._pulse = pulse
        self._lost_at: float | None = None
        self.gave_up = False
        self._returned_at = 0
        self._leftover = Leftover(parsing.forget)
        self._acceptor: Acceptor

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say where."""
        await super().startup(sockets)
        if not self.started:
            return
        self._acceptor = Acceptor(sockets or (), self._connection)
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            address = f"[{host}]" if ":" in host else host
            _logger.info("serving on http://%s:%s", address, port)

    async def on_tick(self, counter: int) -> bool:
        """Look after what takes no event to go wrong, once a second."""
        if counter % _TICKS_A_SECOND == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                cast("Connection", connection).check(now)
            self._metrics.sample(ready=self._readiness.own)
            self._readiness.publish()
            self._return_memory()
            self._give_up_if_lost(now)
            if self._pulse is not None:
                self._pulse()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop to listen, and answer all who were connected by then."""
        loop = asyncio.get_running_loop()
        await self._acceptor.close()
        # Those whom the kernel has connected and this process has not noticed yet: to close the
        # sockets would cut them off.
        late = [connection for listener in sockets or () for connection in accept_all(listener)]
        serving = [
            asyncio.ensure_future(loop.connect_accepted_socket(self._last_connection, connection))
            for connection in late
        ]
        await super().shutdown(sockets)
        await asyncio.gather(*serving, return_exceptions=True)

    def _give_up_if_lost(self, now: float) -> None:
        """End for a lost GPU, which only another process gets back.

        While other GPUs go on answering, load balancers get the time to look at `/readyz`.
        """
        if self.should_exit or not self._repository.lost:
            return
        grace = self.config.timeout_graceful_shutdown or 0
        if self._lost_at is None:
            self._lost_at = now
            seconds = 0 if self._repository.dead else grace
            _logger.error("ends in %d s with status %d, to be replaced", seconds, _REPLACE_ME)
        if self._repository.dead or now - self._lost_at >= grace:
            self.gave_up = True
            self._readiness.drain()
            self.should_exit = True

    def _return_memory(self) -> None:
        """What a burst of requests took is not kept for the next one."""
        begun = self._metrics.begun
        if begun != self._returned_at and not self.server_state.tasks:
            self._returned_at = begun
            asyncio.get_running_loop().run_in_executor(None, self._leftover.give_back)

    def _connection(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    def _last_connection(self) -> asyncio.Protocol:
        connection = self._connection()
        cast("Connection", connection).shutdown()
        return connection

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Begin to stop; asked a second time, stop at once."""
        if self._pulse is not None and sig == signal.SIGINT:
            # From a terminal it goes to all processes; who watches them tells this one.
            return
        self._readiness.drain()
        self.force_exit = self.should_exit
        self.should_exit = True
