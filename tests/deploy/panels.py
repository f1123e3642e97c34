"""The dashboard's panels and what they ask Prometheus."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.deploy.files import DEPLOY

DASHBOARD = DEPLOY / "grafana" / "dashboards" / "foretell.json"


def panels() -> list[dict[str, Any]]:
    """All that show something; rows are titles alone."""
    board = json.loads(DASHBOARD.read_text())
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions(panel: dict[str, Any], window: str) -> list[str]:
    """The queries of a panel, as Grafana sends them for all servers and models.

    Args:
        panel: One of the dashboard.
        window: What rates are taken over, such as `1m`.
    """
    values = {"__rate_interval": window, "instance": ".*", "model": ".*"}
    return [
        re.sub(r"\$(\w+)", lambda found: values[found[1]], target["expr"])
        for target in panel["targets"]
    ]
