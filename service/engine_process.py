"""The process that runs models for the HTTP workers of a server."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from foretell.service.engine.engine import LocalEngine
from foretell.service.engine.health import REPLACE_ME, HealthMonitor, end
from foretell.service.engine.limits import MallocTrimmer
from foretell.service.engine.loading import load
from foretell.service.engine.server import EngineServer
from foretell.service.metrics import Metrics, Processes
from foretell.service.opening import open_ledger
from foretell.service.settings import Settings

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
