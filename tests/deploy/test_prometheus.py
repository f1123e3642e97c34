"""deploy/prometheus.yml and its rules: by promtool, and by a real Prometheus on a real server."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from foretell.service.engine.statistics import gauges
from foretell.service.metrics import Metrics
from tests.deploy.files import COMPOSE, DEPLOY, expressions, panels
from tests.support.bundles import Spec, write_bundle
from tests.support.gauges import ledger_gauges
from tests.support.process import ROOT, Program, Server
from tests.support.waiting import until

HERE = Path(__file__).parent
ALERTS = (DEPLOY / "alerts.yml").read_text()
# Panels of NVIDIA's dcgm-exporter.
OTHERS = {"GPU utilisation", "GPU memory"}
SPEC = Spec(calibrated=1)
# The server reads its scores every minute; the tests do not wait for that.
OFTEN = """
from foretell.__main__ import cli
from foretell.service.ledger import writer
writer._CHORES_SECONDS = 0.5
cli()
"""

needs_prometheus = pytest.mark.skipif(
    None in (shutil.which("promtool"), shutil.which("prometheus")),
    reason="no prometheus here (Debian: prometheus)",
)


@needs_prometheus
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", DEPLOY / "prometheus.yml"),
        # When each alert fires.
        ("test", "rules", HERE / "alerts_test.yml"),
        ("test", "rules", HERE / "accuracy_alerts_test.yml"),
    ],
)
def test_promtool_accepts_the_files(arguments: tuple[str | Path, ...]) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_and_documented() -> None:
    alerts = set(re.findall(r"alert: (\w+)", ALERTS))
    tests = "".join(path.read_text() for path in HERE.glob("*alerts_test.yml"))
    tried = re.findall(r"alertname: (\w+)", tests)
    manual = (ROOT / "docs" / "guides" / "monitor.md").read_text()
    assert set(tried) == alerts == set(re.findall(r"^\| `(Foretell\w+)` \|", manual, re.MULTILINE))


def test_alerts_use_existing_metrics() -> None:
    others = chain(gauges([], 1, ready=True, read_at=0.0), ledger_gauges())
    text = Metrics().render(others).decode()
    known = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    named = re.findall(r"\b(?:foretell|process)_\w+", ALERTS)
    used = {name.removesuffix("_bucket") for name in named}
    assert used <= known, used - known


def test_configuration_scrapes_the_services_of_compose() -> None:
    configuration = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    [job] = configuration["scrape_configs"]
    for name in ("foretell", "foretell-cpu"):
        service = COMPOSE["services"][name]
        [alias] = service["networks"]["default"]["aliases"]
        port = service["environment"]["FORETELL_OPERATIONS_PORT"]
        assert job["static_configs"] == [{"targets": [f"{alias}:{port}"]}]
    mounts = COMPOSE["services"]["prometheus"]["volumes"]
    for file in ("prometheus.yml", *configuration["rule_files"]):
        assert f"./deploy/{file}:/etc/prometheus/{file}:ro" in mounts


class Prometheus(Program):
    """Debian's `prometheus` with the files of `deploy/` and shorter intervals.

    Args:
        server: URL of the service, such as `http://127.0.0.1:8000`.
        folder: Where its files are written.
    """

    def __init__(self, server: str, folder: Path) -> None:
        configuration = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
        times = ("scrape_interval", "scrape_timeout", "evaluation_interval")
        configuration["global"] = dict.fromkeys(times, "500ms")
        [job] = configuration["scrape_configs"]
        job["static_configs"] = [{"targets": [server.removeprefix("http://")]}]
        for name in configuration["rule_files"]:
            rules = yaml.safe_load((DEPLOY / name).read_text())
            for rule in (rule for group in rules["groups"] for rule in group["rules"]):
                rule["for"] = "1s"
            (folder / name).write_text(yaml.safe_dump(rules))
        (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        super().__init__(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            folder / "prometheus.log",
            r'"Listening on" address=(\S+)',
        )
        self._client = httpx.Client(base_url=f"http://{self.address}/api/v1")

    def ask(self, path: str, **parameters: str | float) -> Any:
        """Data of its API, at `path` under `/api/v1/`.

        Raises:
            ValueError: Prometheus refuses the query.
        """
        answer = self._client.get(path, params=parameters).json()
        if answer["status"] != "success":
            raise ValueError(f"{parameters}: {answer['error']}")
        return answer["data"]

    def values(self, expression: str) -> list[float]:
        """Current values of a query, by series."""
        found = self.ask("query", query=expression)["result"]
        return [float(series["value"][1]) for series in found]

    def alerts(self) -> dict[str, str]:
        """State of the alerts that are pending or firing, by name."""
        found = self.ask("alerts")["alerts"]
        return {alert["labels"]["alertname"]: alert["state"] for alert in found}

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self.stop()


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
    settings = {
        "pin": f"{SPEC.name}@1",
        "load": "on-demand",
        "keep": SPEC.name,
        "max_loaded": 1,
        "ledger": f"sqlite:///{log.parent / 'ledger.db'}",
        "ledger_learn": "requests",
    }
    with Server(models, log, code=OFTEN, watch_seconds="200ms", **settings) as server:
        yield server


@pytest.fixture(scope="module")
def prometheus(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    with Prometheus(server.url, folder) as prometheus:
        yield prometheus


def ask(server: Server) -> None:
    """Send requests that change every metric: evictions, an unknown model, and all others."""
    for model, status in ((SPEC.name, 200), ("other", 200), ("third", 200), ("none", 404)):
        body = {"model": model, "inputs": [{"series": [1.0] * 8}]}
        assert httpx.post(f"{server.url}/forecast", json=body).status_code == status
    entry = {"series": [float(row % 5) for row in range(20)], "start_timestamp": "2024-03-01"}
    body = {"model": SPEC.name, "inputs": [entry], "options": {"quantiles": [0.1, 0.9]}}
    assert httpx.post(f"{server.url}/backtest", json=body).status_code == 200
    # Actual values of the first forecast are in the history of the second.
    for start in ("2024-03-01T00:00:00", "2024-03-01T04:00:00"):
        named = {"name": "a", "series": [1.0, 3.0] * 4, "start_timestamp": start}
        body = {"model": SPEC.name, "inputs": [named], "options": {"quantiles": [0.1, 0.9]}}
        assert httpx.post(f"{server.url}/forecast", json=body).status_code == 200
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere\r\n\r\n")
        while connection.recv(1024):
            pass


@needs_prometheus
def test_every_query_of_the_dashboard_returns_numbers(
    server: Server, prometheus: Prometheus
) -> None:
    left = {
        (panel["title"], expression)
        for panel in panels()
        for expression in expressions(panel, "30s")
    }

    def answered() -> bool:
        ask(server)
        for title, expression in sorted(left):
            found = prometheus.values(expression)
            # A quantile without samples is NaN.
            if (found and all(map(isfinite, found))) or title in OTHERS:
                left.remove((title, expression))
        return not left

    try:
        until(answered)
    except AssertionError:
        raise AssertionError(sorted(left)) from None


@needs_prometheus
def test_query_of_keda_returns_a_number(prometheus: Prometheus) -> None:
    autoscaler = yaml.safe_load((DEPLOY / "kubernetes/components/keda/autoscaler.yaml").read_text())
    query = autoscaler["spec"]["triggers"][0]["metadata"]["query"]
    # Only an operator adds the label `namespace`.
    plain = query.replace('{namespace="foretell"}', "")
    assert plain != query
    until(lambda: prometheus.values(plain) == [0])


@needs_prometheus
def test_alert_fires_when_a_model_is_taken_away(
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
