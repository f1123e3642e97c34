from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from ctypes import c_int64
from importlib import metadata

import onnxruntime
import pytest
from prometheus_client.parser import text_string_to_metric_families

from foretell.service.metrics import Metrics, Processes
from tests.service.client import Client
from tests.support.process import ROOT

LABELS = {"model": "m", "version": "1"}


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = metrics.render().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, /, **labels: str) -> float:
    return samples(metrics)[name, frozenset(labels.items())]


def test_requests() -> None:
    metrics = Metrics()
    for _ in range(4):
        metrics.in_flight += 1
    metrics.answered("/metrics", 200, 0.01)
    metrics.answered("/forecast", 200, 0.01, ("m", "1"))
    metrics.answered("/forecast", 422, 0.01, ("m", "1"))
    metrics.rejected("queue_full")
    metrics.cut_off("slow_request")
    requests = {
        (labels["route"], labels["model"], labels["version"], labels["status"]): number
        for (name, pairs), number in samples(metrics).items()
        if name == "foretell_requests_total" and (labels := dict(pairs))
    }
    assert requests == {
        ("/metrics", "", "", "200"): 1,
        ("/forecast", "m", "1", "200"): 1,
        ("/forecast", "m", "1", "422"): 1,
    }
    assert value(metrics, "foretell_request_seconds_count", route="/forecast") == 2
    assert value(metrics, "foretell_requests_in_flight") == 1
    assert value(metrics, "foretell_rejected_total", reason="queue_full") == 1
    assert value(metrics, "foretell_rejected_total", reason="not_ready") == 0
    assert value(metrics, "foretell_connections_cut_off_total", reason="slow_request") == 1


def test_stages_of_requests_and_batches() -> None:
    metrics = Metrics()
    observer = metrics.observer("m", "1")
    assert value(metrics, "foretell_dropped_total", reason="expired", **LABELS) == 0
    observer.ran(3, 4, 0.125, 0.25)
    observer.dropped("expired")
    observer.dropped("cancelled")
    observer.dropped("cancelled")
    # What a request's batches took is not told with them: they may be of several requests.
    seen = [("decode", 2.0), ("queue", 0.5), ("run", 100.0)]
    metrics.answered("/forecast", 200, 103.0, ("m", "1"), seen)
    stages = {"queue": 0.5, "assemble": 0.125, "run": 0.25, "decode": 2.0}
    for stage, seconds in stages.items():
        assert value(metrics, "foretell_stage_seconds_sum", stage=stage, **LABELS) == seconds
    assert value(metrics, "foretell_batch_windows_sum", **LABELS) == 3
    assert value(metrics, "foretell_batch_fill_sum", **LABELS) == 0.75
    assert value(metrics, "foretell_dropped_total", reason="expired", **LABELS) == 1
    assert value(metrics, "foretell_dropped_total", reason="cancelled", **LABELS) == 2


def test_what_intervals_held() -> None:
    metrics = Metrics()
    for held in ((7, 10), (1, 2)):
        metrics.backtested("m", "1", {0.8: held, 0.123: (5, 5)})
    found = samples(metrics)
    assert {key: value for key, value in found.items() if "backtest" in key[0]} == {
        ("foretell_backtest_values_held_total", frozenset({**LABELS, "level": "0.8"}.items())): 8,
        ("foretell_backtest_values_total", frozenset({**LABELS, "level": "0.8"}.items())): 12,
    }


def test_loads() -> None:
    metrics = Metrics()
    metrics.loaded("m", "1", 0.5)
    assert value(metrics, "foretell_model_loads_total", outcome="refused", **LABELS) == 0
    metrics.refused("m", "1")
    assert value(metrics, "foretell_model_load_seconds_sum", **LABELS) == 0.5
    assert value(metrics, "foretell_model_evictions_total", **LABELS) == 0
    metrics.evicted("m", "1")
    assert value(metrics, "foretell_model_evictions_total", **LABELS) == 1
    waits = "foretell_load_wait_seconds_count"
    assert not any(name == waits for name, _ in samples(metrics))
    metrics.waited("expired", 2.0)
    metrics.loads_on_demand()
    assert value(metrics, waits, outcome="loaded") == 0
    assert value(metrics, waits, outcome="expired") == 1
    assert value(metrics, "foretell_load_wait_seconds_sum", outcome="expired") == 2
    for outcome in ("loaded", "refused"):
        assert value(metrics, "foretell_model_loads_total", outcome=outcome, **LABELS) == 1


def test_processes() -> None:
    own, nobody = os.getpid(), 2**30
    # One of two HTTP workers is being replaced, and the engine has just ended.
    numbers = (c_int64 * 8)(own, 0, nobody, own, 3, 1, 2, 0)
    names = ("worker-0", "worker-1", "engine", "supervisor")
    found = samples(Metrics(Processes(names, 2, numbers)))
    assert found["foretell_workers_wanted", frozenset()] == 2
    assert found["foretell_workers_running", frozenset()] == 1
    for name, restarts in zip(names, (3, 1, 2, 0), strict=True):
        key = frozenset({("process", name)})
        assert found["foretell_process_restarts_total", key] == restarts
        for metric in ("process_resident_memory_bytes", "process_cpu_seconds_total"):
            assert ((metric, key) in found) == (name in ("worker-0", "supervisor"))


def test_one_process() -> None:
    metrics = Metrics()
    assert value(metrics, "foretell_workers_wanted") == 1
    assert value(metrics, "foretell_workers_running") == 1
    assert value(metrics, "foretell_process_restarts_total", process="server") == 0
    assert value(metrics, "process_open_fds", process="server") > 0


def test_a_server_has_all_of_them(client: Client) -> None:
    client.forecast({"model": "repeat", "inputs": [{"series": [1.0] * 8}]})
    text = client.get("/metrics").text
    info = r'^foretell_model_info\{.*model="repeat",.*version="10"\} 1\.0$'
    assert re.search(info, text, re.MULTILINE)
    assert 'foretell_queue_depth{model="repeat",version="10"} 0.0' in text
    assert "foretell_ready 1.0" in text
    assert re.search(r"^foretell_inference_threads [1-9]", text, re.MULTILINE)
    for stage in ("decode", "queue", "assemble", "run", "encode"):
        line = f'foretell_stage_seconds_count{{model="repeat",stage="{stage}",version="10"}} '
        assert float(text.split(line)[1].split()[0]) >= 1
    (build,) = re.findall(r"^foretell_build_info\{(.*)\} 1\.0$", text, re.MULTILINE)
    assert dict(re.findall(r'(\w+)="(.*?)"', build)) == {
        "version": metadata.version("foretell"),
        "python": platform.python_version(),
        "onnxruntime": onnxruntime.__version__,
        "provider": "CPUExecutionProvider",
    }


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_prometheus_own_tool_finds_no_fault(client: Client) -> None:
    client.forecast({"model": "repeat", "inputs": [{"series": [1.0] * 8}]})
    text = client.get("/metrics").content
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_the_manual_names_every_metric_and_its_labels(client: Client) -> None:
    manual = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| `((?:foretell|process)_\w+)` \|(.*?)\|", manual, re.MULTILINE)
    described = {
        name: {each for each in labels.strip().split(", ") if each} for name, labels in rows
    }
    text = client.get("/metrics").text
    names = re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE)
    # Of repositories in object storage alone.
    assert {*names, "foretell_storage_last_sync_timestamp_seconds"} == set(described)
    assert {name for name, labels in described.items() if "model" in labels} == {
        name for name, labels in described.items() if "version" in labels
    } - {"foretell_build_info"}
    for name, labels in described.items():
        suffix = r"(?:_bucket|_sum|_count)?"
        for told in re.findall(rf"^{name}{suffix}{{(.*)}} ", text, re.MULTILINE):
            assert set(re.findall(r'(\w+)="', told)) - {"le"} == labels, name
