"""What models have answered and how long it took, as the Open Inference Protocol's servers count.

https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_statistics.md
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel

from foretell.service.metrics import (
    ANSWERED,
    ASSEMBLED,
    BATCHED,
    RAN,
    STAGE_SECONDS,
    WINDOWS,
    Metrics,
)


class Duration(BaseModel):
    """How often something happened, and how many nanoseconds it took in all."""

    count: int = 0
    ns: int = 0


class InferenceStatistics(BaseModel):
    """Of requests.

    Attributes:
        success: Those answered, from their headers to the end of the answer.
        fail: Those that were not, though their model was known.
        queue: Waiting for a batch.
        compute_input: Reading the request.
        compute_infer: In batches, from the first one's beginning to the last one's end.
        compute_output: Writing the answer.
        cache_hit: There is no cache.
        cache_miss: There is no cache.
    """

    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration
    cache_hit: Duration = Duration()
    cache_miss: Duration = Duration()


class BatchStatistics(BaseModel):
    """Of batches of a size.

    Attributes:
        batch_size: Windows in each of them.
        compute_input: Putting them together.
        compute_infer: Running them.
        compute_output: Nothing: their rows are handed out as they are.
    """

    batch_size: int
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


class ModelStatistics(BaseModel):
    """Of a version of a model, since the server started.

    Attributes:
        name: The model's name.
        version: Its version.
        last_inference: When its last batch had run, in milliseconds since 1970; or 0.
        inference_count: Windows of the requests that were answered.
        execution_count: Batches.
        inference_stats: Of requests.
        batch_stats: Of batches, by size.
    """

    name: str
    version: str
    last_inference: int
    inference_count: int
    execution_count: int
    inference_stats: InferenceStatistics
    batch_stats: list[BatchStatistics]


class StatisticsReport(BaseModel):
    """The counts of models."""

    model_stats: list[ModelStatistics]


def statistics(metrics: Metrics, versions: Iterable[tuple[str, str]]) -> StatisticsReport:
    """The counts of versions by name and version."""
    return StatisticsReport(model_stats=[_of_version(metrics, *key) for key in versions])


def _of_version(metrics: Metrics, name: str, version: str) -> ModelStatistics:
    counts = metrics.counts

    def duration(family: str, *labels: str) -> Duration:
        count, seconds = counts.total(family, *labels)
        return Duration(count=count, ns=round(seconds * 1e9))

    sizes = sorted(int(key[-1]) for key in counts.keys(BATCHED, name, version))
    batches = []
    for size in sizes:
        ran = duration(BATCHED, name, version, str(size))
        batches.append(
            BatchStatistics(
                batch_size=size,
                compute_input=duration(ASSEMBLED, name, version, str(size)),
                compute_infer=ran,
                compute_output=Duration(count=ran.count),
            )
        )
    return ModelStatistics(
        name=name,
        version=version,
        last_inference=round(metrics.last_run.get((name, version), 0.0) * 1000),
        inference_count=round(counts.count(WINDOWS, name, version)),
        execution_count=sum(batch.compute_infer.count for batch in batches),
        inference_stats=InferenceStatistics(
            success=duration(ANSWERED, name, version, "success"),
            fail=duration(ANSWERED, name, version, "fail"),
            queue=duration(STAGE_SECONDS, "queue", name, version),
            compute_input=duration(STAGE_SECONDS, "decode", name, version),
            compute_infer=duration(RAN, name, version),
            compute_output=duration(STAGE_SECONDS, "encode", name, version),
        ),
        batch_stats=batches,
    )
