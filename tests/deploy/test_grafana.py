"""deploy/grafana/, without Grafana.

Its types know the fields of a dashboard, of its panels and of their options, and their values. They
do not cover units, values of transformations and overrides, or Prometheus' language:
`test_prometheus.py` sends every query to a real Prometheus.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from tests.deploy.files import COMPOSE, DASHBOARD, DEPLOY, panels

HERE = Path(__file__).parent / "grafana_schema"
# Made of Grafana's types, under the Apache License 2.0 next to it; dashboard.ts describes how.
SCHEMA = jsonschema_rs.validator_for(json.loads((HERE / "dashboard.json").read_text()))
BOARD: dict[str, Any] = json.loads(DASHBOARD.read_text())
ALL: list[dict[str, Any]] = BOARD["panels"]
PANELS = panels()
SERVICE: dict[str, Any] = COMPOSE["services"]["grafana"]
[SOURCE] = yaml.safe_load((DEPLOY / "grafana/datasources/prometheus.yml").read_text())[
    "datasources"
]
[PROVIDER] = yaml.safe_load((DEPLOY / "grafana/dashboards/provider.yml").read_text())["providers"]
VARIABLES: dict[str, dict[str, Any]] = {one["name"]: one for one in BOARD["templating"]["list"]}


def test_dashboard_keeps_to_the_schema() -> None:
    SCHEMA.validate(BOARD)


def test_schema_is_of_the_grafana_version() -> None:
    version = SERVICE["image"].partition("@")[0].rpartition(":")[2]
    assert f"@grafana/schema@{version} " in (HERE / "dashboard.ts").read_text()


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_panel_has_title_description_and_unit(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == {"type": SOURCE["type"], "uid": "${source}"}
    references = [target["refId"] for target in panel["targets"]]
    assert len(set(references)) == len(references) > 0


def test_panels_have_unique_titles_and_do_not_overlap() -> None:
    for name in ("id", "title"):
        [(value, times)] = Counter(panel[name] for panel in ALL).most_common(1)
        assert times == 1, value
    cells: Counter[tuple[int, int]] = Counter()
    for at in (panel["gridPos"] for panel in ALL):
        cells.update(product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
    assert max(x for x, _ in cells) == 23
    assert set(cells.values()) == {1}


def test_source_is_provisioned() -> None:
    assert VARIABLES["source"]["current"] == {"text": SOURCE["name"], "value": SOURCE["uid"]}
    assert VARIABLES["source"]["query"] == SOURCE["type"]
    port = COMPOSE["services"]["prometheus"]["ports"][0].rpartition(":")[2]
    assert SOURCE["url"] == f"http://prometheus:{port}"
    configuration = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    assert SOURCE["jsonData"]["timeInterval"] == configuration["global"]["scrape_interval"]


def test_variables_of_queries_are_defined() -> None:
    queries = [target["expr"] for panel in PANELS for target in panel["targets"]]
    queries += [one["query"] for one in VARIABLES.values() if one["type"] == "query"]
    for expression in queries:
        assert set(re.findall(r"\$(\w+)", expression)) <= {*VARIABLES, "__rate_interval"}


@pytest.mark.parametrize(
    ("title", "alert"),
    [
        ("Errors", "ForetellErrors"),
        ("Slowest 1%", "ForetellSlow"),
        ("Fullest queue", "ForetellQueueNearLimit"),
        ("Queues", "ForetellQueueNearLimit"),
        ("Forecasts", "ForetellSlow"),
        ("Error beside the last season", "ForetellWorseThanNaive"),
        ("Age of actual values", "ForetellNoActuals"),
    ],
)
def test_red_threshold_is_that_of_the_alert(title: str, alert: str) -> None:
    [rule] = [
        rule
        for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
        for rule in group["rules"]
        if rule["alert"] == alert
    ]
    [panel] = [panel for panel in PANELS if panel["title"] == title]
    last = panel["fieldConfig"]["defaults"]["thresholds"]["steps"][-1]
    assert last["color"] == "red"
    assert f"> {last['value']}" in rule["expr"]


def test_dashboard_and_alerts_leave_out_the_same_requests() -> None:
    queries = [target["expr"] for panel in PANELS for target in panel["targets"]]
    filters = re.findall(
        r'route!~"[^"]+"', "".join([*queries, (DEPLOY / "alerts.yml").read_text()])
    )
    assert len(filters) > 4
    assert len(set(filters)) == 1


def test_compose_mounts_the_files_of_grafana() -> None:
    folder = "/etc/grafana/provisioning"
    assert f"./deploy/grafana:{folder}:ro" in SERVICE["volumes"]
    assert PROVIDER["options"]["path"] == f"{folder}/{DASHBOARD.parent.name}"
    home = SERVICE["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{folder}/{DASHBOARD.relative_to(DEPLOY / 'grafana')}"


def test_login_is_disabled() -> None:
    """There is no password to guess: not even the one that every new Grafana has."""
    own = SERVICE["environment"]
    assert own["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert own["GF_AUTH_BASIC_ENABLED"] == "false"
    assert own["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert "GF_AUTH_ANONYMOUS_ORG_ROLE" not in own, "viewers are the default"
