from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.dashboard import answers, bodies
from bench.drawing import UNITS, Series, draw
from bench.panels import DASHBOARD, expressions, panels

BOARD = json.loads(DASHBOARD.read_text())["panels"]


def ask(path: str, **_: object) -> dict[str, object]:
    """A Prometheus that knows two series, of which one began later."""
    assert path == "query_range"
    found = [
        {"metric": {"model": "m", "version": "1"}, "values": [[100, "1"], [101, "2"]]},
        {"metric": {"model": "m", "version": "2"}, "values": [[101, "4"]]},
    ]
    return {"result": found}


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("s", 0.0125, "12.5 ms"),
        ("s", 3e-5, "30 µs"),
        ("percentunit", 0.805, "80.5%"),
        ("bytes", 3 * 2**20, "3 MiB"),
        ("short", 1500, "1.5 K"),
    ],
)
def test_units(unit: str, value: float, text: str) -> None:
    assert UNITS[unit](value) == text


def test_variables_are_filled_in() -> None:
    for panel in panels():
        for expression in expressions(panel, "15s"):
            assert "$" not in expression


def test_series_of_a_panel_share_their_moments() -> None:
    [panel] = [panel for panel in panels() if panel["title"] == "Requests by model"]
    one, other = answers(ask, panel, 90)
    assert [one.label, other.label] == ["m@1", "m@2"]
    np.testing.assert_array_equal(one.seconds, [10, 11])
    np.testing.assert_array_equal(other.values, [np.nan, 4])


def test_requests_of_all_kinds() -> None:
    entry = {"series": [1.0, 2.0], "timestamps": ["2024-01-01T00", "2024-01-01T01"]}
    example = {"model": "m@1", "request": {"inputs": [entry]}, "actual": [3.0]}
    found = {kind: json.loads(body) for kind, (_, body) in bodies(example, 5).items()}
    assert len(found["forecast"]["inputs"]) == 5
    [known] = found["backtest"]["inputs"]
    assert known == {"series": [1.0, 2.0, 3.0], "start_timestamp": "2024-01-01T00"}


def test_all_that_there_is_gets_drawn(tmp_path: Path) -> None:
    seconds, labels = np.arange(3.0), {"model": "m", "held": "?", "level": "0.8"}
    series = Series("a line", labels, seconds, np.array([0.25, np.nan, 0.5]))
    found = {panel["title"]: [series] for panel in panels()}
    for kind in ("stat", "timeseries", "table"):
        empty = next(panel for panel in panels() if panel["type"] == kind)
        found[empty["title"]] = []
    draw(BOARD, found, tmp_path / "board.svg")
    drawn = (tmp_path / "board.svg").read_text()
    for panel in BOARD:
        assert f"<!-- {panel['title']} -->" in drawn
    for text in ("no data", "50%", "50.0%", "a line", "0.8"):
        assert f"<!-- {text} -->" in drawn, text
