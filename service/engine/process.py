"""The process that runs models for the HTTP workers of a server."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from foretell.service.engine.engine import LocalEngine
from foretell.service.engine.limits import MallocTrimmer
from foretell.service.engine.loading import load, open_ledger
from foretell.service.engine.repository import Repository
from foretell.service.engine.server import EngineServer
from foretell.service.metrics import Metrics, Processes
from foretell.service.settings import Settings

_logger = logging.getLogger(__name__)

# Exit status of a process that should be replaced: `EX_TEMPFAIL`.
REPLACE_ME = 75
_HEARTBEAT_SECONDS = 1.0
# A GPU captures the graphs of a large model within a minute.
_STUCK_SECONDS = 300.0


def run_engine(
    settings: Settings,
    listener: socket.socket,
    processes: Processes,
    heartbeat: Callable[[], None],
) -> None:
    """Run models for HTTP workers until SIGTERM, and until no worker is connected.

    `heartbeat` is called about once a second while workers are served.
    """
    metrics = Metrics(processes)
    repository = load(settings, metrics)
    ledger = open_ledger(settings, repository, metrics)
    monitor = HealthMonitor(repository, settings.grace_seconds, _STUCK_SECONDS)
    # As uvicorn chooses it for HTTP workers.
    factory = import_module("uvloop").new_event_loop if find_spec("uvloop") else None
    with asyncio.Runner(loop_factory=factory) as runner:
        engine = LocalEngine(repository, metrics, ledger)
        stopped = runner.run(_serve(engine, monitor, listener, heartbeat))
    end(engine, 0 if stopped else REPLACE_ME)


def end(engine: LocalEngine, status: int) -> None:
    """End this process here, with a status, if Python could not end it cleanly."""
    # A load or a run in progress cannot be interrupted: Python would wait for it, or abort inside
    # onnxruntime. After the loss of a GPU CUDA cannot be closed.
    if engine.changing or engine.repository.going or engine.repository.lost:
        logging.shutdown()
        os._exit(status)


async def _serve(
    engine: LocalEngine,
    monitor: HealthMonitor,
    listener: socket.socket,
    heartbeat: Callable[[], None],
) -> bool:
    """Serve HTTP workers; returns whether SIGTERM came."""
    server = EngineServer(engine)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    trimmer = MallocTrimmer()
    beat_at = 0.0

    def tick() -> bool:
        nonlocal beat_at
        now = time.monotonic()
        if now - beat_at >= _HEARTBEAT_SECONDS and not monitor.stuck:
            beat_at = now
            heartbeat()
            trimmer.trim(now, busy=server.busy)
        if monitor.is_over(now):
            return False
        # The workers stop first, after they have answered accepted requests.
        return not stopping.is_set() or server.workers > 0

    await server.serve(listener, tick)
    await engine.close()
    return stopping.is_set()


class HealthMonitor:
    """Whether the engine of this process still works.

    After the loss of a GPU it goes on for `grace_seconds` with the others. No batch or capture
    takes `stuck_seconds`.
    """

    def __init__(self, repository: Repository, grace_seconds: float, stuck_seconds: float) -> None:
        self._repository = repository
        self._grace_seconds = grace_seconds
        self._stuck_seconds = stuck_seconds
        self._lost_at: float | None = None

    @property
    def stuck(self) -> bool:
        """Whether an inference thread hangs in a batch or call."""
        return self._repository.busy_seconds > self._stuck_seconds

    def is_over(self, now: float) -> bool:
        """Whether to end because of a lost GPU, which only a new process gets back."""
        if not self._repository.lost:
            return False
        if self._lost_at is None:
            self._lost_at = now
            # While other GPUs go on answering, load balancers have time to look at `/readyz`.
            seconds = 0 if self._repository.dead else self._grace_seconds
            _logger.error(
                "the process ends in %d s with status %d, and must be replaced", seconds, REPLACE_ME
            )
        return self._repository.dead or now - self._lost_at >= self._grace_seconds
