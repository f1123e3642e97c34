"""The tool that reads scores from the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from foretell.service.mcp.results import table
from tests.service.mcp.agent import Agent, text
from tests.support.process import Server
from tests.support.waiting import until

HISTORY = [1.0, 2, 3, 4, 5, 6, 7, 8]
START = "2026-03-01T00:00:00"


@pytest.fixture(scope="module")
def keeping(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a ledger, and with a key that may read its scores and one that may not."""
    folder = tmp_path_factory.mktemp("keeping")
    settings = {
        "ledger": f"sqlite:///{folder / 'ledger.db'}",
        "api_keys": "reader,scorer",
        "ledger_keys": "scorer",
        "actuals_keys": "scorer",
    }
    with Server(repository, folder / "log", mcp="true", **settings) as server:
        yield server


def test_scores_of_forecasts_of_tools(keeping: Server) -> None:
    agent = Agent(keeping.url, authorization="Bearer scorer")
    given = {"name": "office", "series": HISTORY, "start_timestamp": START}
    agent.fields("forecast", model="calibrated", inputs=[given], quantiles=[0.1, 0.9])
    experiment = {**given, "name": "experiment"}
    agent.fields("forecast", model="calibrated", inputs=[experiment], ledger=False)
    empty = agent.call("accuracy", model="calibrated")
    assert text(empty) == "No actual values are known of forecasts of calibrated."
    actual = {
        "model": "calibrated",
        "inputs": [
            {"name": name, "series": [9.0] * 4, "start_timestamp": "2026-03-01T08:00:00"}
            for name in ("office", "experiment")
        ],
    }
    headers = {"X-API-Key": "scorer"}
    answer = httpx.post(f"{keeping.url}/actuals", json=actual, headers=headers)
    assert answer.status_code == 200, answer.text
    until(lambda: agent.fields("accuracy", model="calibrated@1")["rows"])
    path = f"{keeping.url}/models/calibrated/accuracy?by=series&limit=20"
    expected = httpx.get(path, headers=headers).json()
    result = agent.call("accuracy", model="calibrated", by="series")
    [row], [of_route] = result.structured_content["rows"], expected["rows"]
    assert row["series"] == "office"
    for name in ("count", "mae", "bias", "mase", "intervals"):
        assert row[name] == of_route[name]
    assert "version,series,namespace,frequency,count,mae" in text(result)


def test_values_of_a_table_are_below_their_names() -> None:
    rows = [{"series": "a", "mae": 1.0}, {"series": 'b, "c"', "coverage of 0.8": 0.5}]
    assert table(rows) == ["series,mae,coverage of 0.8", "a,1.0,", '"b, ""c""",,0.5']


def test_rows_have_the_limit_of_the_route(keeping: Server) -> None:
    agent = Agent(keeping.url, authorization="Bearer scorer")
    limit = agent.tools()["accuracy"].input_schema["properties"]["limit"]
    assert (limit["maximum"], limit["default"]) == (10_000, 20)


def test_key_without_the_right_is_refused(keeping: Server) -> None:
    agent = Agent(keeping.url, authorization="Bearer reader")
    message, error = agent.error("accuracy", model="calibrated")
    assert message.startswith("the key may not read scores or stored forecasts")
    assert error["code"] == "403"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": "calibrated", "by": "hour"}, "by: expected 'step', 'channel', 'series', "),
        ({"model": "calibrated", "limit": 0}, "limit: expected at least 1, got"),
        ({"model": "calibrated", "since": "spring"}, "since: "),
        ({}, "model: required, but missing"),
        ({"model": 7}, "model: expected a string"),
    ],
)
def test_mistakes_are_named(keeping: Server, given: dict[str, object], message: str) -> None:
    agent = Agent(keeping.url, authorization="Bearer scorer")
    assert agent.error("accuracy", **given)[0].startswith(message)
