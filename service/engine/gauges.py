"""What an engine says of itself at a moment, for Prometheus; `metrics` has what it counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foretell.service.engine.registry import Loaded
from foretell.service.exposition import gauge

_MODEL = ("model", "version")
# Of a model: whether it is in memory, what its queue holds and may hold, and its largest batch.
_SIZES = (
    ("foretell_model_resident", "1 while a model is in memory, else 0."),
    ("foretell_queue_depth", "Windows waiting."),
    ("foretell_queue_limit", "Most windows that may wait."),
    ("foretell_queue_bytes", "Bytes of the work that waits or is run."),
    ("foretell_queue_limit_bytes", "Most bytes of the work that waits or is run."),
    ("foretell_batch_limit", "Most windows in a batch."),
)


def gauges(
    models: Sequence[Loaded], workers: int, *, ready: bool, read_at: float | None = None
) -> Iterator[bytes]:
    """Gauges of an engine, in Prometheus' text format.

    Args:
        models: Every loaded version of every model.
        workers: How many run batches at a time.
        ready: Whether the server can answer.
        read_at: When object storage was last read; None unless it is watched.
    """
    yield from gauge("foretell_ready", "1 while the server can answer.", (), [((), ready)])
    yield from gauge(
        "foretell_runners",
        "What runs batches: threads on a CPU, or GPUs.",
        (),
        [((), workers)],
    )
    if read_at is not None:
        yield from gauge(
            "foretell_storage_last_sync_timestamp_seconds",
            "When the repository in object storage was last read, in seconds since 1970.",
            (),
            [((), read_at)],
        )
    yield from gauge(
        "foretell_model_info",
        "1 while a model is served; the labels describe it.",
        (*_MODEL, "provider", "architecture"),
        (
            ((model.name, model.version, model.provider, model.manifest.architecture), 1)
            for model in models
        ),
    )
    yield from gauge(
        "foretell_interval_coverage_ratio",
        "What an interval held of the test split, by level and steps ahead; it was to hold level.",
        (*_MODEL, "level", "steps"),
        (each for model in models for each in _coverage(model)),
    )
    sizes = [
        ((model.name, model.version), (model.resident, *model.usage, model.max_batch))
        for model in models
    ]
    for place, (name, told) in enumerate(_SIZES):
        yield from gauge(name, told, _MODEL, ((key, own[place]) for key, own in sizes))


def _coverage(model: Loaded) -> Iterator[tuple[Sequence[str], float]]:
    calibration = model.manifest.calibration
    for one in calibration.coverage if calibration else ():
        steps = f"{one.first_step}-{one.last_step}"
        yield (model.name, model.version, str(one.level), steps), one.coverage
