"""From settings to loaded models, and the process that runs them for the doors of a server."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from foretell.service.engine.cache import ModelCache
from foretell.service.engine.engine import LocalEngine
from foretell.service.engine.limits import (
    MallocTrimmer,
    Memory,
    container_limit,
    freeze_garbage_collection,
    usable_cpus,
)
from foretell.service.engine.model import Capacity, Model, Proof
from foretell.service.engine.on_demand import OnDemand
from foretell.service.engine.registry import Loaded
from foretell.service.engine.repository import Repository
from foretell.service.engine.runtime import Runtime
from foretell.service.engine.scheduler import Scheduler
from foretell.service.engine.server import EngineServer
from foretell.service.engine.store import Policy, open_mirror
from foretell.service.metrics import Metrics, Processes
from foretell.service.settings import Settings

_logger = logging.getLogger(__name__)

# The exit status of a process that another one should take the place of: `EX_TEMPFAIL`.
REPLACE_ME = 75
# What a door holds of the container's memory, generously.
_DOOR_BYTES = 96 * 1024 * 1024
_PULSE_SECONDS = 1.0
# A GPU captures the graphs of a large model within a minute.
_STUCK_SECONDS = 300.0


def load(settings: Settings, metrics: Metrics) -> Repository:
    """Load the repository on the device of the settings.

    Args:
        settings: Device, limits and the repository's folder.
        metrics: Told of the models.

    Raises:
        StartError: the device does not work, or no model could be loaded.
    """
    runtime = Runtime(settings.device)
    metrics.build = runtime.build
    capacity = Capacity(settings.max_batch, settings.max_queue, settings.max_queue_bytes)
    policy = Policy(settings.versions, settings.pin)
    folder, mirror = open_mirror(settings, policy)
    scheduler = Scheduler(runtime.workers(settings.threads or usable_cpus()))
    doors = settings.workers * _DOOR_BYTES if settings.workers > 1 else 0
    limit = settings.max_memory_bytes or container_limit(doors)
    memory = Memory(limit)
    cache = None
    proofs: dict[Path, Proof] = {}
    on_demand = settings.load == "on-demand"

    def open_now(folder: Path) -> Loaded:
        observer = metrics.observer(folder.parent.name, folder.name)
        return Model(
            folder, runtime, scheduler, capacity, observer, proofs=proofs if on_demand else None
        )

    open_model = open_now
    if on_demand:
        if limit is None and settings.max_loaded is None:
            _logger.warning("nothing bounds the memory of models: see FORETELL_MAX_MEMORY_BYTES")
        metrics.loads_on_demand()
        cache = ModelCache(
            open_now,
            memory,
            metrics,
            most=settings.max_loaded,
            wait_seconds=settings.load_wait_seconds,
            drain_seconds=settings.timeout_seconds,
        )
        open_model = partial(_list, runtime, capacity, cache, proofs, settings.keep)
        # Whoever loads one makes room for it.
        memory = Memory(None)
    repository = Repository(
        folder,
        open_model,
        metrics,
        mirror=mirror,
        policy=policy,
        watch_seconds=settings.watch_seconds,
        memory=memory,
        request_seconds=settings.timeout_seconds,
        scheduler=scheduler,
        lost=lambda: runtime.lost,
        cache=cache,
    )
    try:
        repository.start()
    except BaseException:
        repository.close(0.0)
        raise
    known = {name for one in repository.index() for name in (one.name, f"{one.name}@{one.version}")}
    for kept in settings.keep:
        if kept not in known:
            # It may come later.
            _logger.warning("FORETELL_KEEP: %s is not in the repository", kept)
    freeze_garbage_collection()
    return repository


def run_engine(
    settings: Settings,
    listener: socket.socket,
    processes: Processes,
    heartbeat: Callable[[], None],
) -> None:
    """Run models for doors until SIGTERM, and until no door is left.

    Args:
        settings: Device, limits and the repository's folder.
        listener: A Unix socket, listening.
        processes: Of the server.
        heartbeat: Called about once a second from when doors are served.

    Raises:
        StartError: as `load`.
    """
    metrics = Metrics(processes)
    repository = load(settings, metrics)
    watch = HealthMonitor(repository, settings.grace_seconds, _STUCK_SECONDS)
    # As uvicorn's doors have it.
    factory = import_module("uvloop").new_event_loop if find_spec("uvloop") else None
    with asyncio.Runner(loop_factory=factory) as runner:
        engine = LocalEngine(repository, metrics)
        told = runner.run(_serve(engine, watch, listener, heartbeat))
    end(engine, 0 if told else REPLACE_ME)


def end(engine: LocalEngine, status: int) -> None:
    """End this process, with that status: here, if Python could not.

    What a load or a run is at is not interrupted: Python would wait for it, or abort where it is in
    onnxruntime. And after the loss of a GPU CUDA's state is in no order in which its libraries
    could be taken down.
    """
    if engine.changing or engine.repository.going or engine.repository.lost:
        logging.shutdown()
        os._exit(status)


async def _serve(
    engine: LocalEngine,
    watch: HealthMonitor,
    listener: socket.socket,
    heartbeat: Callable[[], None],
) -> bool:
    """Returns whether it was told to stop."""
    host = EngineServer(engine)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    pulsed = 0.0
    trimmer = MallocTrimmer()

    def tick() -> bool:
        nonlocal pulsed
        now = time.monotonic()
        if now - pulsed >= _PULSE_SECONDS and not watch.stuck:
            pulsed = now
            heartbeat()
            trimmer.trim(now, busy=host.busy)
        if watch.is_over(now):
            return False
        # Doors are told to stop as well, and answer what they have accepted.
        return not stopping.is_set() or host.workers > 0

    await host.serve(listener, tick)
    await engine.close()
    return stopping.is_set()


class HealthMonitor:
    """Whether the engine of this process still works.

    Args:
        repository: Its models.
        grace_seconds: For how long it goes on with fewer GPUs than it had.
        stuck_seconds: Longer than any batch or capture takes.
    """

    def __init__(self, repository: Repository, grace_seconds: float, stuck_seconds: float) -> None:
        self._repository = repository
        self._grace_seconds = grace_seconds
        self._stuck_seconds = stuck_seconds
        self._lost_at: float | None = None

    @property
    def stuck(self) -> bool:
        """Whether a worker never comes back from what it is at."""
        return self._repository.busy_seconds > self._stuck_seconds

    def is_over(self, now: float) -> bool:
        """Whether to end for a lost GPU, which only another process gets back.

        While other GPUs go on answering, load balancers get the time to look at `/readyz`.

        Args:
            now: On the clock of `time.monotonic`.
        """
        if not self._repository.lost:
            return False
        if self._lost_at is None:
            self._lost_at = now
            seconds = 0 if self._repository.dead else self._grace_seconds
            _logger.error("ends in %d s with status %d, to be replaced", seconds, REPLACE_ME)
        return self._repository.dead or now - self._lost_at >= self._grace_seconds


def _list(
    runtime: Runtime,
    capacity: Capacity,
    cache: ModelCache,
    proofs: dict[Path, Proof],
    kept: Sequence[str],
    folder: Path,
) -> Loaded:
    """A model that is loaded when it is asked for, or now if it is to be kept."""
    name, version = folder.parent.name, folder.name
    if name in kept or f"{name}@{version}" in kept:
        return cache.keep(folder)
    return OnDemand(folder, runtime, capacity, cache, proofs)
