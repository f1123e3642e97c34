"""A real Prometheus on a real server: what the dashboard and the alerts ask for is there."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Iterator
from math import isfinite
from pathlib import Path

import httpx
import pytest
import yaml

from tests.deploy.files import DEPLOY
from tests.deploy.panels import expressions, panels
from tests.deploy.prometheus import Prometheus
from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no prometheus here (Debian: prometheus)"
)

# Of NVIDIA's dcgm-exporter.
OTHERS = {"GPU utilisation", "GPU memory"}
SPEC = Spec(calibrated=1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_bundle(folder, SPEC)
    for name in ("other", "third"):
        write_bundle(folder, Spec(name=name))
    return folder


@pytest.fixture(scope="module")
def server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("server") / "log"
    settings = {"pin": f"{SPEC.name}@1", "load": "on-demand", "keep": SPEC.name, "max_loaded": 1}
    with Server(models, log, watch_seconds="200ms", **settings) as server:
        yield server


@pytest.fixture(scope="module")
def prometheus(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    with Prometheus(server.url, folder, interval="500ms", pending="1s") as prometheus:
        yield prometheus


def ask(server: Server) -> None:
    """Ask models that put each other out, and one that is not there; and all else that counts."""
    for model, status in ((SPEC.name, 200), ("other", 200), ("third", 200), ("none", 404)):
        body = {"model": model, "inputs": [{"series": [1.0] * 8}]}
        assert httpx.post(f"{server.url}/forecast", json=body).status_code == status
    entry = {"series": [float(row % 5) for row in range(20)], "start_timestamp": "2024-03-01"}
    body = {"model": SPEC.name, "inputs": [entry], "options": {"quantiles": [0.1, 0.9]}}
    assert httpx.post(f"{server.url}/backtest", json=body).status_code == 200
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere\r\n\r\n")
        while connection.recv(1024):
            pass


def test_every_query_of_the_dashboard_has_numbers(server: Server, prometheus: Prometheus) -> None:
    left = {
        (panel["title"], expression)
        for panel in panels()
        for expression in expressions(panel, "30s")
    }

    def answered() -> bool:
        ask(server)
        for title, expression in sorted(left):
            found = prometheus.values(expression)
            # A quantile of nothing is no number.
            if (found and all(map(isfinite, found))) or title in OTHERS:
                left.remove((title, expression))
        return not left

    try:
        until(answered)
    except AssertionError:
        raise AssertionError(sorted(left)) from None


def test_every_metric_of_the_alerts_is_scraped(prometheus: Prometheus) -> None:
    named = set(re.findall(r"\b(?:foretell|process)_\w+", (DEPLOY / "alerts.yml").read_text()))
    scraped = set(prometheus.ask("label/__name__/values"))
    # Named in texts alone, or of servers of object storage.
    others = {"foretell_rejected_total", "foretell_stage_seconds"}
    others.add("foretell_storage_last_sync_timestamp_seconds")
    assert named - others <= scraped


def test_what_keda_asks_has_a_number(prometheus: Prometheus) -> None:
    autoscaler = yaml.safe_load((DEPLOY / "kubernetes/components/keda/autoscaler.yaml").read_text())
    query = autoscaler["spec"]["triggers"][0]["metadata"]["query"]
    # Here nobody adds what Prometheus' operator does.
    plain = query.replace('{namespace="foretell"}', "")
    assert plain != query
    until(lambda: prometheus.values(plain) == [0])


def test_an_alert_fires_when_a_model_is_taken_away(
    models: Path, server: Server, prometheus: Prometheus
) -> None:
    until(lambda: prometheus.values("foretell_ready") == [1])
    assert "ForetellNotReady" not in prometheus.alerts()
    folder = models / SPEC.name
    away = folder.rename(models.parent / f"{models.name}-away")
    until(lambda: prometheus.values("foretell_ready") == [0])
    until(lambda: prometheus.alerts().get("ForetellNotReady") == "firing")
    away.rename(folder)
    until(lambda: "ForetellNotReady" not in prometheus.alerts())
