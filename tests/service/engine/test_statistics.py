from __future__ import annotations

import time

import pytest

from foretell.service.engine.statistics import Duration, ModelStatistics, statistics
from foretell.service.metrics import Metrics

KEY = ("m", "1")
SECOND = 1_000_000_000


def of(metrics: Metrics, *keys: tuple[str, str]) -> list[ModelStatistics]:
    return statistics(metrics, keys or (KEY,)).model_stats


def test_requests() -> None:
    metrics = Metrics()
    stages = (("decode", 0.25), ("queue", 0.5), ("run", 99.0), ("encode", 0.75))
    metrics.answered("/forecast", 200, 2.0, KEY, stages)
    metrics.answered("/v2/models/{model}/infer", 200, 2.0, KEY)
    metrics.answered("/forecast", 429, 4.0, KEY)
    metrics.answered("/forecast", 200, 1.0, ("m", "2"), stages)
    metrics.observer(*KEY).ran(3, 4, 0.5, 0.125)
    (found,) = of(metrics)
    assert {name: (each.count, each.ns / SECOND) for name, each in found.inference_stats} == {
        "success": (2, 1.625),
        "fail": (1, 0.0),
        "queue": (1, 0.5),
        "compute_input": (1, 0.25),
        "compute_infer": (1, 0.125),
        "compute_output": (1, 0.75),
        "cache_hit": (0, 0.0),
        "cache_miss": (0, 0.0),
    }


def test_batches() -> None:
    metrics = Metrics()
    observer = metrics.observer(*KEY)
    assert of(metrics)[0].last_inference == 0
    before = time.time()
    for windows, assemble, run in ((4, 0.5, 1.0), (16, 0.25, 0.5), (4, 1.0, 2.0)):
        observer.ran(windows, 32, assemble, run)
    (found,) = of(metrics)
    assert (found.inference_count, found.execution_count) == (24, 3)
    assert found.inference_stats.compute_infer == Duration(count=3, ns=3_500_000_000)
    assert before * 1000 - 1 <= found.last_inference <= time.time() * 1000 + 1


def test_versions_are_counted_by_themselves() -> None:
    metrics = Metrics()
    metrics.observer(*KEY).ran(1, 1, 0.5, 1.0)
    metrics.observer("m", "2")
    one, two, three = of(metrics, KEY, ("m", "2"), ("other", "1"))
    assert (one.execution_count, two.execution_count, three.execution_count) == (1, 0, 0)
    assert (three.name, three.version, three.inference_stats.success.count) == ("other", "1", 0)


def test_every_counter_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    read: list[str] = []
    for name in ("counters", "histograms"):
        plain = getattr(metrics.counts, name)
        monkeypatch.setattr(
            metrics.counts, name, lambda name=name, plain=plain: (read.append(name), plain())[1]
        )
    keys = [("m", str(version)) for version in range(1, 600)]
    for key in keys:
        metrics.observer(*key).ran(1, 1, 0.5, 1.0)
    assert sum(each.execution_count for each in of(metrics, *keys)) == len(keys)
    assert read == ["counters", "histograms"]
