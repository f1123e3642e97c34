"""Tools, called by the protocol's own client over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.mcp.agent import Agent, text
from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server
from tests.support.waiting import until

HISTORY = [1.0, 2, 3, 4, 5, 6, 7, 8]
ROWS = [[float(row), row / 2] for row in range(40)]
PAIR = {"name": "site", "series": ROWS, "start_timestamp": "2026-03-01T00:00:00"}


@pytest.fixture(scope="module", params=[1, 2], ids=["one-process", "two-workers"])
def agents(
    request: pytest.FixtureRequest, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, list[Agent]]]:
    """A server, and agents of the newest and of an older version of the protocol."""
    log = tmp_path_factory.mktemp("log") / "log"
    with Server(repository, log, mcp="true", workers=request.param) as server:
        yield server, [Agent(server.url), Agent(server.url, "legacy")]


def posted(server: Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The content of the first output of a route's answer."""
    answer = httpx.post(f"{server.url}{path}", json=body)
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()["outputs"][0]["content"][0]
    return content


def test_forecasts_are_those_of_the_route(agents: tuple[Server, list[Agent]]) -> None:
    server, both = agents
    options = {"horizon": 6, "quantiles": [0.1, 0.9]}
    given = {"model": "calibrated", "inputs": [{"series": HISTORY}]}
    expected = posted(server, "/forecast", {**given, "options": options})
    # Every worker gets some of the calls.
    for agent in both * 4:
        [found] = agent.fields("forecast", **given, **options)["forecasts"]
        for name in ("name", "mean_forecast", "quantiles", "rolled_from"):
            assert found[name] == expected[name], name


def test_backtests_are_those_of_the_route(agents: tuple[Server, list[Agent]]) -> None:
    server, both = agents
    history = [float(row % 7) for row in range(60)]
    given = {"model": "calibrated", "inputs": [{"series": history}]}
    options = {"stride": 2, "quantiles": [0.1, 0.9]}
    expected = posted(server, "/backtest", {**given, "options": options})
    for agent in both:
        [found] = agent.fields("backtest", **given, **options)["backtests"]
        assert found["origins"] == expected["origins"]
        [channel], [of_route] = found["channels"], expected["channels"]
        assert channel["mae"] == of_route["mae"]
        assert channel["last_value"] == of_route["last_value"]
        assert channel["intervals"][0]["coverage"] == of_route["intervals"][0]["coverage"]
        assert "steps" not in channel
        assert "steps" not in channel["intervals"][0]


def test_models_have_what_a_forecast_needs(agents: tuple[Server, list[Agent]]) -> None:
    for agent in agents[1]:
        found = {each["name"]: each for each in agent.fields("list_models")["models"]}
        pair = found["pair"]
        assert (pair["channels"], pair["context"], pair["horizon"]) == (["load", "wind"], 8, 4)
        assert (pair["frequency"], pair["needs_timestamps"]) == ("h", True)
        assert found["calibrated"]["quantile_levels"] == [0.01, 0.99]
        future = found["shop"]["covariates"]["future"]
        assert [each["name"] for each in future] == ["discount", "sky"]
        assert future[1]["categories"] == ["rain", "sun"]


def test_metrics_count_forecasts_of_tools(agents: tuple[Server, list[Agent]]) -> None:
    server, (agent, _) = agents
    answered = 'foretell_requests_total{model="shop",route="/forecast",status="200",version="1"}'
    given = {"series": HISTORY, "future_covariates": {"discount": [0.0] * 12, "sky": ["sun"] * 12}}
    agent.fields("forecast", model="shop", inputs=[given])
    # Metrics of workers reach the engine a moment later.
    until(lambda: server.metric(answered) == 1)


def test_columns_are_named_and_chosen(server: Server) -> None:
    agent = Agent(server.url)
    given = {"model": "pair", "inputs": [PAIR], "horizon": 2}
    [whole] = agent.fields("forecast", **given)["forecasts"]
    assert whole["channels"] == ["load", "wind"]
    assert whole["timestamps"] == ["2026-03-02T16:00:00", "2026-03-02T17:00:00"]
    result = agent.call("forecast", **given, targets=["wind"])
    [chosen] = result.structured_content["forecasts"]
    assert chosen["channels"] == ["wind"]
    assert chosen["mean_forecast"] == [[row[1]] for row in whole["mean_forecast"]]
    first = chosen["mean_forecast"][0][0]
    assert f"site:\ntime,wind\n2026-03-02T16:00:00,{first}\n" in text(result)
    message, error = agent.error("forecast", **given, targets=["wint"])
    assert message == "targets[0]: no forecast channel 'wint'; did you mean 'wind'?"
    assert error["param"] == "targets[0]"


def test_scenarios_are_compared(server: Server) -> None:
    futures = [
        {"name": name, "future_covariates": {"discount": [value] * 4}}
        for name, value in (("low", 0.0), ("high", 1.0))
    ]
    given = {
        "series": HISTORY,
        "future_covariates": {"sky": ["sun"] * 12},
        "past_covariates": {"discount": [0.0] * 8},
        "scenarios": futures,
    }
    result = Agent(server.url).call("forecast", model="shop", inputs=[given])
    assert not result.is_error, text(result)
    [found] = result.structured_content["forecasts"]
    assert [each["name"] for each in found["scenarios"]] == ["low", "high"]
    assert found["scenarios"][1]["difference"] != [0.0] * 4
    assert "series-0, scenario high:" in text(result)


@pytest.mark.parametrize(
    ("given", "message", "param"),
    [
        (
            {"model": "calibrated", "inputs": [{"series": HISTORY[:3]}]},
            "inputs[0].series: expected at least 8 rows, the model's context, got 3",
            "inputs[0].series",
        ),
        (
            {"model": "calibrated", "inputs": [{"series": [*HISTORY[:7], "warm"]}]},
            "inputs[0].series[7]: expected a number, got the string 'warm'",
            "inputs[0].series[7]",
        ),
        (
            {"model": "calibrate", "inputs": [{"series": HISTORY}]},
            "model: no model 'calibrate'; served (list_models): calibrated, pair, shop, wide; did "
            "you mean 'calibrated'?",
            "model",
        ),
        (
            {"model": "calibrated", "inputs": [{"series": HISTORY}], "horizon": 0},
            "horizon: expected at least 1, got 0",
            "horizon",
        ),
        (
            {"model": "calibrated", "inputs": [{"series": HISTORY}], "horizn": 2},
            "horizn: unknown; did you mean 'horizon'?",
            "horizn",
        ),
        ({"model": "calibrated"}, "inputs: required, but missing", "inputs"),
        (
            {"model": "calibrated", "inputs": [{"series": HISTORY}], "targets": []},
            "targets: expected a list of names of channels",
            "targets",
        ),
        (
            {"model": "wide", "inputs": [{"series": HISTORY}], "targets": ["c1", "c2", "c1"]},
            "targets: expected each name once",
            "targets",
        ),
        (
            {"model": "calibrated", "inputs": [{"series": HISTORY}], "quantiles": [2.0]},
            "quantiles[0]: expected less than 1.0, got 2.0",
            "quantiles[0]",
        ),
        (
            {"model": "calibrated", "inputs": [{"series": [*HISTORY, None]}]},
            "inputs[0].series[8]: a value is missing (null), and missing is 'error'",
            "inputs[0].series[8]",
        ),
        (
            {"model": "calibrated", "inputs": [{"series": HISTORY, "name": "x" * 70_000}]},
            "inputs: the names of series and scenarios have 70,000 characters, and may have "
            "65,536; shorten them",
            "inputs",
        ),
    ],
)
def test_mistakes_are_named_with_their_place(
    server: Server, given: dict[str, Any], message: str, param: str
) -> None:
    found, error = Agent(server.url).error("forecast", **given)
    assert (found, error["param"]) == (message, param)


def test_series_with_an_error_does_not_affect_others(server: Server) -> None:
    inputs = [{"series": HISTORY}, {"series": HISTORY[:3]}]
    result = Agent(server.url).call("forecast", model="calibrated", inputs=inputs)
    assert len(result.structured_content["forecasts"]) == 1
    [error] = result.structured_content["errors"]
    assert (error["input"], error["param"]) == (1, "inputs[1].series")
    assert "Error: inputs[1].series: expected at least 8 rows" in text(result)


@pytest.mark.parametrize("model", ["no/such", "../healthz", "shop@x", "none"])
def test_unknown_models_are_refused(server: Server, model: str) -> None:
    message, error = Agent(server.url).error("list_models", model=model)
    assert message.startswith(f"model: no model '{model}'")
    assert error["code"] == "404"


def test_unknown_tool_is_refused(server: Server) -> None:
    assert Agent(server.url).refusal("forcast") == "no tool 'forcast'; did you mean 'forecast'?"


def test_large_results_are_refused_with_the_limit(server: Server) -> None:
    agent = Agent(server.url)
    given = {"model": "wide", "inputs": [{"series": [[1.0] * 300] * 8}], "horizon": 16}
    message, _ = agent.error("forecast", **given)
    assert message == (
        "the result has 4,800 numbers, and may have 4,000; ask for fewer inputs, steps, quantiles "
        "or targets"
    )
    [found] = agent.fields("forecast", **given, targets=["c7"])["forecasts"]
    assert [row[0] for row in found["mean_forecast"][::4]] == [8.0, 64.0, 512.0, 4096.0]


def test_long_names_are_cut_in_the_text(server: Server) -> None:
    name = "x" * 30_000
    result = Agent(server.url).call(
        "forecast", model="calibrated", inputs=[{"series": HISTORY, "name": name}]
    )
    assert result.structured_content["forecasts"][0]["name"] == name
    assert len(text(result)) < 500
    assert f"{name[:64]}…:\nstep,forecast\n1,8.0" in text(result)


def test_digest_of_the_model_is_shown(server: Server) -> None:
    given = {"model": "calibrated", "inputs": [{"series": HISTORY}]}
    expected = httpx.get(f"{server.url}/models/calibrated").json()["digest"]
    assert Agent(server.url).fields("forecast", **given)["model_digest"] == expected


def test_names_of_all_models_come_if_their_cards_are_too_large(tmp_path: Path) -> None:
    channels = tuple(f"channel-{'x' * 200}-{number}" for number in range(4_000))
    for name in ("first", "second", "third"):
        write_bundle(tmp_path / "models", Spec(name=name, channels=channels))
    with Server(tmp_path / "models", tmp_path / "log", mcp="true") as server:
        assert len(httpx.get(f"{server.url}/models").content) > 4 * 1024 * 1024
        agent = Agent(server.url)
        found = agent.fields("list_models")["models"]
        assert [each["name"] for each in found] == ["first", "second", "third"]
        assert (len(found[0]["channels"]), found[0]["number_of_channels"]) == (20, 4_000)
        [one] = agent.fields("list_models", model="second")["models"]
        assert (len(one["targets"]), one["number_of_targets"]) == (1000, 4_000)


def test_many_channels_and_models_are_shortened(tmp_path: Path, server: Server) -> None:
    agent = Agent(server.url)
    wide = agent.fields("list_models")["models"][-1]
    assert (len(wide["channels"]), wide["number_of_channels"]) == (20, 300)
    [whole] = agent.fields("list_models", model="wide@1")["models"]
    assert len(whole["channels"]) == 300
    for number in range(23):
        write_bundle(tmp_path / "models", Spec(name=f"model-{number:02}"))
    with Server(tmp_path / "models", tmp_path / "log", mcp="true") as many:
        result = Agent(many.url).call("list_models")
        assert len(result.structured_content["models"]) == 20
        assert result.structured_content["other_models"] == ["model-20", "model-21", "model-22"]
        assert "Also: model-20, model-21, model-22" in text(result)


def test_schemas_fit_the_documented_arguments(server: Server) -> None:
    """Each tool describes every argument, without references, and only in its own words."""
    tools = Agent(server.url).tools()
    assert [*tools] == ["list_models", "forecast", "backtest"]
    for tool in tools.values():
        shown = str(tool.input_schema)
        assert "$ref" not in shown
        assert "GET /models" not in shown
        assert all("description" in each for each in tool.input_schema["properties"].values())
    inputs = tools["forecast"].input_schema["properties"]["inputs"]["items"]
    assert inputs["required"] == ["series"]
    assert tools["forecast"].input_schema["properties"]["targets"]["uniqueItems"]
    assert "scenarios" in inputs["properties"]
    assert "scenarios" not in str(tools["backtest"].input_schema)
