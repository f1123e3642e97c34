from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from foretell.service.engine.model import Model
from foretell.service.engine.scheduler import Scheduler
from foretell.service.engine.statistics import Duration, ModelStatistics, gauges, statistics
from foretell.service.metrics import Metrics
from tests.support.bundles import Spec, write_bundle

KEY = ("m", "1")
SECOND = 1_000_000_000


def of(metrics: Metrics, *keys: tuple[str, str]) -> list[ModelStatistics]:
    return statistics(metrics, keys or (KEY,)).model_stats


def test_counts_of_requests() -> None:
    metrics = Metrics()
    stages = (("decode", 0.25), ("queue", 0.5), ("run", 99.0), ("encode", 0.75))
    metrics.answered("/forecast", 200, 2.0, KEY, stages)
    metrics.answered("/v2/models/{model}/infer", 200, 2.0, KEY)
    metrics.answered("/forecast", 429, 4.0, KEY)
    metrics.answered("/forecast", 200, 1.0, ("m", "2"), stages)
    metrics.observer(*KEY).ran(3, 4, 0.5, 0.125)
    found, second, other = of(metrics, KEY, ("m", "2"), ("other", "1"))
    assert (second.execution_count, second.inference_stats.success.count) == (0, 1)
    assert (other.name, other.version, other.inference_stats.success.count) == ("other", "1", 0)
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


def test_counts_of_batches() -> None:
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


def test_counters_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
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


LABELS = (("model", "m"), ("version", "1"))


def samples(
    *models: Model, ready: bool = True, read_at: float | None = None
) -> dict[tuple[str, tuple[object, ...]], float]:
    text = b"".join(gauges(models, 3, ready=ready, read_at=read_at)).decode()
    return {
        (sample.name.removeprefix("foretell_"), tuple(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_an_engine_without_models() -> None:
    assert samples(ready=False) == {("ready", ()): 0, ("inference_threads", ()): 3}
    for read_at in (0.0, 12.5):
        found = samples(read_at=read_at)
        assert found["storage_last_sync_timestamp_seconds", ()] == read_at


def test_the_gauges_of_a_model(
    open_model: Callable[[Path], Model], scheduler: Scheduler, tmp_path: Path
) -> None:
    model = open_model(write_bundle(tmp_path, Spec(name="m", calibrated=2)))
    gate = threading.Event()

    def busy(_: int) -> None:
        assert gate.wait(30)

    scheduler.on_threads(busy)
    window = np.zeros((3, 8, 1), np.float32)
    model.submit({"history": window}, deadline=time.monotonic() + 30)
    provider = ("provider", "CPUExecutionProvider")
    described = (("architecture", "patchtst"), LABELS[0], provider, LABELS[1])
    covered = (("level", "0.8"), LABELS[0])
    assert samples(model) == {
        ("ready", ()): 1,
        ("inference_threads", ()): 3,
        ("model_info", described): 1,
        ("model_loaded", LABELS): 1,
        ("queue_depth", LABELS): 3,
        ("queue_limit", LABELS): 64,
        ("queue_bytes", LABELS): window.nbytes,
        ("queue_limit_bytes", LABELS): 1 << 20,
        ("batch_limit", LABELS): 8,
        ("interval_coverage_ratio", (*covered, ("steps", "1-4"), ("version", "1"))): 0.75,
        ("interval_coverage_ratio", (*covered, ("steps", "5-8"), ("version", "1"))): 0.75,
    }
    gate.set()
