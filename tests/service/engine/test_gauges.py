from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from foretell.service.engine.model import Model
from foretell.service.engine.scheduler import Scheduler
from foretell.service.engine.statistics import gauges
from tests.support.bundles import Spec, write_bundle

KEY = (("model", "m"), ("version", "1"))


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


def test_when_object_storage_was_read() -> None:
    for read_at in (0.0, 12.5):
        found = samples(read_at=read_at)
        assert found["storage_last_sync_timestamp_seconds", ()] == read_at


def test_a_model(open_model: Callable[[Path], Model], scheduler: Scheduler, tmp_path: Path) -> None:
    model = open_model(write_bundle(tmp_path, Spec(name="m", calibrated=2)))
    gate = threading.Event()

    def busy(_: int) -> None:
        assert gate.wait(30)

    scheduler.on_threads(busy)
    window = np.zeros((3, 8, 1), np.float32)
    model.submit({"history": window}, deadline=time.monotonic() + 30)
    provider = ("provider", "CPUExecutionProvider")
    described = (("architecture", "patchtst"), KEY[0], provider, KEY[1])
    covered = (("level", "0.8"), KEY[0])
    assert samples(model) == {
        ("ready", ()): 1,
        ("inference_threads", ()): 3,
        ("model_info", described): 1,
        ("model_loaded", KEY): 1,
        ("queue_depth", KEY): 3,
        ("queue_limit", KEY): 64,
        ("queue_bytes", KEY): window.nbytes,
        ("queue_limit_bytes", KEY): 1 << 20,
        ("batch_limit", KEY): 8,
        ("interval_coverage_ratio", (*covered, ("steps", "1-4"), ("version", "1"))): 0.75,
        ("interval_coverage_ratio", (*covered, ("steps", "5-8"), ("version", "1"))): 0.75,
    }
    gate.set()
