"""What an engine says of itself at a moment, for Prometheus; `metrics` has what it counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from foretell.service.engine.directory import Loaded

_MODEL = ("model", "version")


def gauges(
    models: Iterable[Loaded], workers: int, *, ready: bool, read_at: float | None = None
) -> Iterator[Metric]:
    """Gauges of an engine.

    Args:
        models: Every loaded version of every model.
        workers: How many run batches at a time.
        ready: Whether the server can answer.
        read_at: When object storage was last read; None unless it is watched.
    """
    yield GaugeMetricFamily("foretell_ready", "1 while the server can answer.", value=ready)
    yield GaugeMetricFamily(
        "foretell_runners", "What runs batches: threads on a CPU, or GPUs.", value=workers
    )
    if read_at is not None:
        yield GaugeMetricFamily(
            "foretell_storage_last_sync_timestamp_seconds",
            "When the repository in object storage was last read, in seconds since 1970.",
            value=read_at,
        )
    info = GaugeMetricFamily(
        "foretell_model_info",
        "1 while a model is served; the labels describe it.",
        labels=(*_MODEL, "provider", "architecture"),
    )
    resident = GaugeMetricFamily(
        "foretell_model_resident", "1 while a model is in memory, else 0.", labels=_MODEL
    )
    coverage = GaugeMetricFamily(
        "foretell_interval_coverage_ratio",
        "What an interval held of the test split, by level and steps ahead; it was to hold level.",
        labels=(*_MODEL, "level", "steps"),
    )
    sizes = [
        GaugeMetricFamily(name, text, labels=_MODEL)
        for name, text in (
            ("foretell_queue_depth", "Windows waiting."),
            ("foretell_queue_limit", "Most windows that may wait."),
            ("foretell_queue_bytes", "Bytes of the work that waits or is run."),
            ("foretell_queue_limit_bytes", "Most bytes of the work that waits or is run."),
            ("foretell_batch_limit", "Most windows in a batch."),
        )
    ]
    for model in models:
        key, manifest = (model.name, model.version), model.manifest
        info.add_metric((*key, model.provider, manifest.architecture), 1)
        resident.add_metric(key, model.resident)
        for family, value in zip(sizes, (*model.usage, model.max_batch), strict=True):
            family.add_metric(key, value)
        for one in manifest.calibration.coverage if manifest.calibration else ():
            steps = f"{one.first_step}-{one.last_step}"
            coverage.add_metric((*key, str(one.level), steps), one.coverage)
    yield from (info, resident, coverage, *sizes)
