"""A server that loads new versions again and again keeps nothing of those that are gone.

The kind of triton-inference-server/server#4528: memory grew with each version that was loaded.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.service.metrics import Metrics
from tests.service.bundles import Spec, write_bundle
from tests.service.client import Client
from tests.service.waiting import until


def test_metrics_of_a_version_go_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.service.engine.repository._COUNTED_SECONDS", 0.1)
    for version in ("1", "2"):
        write_bundle(tmp_path, Spec(name="nightly", version=version))

    def keys(version: str) -> list[tuple[str, ...]]:
        counts = client.metrics.counts
        known = [*counts.counts(), *dict(counts.histograms())]
        return [key for key in known if "nightly" in key and version in key]

    with Client(tmp_path, timeout_seconds=0.5) as client:
        for version in ("1", "2"):
            body = {"model": f"nightly@{version}", "inputs": [{"series": [1.0] * 8}]}
            assert client.forecast(body).status_code == 200
        assert keys("1")
        client.repository.unload("nightly", "1")
        until(lambda: not keys("1"))
        text = client.get("/metrics").text
        assert 'model="nightly",version="1"' not in text
        assert 'model="nightly",version="2"' in text
        assert keys("2")
        assert [*client.metrics.last_run] == [("nightly", "2")]


def test_a_version_that_is_loaded_again_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretell.service.engine.repository._COUNTED_SECONDS", 0.1)
    write_bundle(tmp_path, Spec(name="one"))
    write_bundle(tmp_path, Spec(name="two"))
    with Client(tmp_path, timeout_seconds=0.5) as client:
        forgotten: list[str] = []
        plain = client.metrics.unloaded
        monkeypatch.setattr(
            client.metrics,
            "unloaded",
            lambda name, version: (forgotten.append(name), plain(name, version)),
        )
        client.repository.unload("one", "1")
        client.repository.load("one", "1")
        client.repository.unload("two", "1")
        until(lambda: forgotten == ["two"])
        text = client.get("/metrics").text
    assert 'foretell_model_loads_total{model="one",outcome="loaded",version="1"} 2.0' in text
    assert 'model="two"' not in text


def test_only_what_has_all_labels_is_forgotten() -> None:
    metrics = Metrics()
    for version in ("1", "11"):
        metrics.observer("m", version).ran(1, 2, 0.1, 0.2)
        metrics.answered("/forecast", 200, 0.1, ("m", version), [("decode", 0.1)])
    metrics.unloaded("m", "1")
    known = [*metrics.counts.counts(), *dict(metrics.counts.histograms())]
    assert not any(key[-1] == "1" and "m" in key for key in known)
    assert any("11" in key for key in known)
    assert metrics.counts.count("foretell_requests", "/forecast", "m", "11", "200") == 1
