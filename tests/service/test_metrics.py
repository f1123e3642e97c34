from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import threading
from ctypes import c_int64
from importlib import metadata

import onnxruntime
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from foretell.service.counts import Counts, Family
from foretell.service.metrics import Metrics, Processes
from tests.service.client import Client

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


def test_metrics_of_requests() -> None:
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
    # Times of batches are not labelled by route: a batch may be of several requests.
    seen = [("decode", 2.0), ("queue", 0.5), ("run", 100.0)]
    metrics.answered("/forecast", 200, 103.0, ("m", "1"), seen)
    stages = {"queue": 0.5, "assemble": 0.125, "run": 0.25, "decode": 2.0}
    for stage, seconds in stages.items():
        assert value(metrics, "foretell_stage_seconds_sum", stage=stage, **LABELS) == seconds
    assert value(metrics, "foretell_batch_windows_sum", **LABELS) == 3
    assert value(metrics, "foretell_batch_fill_sum", **LABELS) == 0.75
    assert value(metrics, "foretell_dropped_total", reason="expired", **LABELS) == 1
    assert value(metrics, "foretell_dropped_total", reason="cancelled", **LABELS) == 2


def test_metrics_of_backtested_intervals() -> None:
    metrics = Metrics()
    for held in ((7, 10), (1, 2)):
        metrics.backtested("m", "1", {0.8: held, 0.123: (5, 5)})
    found = samples(metrics)
    assert {key: value for key, value in found.items() if "backtest" in key[0]} == {
        ("foretell_backtest_values_held_total", frozenset({**LABELS, "level": "0.8"}.items())): 8,
        ("foretell_backtest_values_total", frozenset({**LABELS, "level": "0.8"}.items())): 12,
    }


def test_metrics_of_loads() -> None:
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


def test_metrics_of_processes() -> None:
    own, missing = os.getpid(), 2**30
    # One of two HTTP workers is being replaced, and the engine has just ended.
    numbers = (c_int64 * 8)(own, 0, missing, own, 3, 1, 2, 0)
    names = ("worker-0", "worker-1", "engine", "supervisor")
    found = samples(Metrics(Processes(names, 2, numbers)))
    assert found["foretell_workers_wanted", frozenset()] == 2
    assert found["foretell_workers_running", frozenset()] == 1
    for name, restarts in zip(names, (3, 1, 2, 0), strict=True):
        key = frozenset({("process", name)})
        assert found["foretell_process_restarts_total", key] == restarts
        for metric in ("process_resident_memory_bytes", "process_cpu_seconds_total"):
            assert ((metric, key) in found) == (name in ("worker-0", "supervisor"))
    # One process alone.
    metrics = Metrics()
    assert value(metrics, "foretell_workers_wanted") == 1
    assert value(metrics, "foretell_workers_running") == 1
    assert value(metrics, "foretell_process_restarts_total", process="server") == 0
    assert value(metrics, "process_open_fds", process="server") > 0


def test_metrics_of_a_server(client: Client) -> None:
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
def test_promtool_accepts_the_metrics(client: Client) -> None:
    client.forecast({"model": "repeat", "inputs": [{"series": [1.0] * 8}]})
    text = client.get("/metrics").content
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


FAMILIES = {
    "calls_total": Family("Calls.", ("kind",)),
    "seconds": Family("How long.", ("kind",), (0.1, 1.0)),
}


def lines(counts: Counts) -> list[str]:
    text = b"".join(counts.write()).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_prometheus_parser_reads_the_counts() -> None:
    counts = Counts(FAMILIES)
    counts.add("calls_total", "good")
    counts.add("calls_total", "good", amount=2)
    counts.add("calls_total", "bad", amount=0)
    # The upper bound of a bucket belongs to it.
    for value in (0.05, 0.1, 0.5, 7.0):
        counts.observe((("seconds", "good"), value))
    assert lines(counts) == [
        'calls_total{kind="good"} 3.0',
        'calls_total{kind="bad"} 0.0',
        'seconds_bucket{kind="good",le="0.1"} 2.0',
        'seconds_bucket{kind="good",le="1.0"} 3.0',
        'seconds_bucket{kind="good",le="+Inf"} 4.0',
        'seconds_count{kind="good"} 4.0',
        'seconds_sum{kind="good"} 7.65',
    ]


def test_labels_are_quoted() -> None:
    counts = Counts(FAMILIES)
    kinds = ["", 'a "word"', "two\nlines", "a\\b", "\\n", "{}", "é", "le"]
    for kind in kinds:
        counts.add("calls_total", kind)
        counts.observe((("seconds", kind), 0.5))
    text = b"".join(counts.write()).decode()
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert [sample.labels["kind"] for sample in found["calls"].samples] == kinds
    assert {sample.labels["kind"] for sample in found["seconds"].samples} == {*kinds}
    assert (found["calls"].type, found["seconds"].type) == ("counter", "histogram")
    assert (found["calls"].documentation, found["seconds"].documentation) == ("Calls.", "How long.")


def test_thousands_of_samples_are_written_in_small_pieces() -> None:
    """Writing a piece blocks counting and answers, so pieces are small."""
    counts = Counts(FAMILIES)
    for kind in range(2000):
        counts.observe((("seconds", str(kind)), 0.5), also={("calls_total", str(kind)): 1.0})
    pieces = [*counts.write()]
    assert len(pieces) > 4000
    assert max(map(len, pieces)) < 1000


def test_counts_of_removed_versions_are_dropped() -> None:
    families = {"runs_total": Family("Runs.", ("model", "version")), **FAMILIES}
    counts = Counts(families)
    for name, version in (("m", "1"), ("m", "11"), ("n", "1"), ("", "")):
        counts.add("runs_total", name, version)
    counts.add("calls_total", "good")
    counts.keep({("m", "11"), ("never", "seen")})
    assert counts.counters() == {
        ("runs_total", "m", "11"): 1,
        ("runs_total", "", ""): 1,
        ("calls_total", "good"): 1,
    }


def test_counting_continues_while_histograms_are_read() -> None:
    counts = Counts(FAMILIES)
    kinds = [str(number) for number in range(1000)]
    for kind in kinds:
        counts.observe((("seconds", kind), 0.5))
    reading = counts.histograms()
    first = next(reading)
    # It would wait for ever if the lock were held.
    counter = threading.Thread(target=counts.add, args=("calls_total", "good"), daemon=True)
    counter.start()
    counter.join(30)
    assert counts.counters() == {("calls_total", "good"): 1}
    whole = {("seconds", kind): [0.5, 0.0, 1.0, 0.0] for kind in kinds}
    assert dict([first, *reading]) == whole


def test_counts_of_http_workers_are_summed() -> None:
    engine, one, two = (Counts(FAMILIES) for _ in range(3))
    for worker, times in ((one, 1), (two, 2)):
        for _ in range(times):
            worker.add("calls_total", "good")
            worker.observe((("seconds", "good"), 0.5))
        # Through JSON, as between processes.
        engine.merge(orjson.loads(orjson.dumps(worker.take())))
    one.add("calls_total", "bad")
    engine.merge(one.take())
    engine.merge(one.take())
    assert engine.counters() == {("calls_total", "good"): 3, ("calls_total", "bad"): 1}
    assert dict(engine.histograms()) == {("seconds", "good"): [1.5, 0.0, 3.0, 0.0]}
    assert 'seconds_bucket{kind="good",le="0.1"} 0.0' in lines(engine)
    assert 'seconds_bucket{kind="good",le="1.0"} 3.0' in lines(engine)
    assert not any(one.take())


def test_counts_are_thread_safe() -> None:
    counts = Counts(FAMILIES)

    def count() -> None:
        for _ in range(2000):
            counts.add("calls_total", "good")
            counts.observe((("seconds", "good"), 1.0))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert counts.counters() == {("calls_total", "good"): 8000}
    assert dict(counts.histograms()) == {("seconds", "good"): [8000.0, 0.0, 8000.0, 0.0]}
