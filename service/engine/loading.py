"""From settings to a repository with its models."""

from __future__ import annotations

import logging
from pathlib import Path

from foretell.service.engine.cache import ModelCache
from foretell.service.engine.limits import (
    Memory,
    container_limit,
    freeze_garbage_collection,
    usable_cpus,
)
from foretell.service.engine.model import Capacity, Model
from foretell.service.engine.policy import Policy
from foretell.service.engine.repository import Repository
from foretell.service.engine.runtime import Runtime
from foretell.service.engine.scheduler import Scheduler
from foretell.service.engine.signatures import open_signers
from foretell.service.engine.store import open_mirror
from foretell.service.metrics import Metrics
from foretell.service.settings import Settings

_logger = logging.getLogger(__name__)

# Memory of an HTTP worker, a generous estimate.
_HTTP_WORKER_BYTES = 96 * 1024 * 1024


def load(settings: Settings, metrics: Metrics) -> Repository:
    """Load the repository on the device of the settings; StartError if no model could be loaded."""
    signers = open_signers(settings.signed_by)
    runtime = Runtime(settings.device)
    metrics.build = runtime.build
    capacity = Capacity(settings.max_batch, settings.max_queue, settings.max_queue_bytes)
    policy = Policy(settings.versions, settings.pin)
    folder, mirror = open_mirror(settings, policy)
    scheduler = Scheduler(runtime.inference_threads(settings.threads or usable_cpus()))
    others = settings.workers * _HTTP_WORKER_BYTES if settings.workers > 1 else 0
    limit = settings.max_memory_bytes or container_limit(others)
    memory = Memory(limit)
    cache = None
    if settings.load == "on-demand":
        if limit is None and settings.max_loaded is None:
            _logger.warning("nothing bounds the memory of models: see FORETELL_MAX_MEMORY_BYTES")
        metrics.loads_on_demand()
        cache = ModelCache(
            memory,
            metrics,
            most=settings.max_loaded,
            wait_seconds=settings.load_wait_seconds,
            drain_seconds=settings.timeout_seconds,
        )
        # The cache checks memory itself, and evicts models.
        memory = Memory(None)

    def open_model(folder: Path) -> Model:
        name, version = folder.parent.name, folder.name
        observer = metrics.observer(name, version)
        about = folder, runtime, scheduler, capacity, observer
        if cache is None:
            return Model(*about, signers=signers)
        if name in settings.keep or f"{name}@{version}" in settings.keep:
            with cache.room(folder):
                return Model(*about, signers=signers)
        return Model(*about, signers=signers, cache=cache)

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
