from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from service.metrics import Metrics
from tests.service.client import Client


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
    observer = metrics.observer("m", "1")
    observer.waited(0.5)
    observer.ran(3, 0.25)
    labels = {"model": "m", "version": "1"}
    assert (
        value(metrics, "foretell_requests_total", route="/forecast", model="m", status="200") == 2
    )
    assert value(metrics, "foretell_request_seconds_count", route="/forecast") == 2
    assert value(metrics, "foretell_rejected_total", reason="queue_full") == 1
    assert value(metrics, "foretell_queue_seconds_sum", **labels) == 0.5
    assert value(metrics, "foretell_inference_seconds_sum", **labels) == 0.25
    assert value(metrics, "foretell_batch_windows_sum", **labels) == 3


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
    assert value(client.metrics, "foretell_model_info", **described) == 1
    assert value(client.metrics, "foretell_queue_depth", model="repeat", version="10") == 0


def test_describes_the_process() -> None:
    assert value(Metrics(), "process_resident_memory_bytes") > 0
