from __future__ import annotations

import time

from foretell.service.metrics import Metrics
from foretell.service.statistics import ModelStatistics, statistics

KEY = ("m", "1")
SECOND = 1_000_000_000


def of(metrics: Metrics, *keys: tuple[str, str]) -> list[ModelStatistics]:
    return statistics(metrics, keys or (KEY,)).model_stats


def test_requests() -> None:
    metrics = Metrics()
    stages = (("decode", 0.25), ("queue", 0.5), ("run", 0.125), ("encode", 0.75))
    metrics.answered("/forecast", 200, 2.0, KEY, 3, stages)
    metrics.answered("/forecast", 429, 4.0, KEY, 5)
    (found,) = of(metrics)
    assert found.inference_count == 3
    stats = found.inference_stats
    assert {name: (each.count, each.ns / SECOND) for name, each in stats} == {
        "success": (1, 2.0),
        "fail": (1, 4.0),
        "queue": (1, 0.5),
        "compute_input": (1, 0.25),
        "compute_infer": (1, 0.125),
        "compute_output": (1, 0.75),
        "cache_hit": (0, 0.0),
        "cache_miss": (0, 0.0),
    }


def test_batches_by_size() -> None:
    metrics = Metrics()
    observer = metrics.observer(*KEY)
    assert of(metrics)[0].last_inference == 0
    before = time.time()
    for windows, assemble, run in ((4, 0.5, 1.0), (16, 0.25, 0.5), (4, 1.0, 2.0)):
        observer.ran(windows, 32, assemble, run)
    (found,) = of(metrics)
    assert found.execution_count == 3
    assert before * 1000 - 1 <= found.last_inference <= time.time() * 1000 + 1
    assert [
        (each.batch_size, each.compute_input.ns / SECOND, each.compute_infer.ns / SECOND)
        for each in found.batch_stats
    ] == [(4, 1.5, 3.0), (16, 0.25, 0.5)]
    assert [each.compute_infer.count for each in found.batch_stats] == [2, 1]
    assert [each.compute_output.count for each in found.batch_stats] == [2, 1]


def test_versions_are_counted_by_themselves() -> None:
    metrics = Metrics()
    metrics.observer(*KEY).ran(1, 1, 0.5, 1.0)
    metrics.observer("m", "2")
    one, two, three = of(metrics, KEY, ("m", "2"), ("other", "1"))
    assert (one.execution_count, two.execution_count, three.execution_count) == (1, 0, 0)
    assert (three.name, three.version, three.inference_stats.success.count) == ("other", "1", 0)
