"""Reports on the models of an engine: gauges for Prometheus, and Triton's statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel

from foretell.service.counts import Family
from foretell.service.metrics import BATCH_WINDOWS, REQUESTS, STAGE_SECONDS, Metrics

if TYPE_CHECKING:
    from foretell.service.engine.model import Model

_MODEL = ("model", "version")
_READY = Family("1 while the server can answer.")
_THREADS = Family("Threads that run batches: of the CPU, or one for each GPU that works.")
_READ_AT = Family(
    "When the watched repository in object storage was last read, in seconds since 1970, or 0."
)
_INFO = Family(
    "1 while a model is served; the labels describe it.", (*_MODEL, "provider", "architecture")
)
_COVERAGE = Family(
    "Share of the test split that the interval of a level held, by steps ahead such as 1-24.",
    (*_MODEL, "level", "steps"),
)
# Gauges of a model: whether it is in memory, usage and limits of its queue, its largest batch.
_SIZES = {
    "foretell_model_loaded": Family("1 while a model is in memory, else 0.", _MODEL),
    "foretell_queue_depth": Family("Windows that wait.", _MODEL),
    "foretell_queue_limit": Family("Most windows that may wait.", _MODEL),
    "foretell_queue_bytes": Family("Bytes of requests that wait or are run.", _MODEL),
    "foretell_queue_limit_bytes": Family("Most bytes of requests that wait or are run.", _MODEL),
    "foretell_batch_limit": Family("Most windows in a batch.", _MODEL),
}


def gauges(
    models: Sequence[Model], threads: int, *, ready: bool, read_at: float | None = None
) -> Iterator[bytes]:
    """Prometheus' gauges; `read_at` is when watched storage was read, in seconds since 1970."""
    yield from _READY.gauges("foretell_ready", [((), ready)])
    yield from _THREADS.gauges("foretell_inference_threads", [((), threads)])
    if read_at is not None:
        name = "foretell_storage_last_sync_timestamp_seconds"
        yield from _READ_AT.gauges(name, [((), read_at)])
    keys = [(model.name, model.version) for model in models]
    about = ((model.provider, model.manifest.architecture) for model in models)
    described = (((*key, *each), 1) for key, each in zip(keys, about, strict=True))
    yield from _INFO.gauges("foretell_model_info", described)
    coverage = (each for model in models for each in _coverage(model))
    yield from _COVERAGE.gauges("foretell_interval_coverage_ratio", coverage)
    sizes = [(model.resident, *model.usage, model.max_batch) for model in models]
    for place, (name, family) in enumerate(_SIZES.items()):
        values = (each[place] for each in sizes)
        yield from family.gauges(name, zip(keys, values, strict=True))


def _coverage(model: Model) -> Iterator[tuple[Sequence[str], float]]:
    calibration = model.manifest.calibration
    for one in calibration.coverage if calibration else ():
        steps = f"{one.first_step}-{one.last_step}"
        yield (model.name, model.version, str(one.level), steps), one.coverage


class Duration(BaseModel):
    """Count of events, and their total nanoseconds."""

    count: int = 0
    ns: int = 0


class InferenceStatistics(BaseModel):
    """Statistics of requests and the batches that ran them.

    Attributes:
        success: Successful requests, and the time of all stages together.
        fail: Failed requests of a known model; their time is not counted.
        queue: Requests that waited for a batch.
        compute_input: Requests that were read.
        compute_infer: Batches that were run.
        compute_output: Answers that were written.
        cache_hit: Always 0, as answers are not cached.
        cache_miss: Always 0, as answers are not cached.
    """

    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration
    cache_hit: Duration = Duration()
    cache_miss: Duration = Duration()


class ModelStatistics(BaseModel):
    """Statistics of a version of a model, since the server started.

    https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_statistics.md

    Attributes:
        last_inference: When its last batch ended, in milliseconds since 1970; or 0.
        inference_count: Windows that batches have run.
        execution_count: Number of batches.
        batch_stats: Empty: the sizes of batches are in the metrics, as a histogram.
    """

    name: str
    version: str
    last_inference: int
    inference_count: int
    execution_count: int
    inference_stats: InferenceStatistics
    batch_stats: list[None] = []


class StatisticsReport(BaseModel):
    """The counts of models."""

    model_stats: list[ModelStatistics]


# Names of the metrics' stages in Triton's statistics.
_STAGES = {
    "decode": "compute_input",
    "queue": "queue",
    "run": "compute_infer",
    "encode": "compute_output",
}


def statistics(metrics: Metrics, versions: Iterable[tuple[str, str]]) -> StatisticsReport:
    """The counts of some versions; reads all counters and histograms once."""
    found: dict[tuple[str, ...], ModelStatistics] = {}
    for key in versions:
        last = round(metrics.last_run.get(key, 0.0) * 1000)
        stages = {name: Duration() for name in ("success", "fail", *_STAGES.values())}
        found[key] = ModelStatistics(
            name=key[0],
            version=key[1],
            last_inference=last,
            inference_count=0,
            execution_count=0,
            inference_stats=InferenceStatistics(**stages),
        )
    for (family, *labels), number in metrics.counts.counters().items():
        if family == REQUESTS and (model := found.get((labels[1], labels[2]))) is not None:
            stats = model.inference_stats
            (stats.fail if int(labels[3]) >= 400 else stats.success).count += round(number)
    for (family, *labels), (total, *numbers) in metrics.counts.histograms():
        model = found.get(tuple(labels[-2:]))
        if model is None:
            continue
        if family == BATCH_WINDOWS:
            model.inference_count, model.execution_count = round(total), round(sum(numbers))
        elif family == STAGE_SECONDS and (stage := _STAGES.get(labels[0])):
            duration = Duration(count=round(sum(numbers)), ns=round(total * 1e9))
            setattr(model.inference_stats, stage, duration)
            model.inference_stats.success.ns += duration.ns
    return StatisticsReport(model_stats=[*found.values()])
