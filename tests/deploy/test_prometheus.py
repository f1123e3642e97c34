"""deploy/prometheus.yml and its rules, by promtool."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from foretell.service.engine.statistics import gauges
from foretell.service.metrics import Metrics
from tests.deploy.files import COMPOSE, DEPLOY
from tests.support.process import ROOT

HERE = Path(__file__).parent
ALERTS = (DEPLOY / "alerts.yml").read_text()

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool here (Debian: prometheus)"
)


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_configuration_and_its_rules() -> None:
    promtool("check", "config", DEPLOY / "prometheus.yml")


@needs_promtool
def test_when_each_alert_fires() -> None:
    promtool("test", "rules", HERE / "alerts_test.yml")


def test_every_alert_is_tried_and_described() -> None:
    alerts = set(re.findall(r"alert: (\w+)", ALERTS))
    tried = re.findall(r"alertname: (\w+)", (HERE / "alerts_test.yml").read_text())
    manual = (ROOT / "docs" / "guides" / "monitor.md").read_text()
    assert set(tried) == alerts == set(re.findall(r"^\| `(Foretell\w+)` \|", manual, re.MULTILINE))


def test_alerts_are_about_metrics_that_there_are() -> None:
    text = Metrics().render(gauges([], 1, ready=True, read_at=0.0)).decode()
    known = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    used = {name.removesuffix("_bucket") for name in re.findall(r"\bforetell_\w+", ALERTS)}
    assert used <= known, used - known


def test_it_scrapes_what_has_metrics() -> None:
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
