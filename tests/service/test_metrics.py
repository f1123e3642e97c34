from __future__ import annotations

import multiprocessing
import re
from pathlib import Path
from types import SimpleNamespace

from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from foretell.service.metrics import Metrics
from tests.service import workers
from tests.service.client import Client
from tests.service.process import ROOT


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, /, **labels: str) -> float:
    return samples(metrics)[name, frozenset(labels.items())]


def test_counts() -> None:
    metrics = Metrics()
    metrics.answered("/forecast", "m", 200, 0.01)
    metrics.answered("/forecast", "m", 200, 0.01)
    metrics.rejected("queue_full")
    metrics.cut_off("slow_request")
    assert (
        value(metrics, "foretell_requests_total", route="/forecast", model="m", status="200") == 2
    )
    assert value(metrics, "foretell_request_seconds_count", route="/forecast") == 2
    assert value(metrics, "foretell_rejected_total", reason="queue_full") == 1
    assert value(metrics, "foretell_connections_cut_off_total", reason="slow_request") == 1


def test_observes_a_queue() -> None:
    metrics = Metrics()
    observer = metrics.observer("m", "1")
    observer.waited(0.5)
    observer.assembled(0.125)
    observer.ran(3, 0.25)
    observer.filled(0.75)
    observer.expired()
    observer.cancelled()
    observer.cancelled()
    metrics.staged("decode", "m", "1", 2.0)
    labels = {"model": "m", "version": "1"}
    stages = {"queue": 0.5, "assemble": 0.125, "run": 0.25, "decode": 2.0}
    for stage, seconds in stages.items():
        assert value(metrics, "foretell_stage_seconds_sum", stage=stage, **labels) == seconds
    assert value(metrics, "foretell_batch_windows_sum", **labels) == 3
    assert value(metrics, "foretell_batch_fill_sum", **labels) == 0.75
    assert value(metrics, "foretell_dropped_total", reason="expired", **labels) == 1
    assert value(metrics, "foretell_dropped_total", reason="cancelled", **labels) == 2


def test_samples_what_is_and_is_not_counted() -> None:
    metrics = Metrics()
    for ready in (True, False):
        metrics.began()
        metrics.sample(ready=ready)
        assert value(metrics, "foretell_ready") == ready
    assert metrics.begun == 2
    assert value(metrics, "foretell_requests_in_flight") == 2
    metrics.answered("/forecast", "m", 200, 0.01)
    metrics.sample(ready=True)
    assert value(metrics, "foretell_requests_in_flight") == 1


class Loaded:
    """A model as far as metrics look at it."""

    name, version, provider = "m", "1", "CPUExecutionProvider"
    manifest = SimpleNamespace(architecture="patchtst")
    waiting = 5


def test_models_come_and_go() -> None:
    metrics = Metrics()
    labels = {"name": "m", "version": "1"}
    described = {**labels, "provider": "CPUExecutionProvider", "architecture": "patchtst"}
    queue = {"model": "m", "version": "1"}
    metrics.refused("m", "1")
    metrics.loaded(Loaded(), 0.5)  # type: ignore[arg-type]
    metrics.sample(ready=True)
    assert value(metrics, "foretell_model_info", **described) == 1
    assert value(metrics, "foretell_queue_depth", **queue) == 5
    assert value(metrics, "foretell_model_load_seconds_sum", **labels) == 0.5
    for outcome in ("loaded", "refused"):
        assert value(metrics, "foretell_model_loads_total", outcome=outcome, **labels) == 1
    metrics.unloaded("m", "1")
    metrics.sample(ready=True)
    assert value(metrics, "foretell_model_info", **described) == 0
    assert value(metrics, "foretell_queue_depth", **queue) == 0


def test_processes_are_summed_up(tmp_path: Path) -> None:
    """Slot 1 is filled twice: its second process goes on from where the first ended."""
    context = multiprocessing.get_context("spawn")
    for slot in (0, 1, 1):
        process = context.Process(target=workers.count, args=(tmp_path, slot))
        process.start()
        process.join()
        assert process.exitcode == 0
    reader = Metrics(tmp_path)
    assert value(reader, "foretell_rejected_total", reason="queue_full") == 3
    assert value(reader, "foretell_stage_seconds_sum", stage="run", model="m", version="1") == 1.5
    assert value(reader, "foretell_requests_in_flight") == 2
    assert value(reader, "foretell_ready") == 0


def test_two_servers_share_nothing() -> None:
    one, two = Metrics(), Metrics()
    one.rejected("queue_full")
    assert ("foretell_rejected_total", frozenset({("reason", "queue_full")})) not in samples(two)


def test_describes_models(client: Client) -> None:
    described = {
        "name": "repeat",
        "version": "10",
        "provider": "CPUExecutionProvider",
        "architecture": "patchtst",
    }
    client.get("/metrics")
    assert value(client.metrics, "foretell_model_info", **described) == 1
    assert value(client.metrics, "foretell_queue_depth", model="repeat", version="10") == 0
    assert value(client.metrics, "foretell_ready") == 1


def test_times_every_stage(client: Client) -> None:
    client.forecast({"model": "repeat", "inputs": [{"series": [1.0] * 8}]})
    labels = {"model": "repeat", "version": "10"}
    for stage in ("decode", "queue", "assemble", "run", "encode"):
        assert value(client.metrics, "foretell_stage_seconds_count", stage=stage, **labels) >= 1


def test_describes_the_process() -> None:
    assert value(Metrics(), "process_resident_memory_bytes") > 0


def test_the_manual_names_every_metric_and_its_labels() -> None:
    manual = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| `(foretell_\w+)` \|(.*?)\|", manual, re.MULTILINE)
    described = {name.removesuffix("_total"): labels.strip() for name, labels in rows}
    registered = {
        metric._name: ", ".join(metric._labelnames)
        for metric in vars(Metrics()).values()
        if isinstance(metric, MetricWrapperBase)
    }
    assert described == registered
