"""What models have answered and how long it took, as the Open Inference Protocol's servers count.

All of it is derived from the counters of `metrics`.
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_statistics.md
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pydantic import BaseModel

from foretell.service.metrics import BATCH_WINDOWS, REQUESTS, STAGE_SECONDS, Metrics


class Duration(BaseModel):
    """How often something happened, and how many nanoseconds it took in all."""

    count: int = 0
    ns: int = 0


class InferenceStatistics(BaseModel):
    """Of requests and the batches that ran them.

    Attributes:
        success: Requests that were answered, and the time of all stages together.
        fail: Those that were not, though their model was known; their time is not counted.
        queue: Of requests: waiting for a batch.
        compute_input: Of requests: reading them.
        compute_infer: Of batches: running them.
        compute_output: Of requests: writing their answers.
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


class ModelStatistics(BaseModel):
    """Of a version of a model, since the server started.

    Attributes:
        name: The model's name.
        version: Its version.
        last_inference: When its last batch had run, in milliseconds since 1970; or 0.
        inference_count: Windows that batches have run.
        execution_count: Batches.
        inference_stats: Of requests and batches.
        batch_stats: Nothing: sizes of batches are in the metrics, as a histogram.
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


# How a stage of `metrics` is called here.
_STAGES = {
    "decode": "compute_input",
    "queue": "queue",
    "run": "compute_infer",
    "encode": "compute_output",
}


def statistics(metrics: Metrics, versions: Iterable[tuple[str, str]]) -> StatisticsReport:
    """The counts of versions by name and version; reads every counter once."""
    requests: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for (family, *labels), number in metrics.counts.counts().items():
        if family == REQUESTS:
            _, name, version, status = labels
            requests[name, version][int(status) >= 400] += round(number)
    windows: dict[tuple[str, str], tuple[int, int]] = {}
    stages: defaultdict[tuple[str, str], dict[str, Duration]] = defaultdict(dict)
    for (family, *labels), (total, *numbers) in metrics.counts.histograms():
        if family == BATCH_WINDOWS:
            name, version = labels
            windows[name, version] = round(sum(numbers)), round(total)
        elif family == STAGE_SECONDS and (stage := _STAGES.get(labels[0])):
            _, name, version = labels
            duration = Duration(count=round(sum(numbers)), ns=round(total * 1e9))
            stages[name, version][stage] = duration
    found = []
    for key in versions:
        known = {stage: stages[key].get(stage, Duration()) for stage in _STAGES.values()}
        success, fail = requests[key]
        ran, inferred = windows.get(key, (0, 0))
        found.append(
            ModelStatistics(
                name=key[0],
                version=key[1],
                last_inference=round(metrics.last_run.get(key, 0.0) * 1000),
                inference_count=inferred,
                execution_count=ran,
                inference_stats=InferenceStatistics(
                    success=Duration(count=success, ns=sum(each.ns for each in known.values())),
                    fail=Duration(count=fail),
                    **known,
                ),
            )
        )
    return StatisticsReport(model_stats=found)
