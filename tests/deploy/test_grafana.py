"""deploy/grafana/, without Grafana.

Its types know the fields of a dashboard, of its panels and of their options, and their values. They
do not know units, what transformations and overrides are set to, or Prometheus' language:
`test_scrape.py` asks a real Prometheus every query.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from copy import deepcopy
from itertools import combinations, product
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from foretell.service.engine.statistics import gauges
from foretell.service.metrics import Metrics
from tests.deploy.files import COMPOSE, DEPLOY
from tests.deploy.panels import DASHBOARD, panels

HERE = Path(__file__).parent / "grafana_schema"
# Of Grafana's own types, by the Apache License 2.0 next to it; dashboard.ts says how.
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


def test_it_is_what_grafana_calls_a_dashboard() -> None:
    SCHEMA.validate(BOARD)


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ("options", "colourMode", "value"),
        ("options", "graphMode", "bars"),
        ("gridPos", "width", 4),
        ("targets", "0", {"refId": "A", "expression": "up"}),
        ("fieldConfig", "defaults", {"unit": 1}),
    ],
)
def test_its_schema_finds_what_is_wrong(place: str, name: str, value: object) -> None:
    wrong = deepcopy(BOARD)
    stat = next(panel for panel in wrong["panels"] if panel["type"] == "stat")
    if isinstance(stat[place], list):
        stat[place][int(name)] = value
    else:
        stat[place][name] = value
    assert not SCHEMA.is_valid(wrong)


def test_its_schema_is_that_of_the_version_that_is_served() -> None:
    version = SERVICE["image"].rpartition(":")[2]
    assert f"@grafana/schema@{version} " in (HERE / "dashboard.ts").read_text()


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_a_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == {"type": SOURCE["type"], "uid": "${source}"}
    references = [target["refId"] for target in panel["targets"]]
    assert len(set(references)) == len(references) > 0


def test_no_two_are_the_same() -> None:
    for name in ("id", "title"):
        [(value, times)] = Counter(panel[name] for panel in ALL).most_common(1)
        assert times == 1, value


def test_none_covers_another_one() -> None:
    places = {panel["title"]: panel["gridPos"] for panel in ALL}
    cells = {
        title: set(product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
        for title, at in places.items()
    }
    assert max(x for own in cells.values() for x, _ in own) == 23
    for one, other in combinations(cells, 2):
        assert not cells[one] & cells[other], (one, other)


def test_its_source_is_the_one_that_is_provisioned() -> None:
    assert VARIABLES["source"]["current"] == {"text": SOURCE["name"], "value": SOURCE["uid"]}
    assert VARIABLES["source"]["query"] == SOURCE["type"]
    port = COMPOSE["services"]["prometheus"]["ports"][0].rpartition(":")[2]
    assert SOURCE["url"] == f"http://prometheus:{port}"
    configuration = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    assert SOURCE["jsonData"]["timeInterval"] == configuration["global"]["scrape_interval"]


def test_it_asks_for_variables_and_metrics_that_there_are() -> None:
    text = Metrics().render(gauges([], 1, ready=True)).decode()
    known = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)) | {"up", "ALERTS"}
    used: set[str] = set()
    asked = [target["expr"] for panel in PANELS for target in panel["targets"]]
    asked += [one["query"] for one in VARIABLES.values() if one["type"] == "query"]
    for expression in asked:
        assert set(re.findall(r"\$(\w+)", expression)) <= {*VARIABLES, "__rate_interval"}
        used |= set(re.findall(r"\b(?:foretell|process)_\w+|\bup\b|\bALERTS\b", expression))
    plain = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    assert plain <= known, plain - known


@pytest.mark.parametrize(
    ("title", "alert"),
    [
        ("Errors", "ForetellErrors"),
        ("Slowest 1%", "ForetellSlow"),
        ("Fullest queue", "ForetellQueueNearLimit"),
        ("Queues", "ForetellQueueNearLimit"),
        ("Forecasts", "ForetellSlow"),
    ],
)
def test_what_is_red_is_what_an_alert_is_about(title: str, alert: str) -> None:
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


def test_it_leaves_out_the_requests_that_the_alert_leaves_out() -> None:
    asked = [target["expr"] for panel in PANELS for target in panel["targets"]]
    left_out = re.findall(r'route!~"[^"]+"', "".join([*asked, (DEPLOY / "alerts.yml").read_text()]))
    assert len(left_out) > 4
    assert len(set(left_out)) == 1


def test_what_compose_mounts() -> None:
    folder = "/etc/grafana/provisioning"
    assert f"./deploy/grafana:{folder}:ro" in SERVICE["volumes"]
    assert PROVIDER["options"]["path"] == f"{folder}/{DASHBOARD.parent.name}"
    home = SERVICE["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{folder}/{DASHBOARD.relative_to(DEPLOY / 'grafana')}"


def test_nobody_can_log_in() -> None:
    """There is no password to guess: not even the one that every new Grafana has."""
    own = SERVICE["environment"]
    assert own["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert own["GF_AUTH_BASIC_ENABLED"] == "false"
    assert own["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert "GF_AUTH_ANONYMOUS_ORG_ROLE" not in own, "viewers are the default"
