"""A server that loads new versions again and again keeps nothing of those that are gone.

The kind of triton-inference-server/server#4528: memory grew with each version that was loaded.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from foretell.bundle import layout
from foretell.service.metrics import Metrics
from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle
from tests.support.waiting import until


def keys(client: Client, name: str, version: str) -> list[tuple[str, ...]]:
    counts = client.metrics.counts
    known = [*counts.counters(), *dict(counts.histograms())]
    return [key for key in known if name in key and version in key]


@pytest.fixture
def nightly(tmp_path: Path) -> Path:
    """Two versions of a model."""
    for version in ("1", "2"):
        write_bundle(tmp_path, Spec(name="nightly", version=version))
    return tmp_path


def test_metrics_of_a_version_go_with_it(nightly: Path) -> None:
    with Client(nightly, timeout_seconds=0.5) as client:
        for version in ("1", "2"):
            body = {"model": f"nightly@{version}", "inputs": [{"series": [1.0] * 8}]}
            assert client.forecast(body).status_code == 200
        assert keys(client, "nightly", "1")
        client.repository.unload("nightly", "1")
        until(lambda: not keys(client, "nightly", "1"))
        text = client.get("/metrics").text
        assert 'model="nightly",version="1"' not in text
        assert 'model="nightly",version="2"' in text
        assert keys(client, "nightly", "2")
        assert [*client.metrics.last_run] == [("nightly", "2")]


def test_what_ends_after_its_version_left_is_told_of_no_more(nightly: Path) -> None:
    """Such as an answer that its caller reads slowly, and what an HTTP worker counted of it."""
    with Client(nightly, timeout_seconds=0.1) as client:
        client.repository.unload("nightly", "1")
        until(lambda: not keys(client, "nightly", "1"))
        late = Metrics()
        for metrics in (client.metrics, late):
            metrics.answered("/forecast", 200, 0.1, ("nightly", "1"), [("encode", 0.1)])
            metrics.backtested("nightly", "1", {0.8: (1, 2)})
        client.metrics.observer("nightly", "1").ran(1, 2, 0.1, 0.2)
        client.metrics.counts.merge(late.counts.take())
        assert 'model="nightly",version="1"' not in client.get("/metrics").text
        client.metrics.answered("/forecast", 200, 0.1, ("nightly", "1"))
        # Nor is it kept where nobody asks.
        until(lambda: not keys(client, "nightly", "1"))
        assert not client.metrics.last_run


@pytest.mark.parametrize("load", ["start", "on-demand"])
def test_a_version_that_was_refused_goes_with_its_folder(nightly: Path, load: str) -> None:
    broken = nightly / "nightly" / "3"
    write_bundle(nightly, Spec(name="nightly", version="3"))
    (broken / layout.WEIGHTS).write_bytes(b"other")
    with Client(nightly, load=load, max_loaded=2, timeout_seconds=0.5) as client:
        body = {"model": "nightly@3", "inputs": [{"series": [1.0] * 8}]}
        assert client.forecast(body).status_code == 503
        assert 'outcome="refused",version="3"} 1.0' in client.get("/metrics").text
        if load == "on-demand":
            client.repository.unload("nightly", "3")
        shutil.rmtree(broken)
        until(lambda: "3" not in client.repository.registry.versions["nightly"])
        assert 'version="3"' not in client.get("/metrics").text
        assert not keys(client, "nightly", "3")


def test_a_version_that_is_loaded_again_is_counted(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(name="one"))
    write_bundle(tmp_path, Spec(name="two"))
    with Client(tmp_path, timeout_seconds=0.5) as client:
        client.repository.unload("one", "1")
        client.repository.load("one", "1")
        client.repository.unload("two", "1")
        until(lambda: not keys(client, "two", "1"))
        text = client.get("/metrics").text
    assert 'foretell_model_loads_total{model="one",outcome="loaded",version="1"} 2.0' in text
    assert 'model="two"' not in text


def test_only_what_has_all_labels_is_forgotten() -> None:
    metrics = Metrics()
    for version in ("1", "11"):
        metrics.observer("m", version).ran(1, 2, 0.1, 0.2)
        metrics.answered("/forecast", 200, 0.1, ("m", version), [("decode", 0.1)])
    metrics.keep({("m", "11"), ("n", "1")})
    known = [*metrics.counts.counters(), *dict(metrics.counts.histograms())]
    assert not any(key[-1] == "1" and "m" in key for key in known)
    assert any("11" in key for key in known)
    assert metrics.counts.count("foretell_requests_total", "/forecast", "m", "11", "200") == 1


def test_to_forget_one_of_many_versions_takes_no_more_than_of_a_few() -> None:
    def calls(count: int) -> int:
        metrics = Metrics()
        versions = {("m", str(version)) for version in range(count)}
        for name, version in versions:
            metrics.observer(name, version).ran(1, 2, 0.1, 0.2)
        made: list[str] = []
        versions.discard(("m", "7"))
        sys.setprofile(lambda _, event, __: made.append(event))
        try:
            metrics.keep(versions)
        finally:
            sys.setprofile(None)
        assert metrics.last_run.keys() == versions
        return len(made)

    assert calls(1000) == calls(10)
