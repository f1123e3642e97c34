"""The deployed files, and their times and sizes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from foretell.service.settings import Settings
from tests.test_architecture import ROOT

DEPLOY = ROOT / "deploy"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "foretell.json"
DEFAULTS = Settings(models=Path("/models"))
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
# Seconds that `foretell serve` takes to end, beside the time for requests.
END_SECONDS = 10
_SECONDS = {"s": 1, "m": 60}


def seconds(text: str) -> int:
    """Seconds of `90s` or `15m`; a bare number is seconds."""
    found = re.fullmatch(r"(\d+)([sm]?)", text)
    assert found is not None, text
    return int(found[1]) * _SECONDS[found[2] or "s"]


def directives(name: str) -> list[str]:
    """The values of nginx.conf's directives of this name, in the order of the file."""
    return re.findall(rf"^ *{name} (.+);$", (DEPLOY / "nginx.conf").read_text(), re.MULTILINE)


def directive(name: str) -> str:
    """Value of a directive that occurs once."""
    [found] = directives(name)
    return found


def panels() -> list[dict[str, Any]]:
    """Panels of the dashboard without rows, which are only titles."""
    board = json.loads(DASHBOARD.read_text())
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions(panel: dict[str, Any], window: str) -> list[str]:
    """The queries of a panel, as Grafana sends them for all servers and models.

    Args:
        panel: A panel of the dashboard.
        window: Window of rates, such as `1m`.
    """
    values = {"__rate_interval": window, "instance": ".*", "model": ".*"}
    return [
        re.sub(r"\$(\w+)", lambda found: values[found[1]], target["expr"])
        for target in panel["targets"]
    ]
