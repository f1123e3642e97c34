"""Requests for forecasts as JSON."""

from __future__ import annotations

from typing import Any

EIGHT = [float(n) for n in range(8)]
PAIRS = [[float(n), 2.0 - n] for n in range(8)]


def body(*inputs: dict[str, Any], model: str = "repeat", **options: Any) -> dict[str, Any]:
    return {"model": model, "inputs": list(inputs) or [{"series": EIGHT}], "options": options}
