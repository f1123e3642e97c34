"""Scenarios: several futures of one input, side by side."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.service.forecast import cut
from foretell.service.forecast import parse as parsing
from foretell.service.forecast.answers import ForecastResponse
from foretell.service.forecast.covariates import CovariateReader
from foretell.service.forecast.encode import encode
from foretell.service.forecast.job import decode
from foretell.service.forecast.options import FORECASTING, Options
from foretell.service.forecast.requests import SeriesInput
from foretell.service.http.body import LARGE
from tests.service.client import Client, request_of
from tests.service.forecast.bodies import request_body, submitted
from tests.service.forecast.shops import (
    CONTEXT,
    HORIZON,
    KIOSK,
    SHOP,
    kiosk,
    models,
    server,
    shop,
    values,
)
from tests.service.forecast.test_backtest import error as refused_backtest
from tests.support.bundles import Spec

__all__ = ["models", "server"]

SERVED = (SHOP, KIOSK, Spec(name="plain"))
FUTURE, PAST = "future_covariates", "past_covariates"


def changes(count: int, ahead: int = HORIZON) -> list[dict[str, Any]]:
    """Scenarios that change some of the covariates; the first changes none."""
    names = ("price", "sky", "open")
    return [
        {
            FUTURE: {
                name: values(name, ahead, shift=3 * number + 1)
                for place, name in enumerate(names)
                if number & 1 << place
            }
        }
        for number in range(count)
    ]


def alone(entry: dict[str, Any], scenario: dict[str, Any], ahead: int) -> dict[str, Any]:
    """The input with the future of a scenario."""
    entry = copy.deepcopy(entry)
    for name, steps in scenario[FUTURE].items():
        entry[FUTURE][name][-ahead:] = steps
    return entry


def first(client: Client, model: str, entry: dict[str, Any], **options: Any) -> dict[str, Any]:
    return client.first(request_body(entry, model=model, options=options))


def answered(client: Client, request: dict[str, Any]) -> dict[str, Any]:
    answer = client.forecast(request)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    described = ForecastResponse.model_validate(found).model_dump(exclude_unset=True)
    for output, meant in zip(found["outputs"], described["outputs"], strict=True):
        for content, known in zip(output["content"], meant["content"], strict=True):
            for each, fields in zip(
                content.get("scenarios", ()), known.get("scenarios", ()), strict=True
            ):
                assert set(each) == set(fields)
    return found


OPTIONS: list[dict[str, Any]] = [
    {},
    {"horizon": 3, "quantiles": [0.9, 0.1]},
    {"horizon": 10},
    {"attention": True},
    {"quantiles": [0.5], "calibration": "history"},
    {"missing": "interpolate", "quantiles": [0.5]},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_scenarios_are_the_requests_of_their_futures(
    server: Client, options: dict[str, Any]
) -> None:
    rows, ahead = 50, -(-options.get("horizon", HORIZON) // HORIZON) * HORIZON
    inputs = [{"name": f"{n}", **shop(rows, ahead, shift=n)} for n in range(3)]
    if "missing" in options:
        inputs[0][FUTURE]["price"][rows - 2 : rows] = [None, None]
        inputs[0][FUTURE]["sky"][40:44] = [None] * 4
        inputs[2]["series"][rows - 1][0] = None
    lists = changes(8, ahead), None, changes(3, ahead)
    for entry, scenarios in zip(inputs, lists, strict=True):
        if scenarios is not None:
            entry["scenarios"] = scenarios
    outputs = answered(server, request_body(*inputs, model="shop", options=options))["outputs"]
    for entry, scenarios, output in zip(inputs, lists, outputs, strict=True):
        (found,) = output["content"]
        entry.pop("scenarios", None)
        expected = [
            first(server, "shop", alone(entry, scenario, ahead), **options)
            for scenario in scenarios or [{FUTURE: {}}]
        ]
        if scenarios is None:
            assert "scenarios" not in found
            np.testing.assert_allclose(
                found["mean_forecast"], expected[0]["mean_forecast"], rtol=1e-6
            )
            continue
        sides = found.pop("scenarios")
        assert [each.pop("name") for each in sides] == [f"scenario-{n}" for n in range(len(sides))]
        base = np.array(expected[0]["mean_forecast"])
        for each, own in zip(sides, expected, strict=True):
            np.testing.assert_allclose(each["mean_forecast"], own["mean_forecast"], rtol=1e-6)
            np.testing.assert_allclose(
                each["difference"], np.array(own["mean_forecast"]) - base, atol=1e-3
            )
            assert each.get("filled") == own.get("filled")
            assert ("attention" in each) == ("attention" in own)
            for level, quantiles in own.get("quantiles", {}).items():
                np.testing.assert_allclose(each["quantiles"][level], quantiles, rtol=1e-5)
        # The rest is that of the first.
        expected[0].pop("attention", None)
        assert set(found) == set(expected[0])
        for name in set(found) - {"mean_forecast", "quantiles"}:
            assert found[name] == expected[0][name]
        assert found["mean_forecast"] == sides[0]["mean_forecast"]


def test_scenarios_differ_in_what_they_change(server: Client) -> None:
    entry = {**shop(), "scenarios": changes(4)}
    found = first(server, "shop", entry)["scenarios"]
    assert np.all(np.equal(found[0]["difference"], 0))
    assert all(np.any(np.not_equal(each["difference"], 0)) for each in found[1:])


def test_scenarios_hold_what_the_model_reads(server: Client) -> None:
    """A gap may reach back over many rows."""
    rows = 5000
    entry = {**shop(rows), "scenarios": changes(4)}
    entry[FUTURE]["price"][1:rows] = [None] * (rows - 1)
    entry[FUTURE]["sky"][1:rows] = [None] * (rows - 1)
    manifest = server.repository.registry.find("shop").manifest
    options = Options(HORIZON, 1, "ffill", (), None)
    read = CovariateReader(manifest, options).read(SeriesInput.model_validate(entry), "inputs[0]")
    assert read is not None
    for scenario in read.scenarios:
        assert scenario.codes.shape == (CONTEXT + HORIZON, 3)
        assert scenario.codes.dtype == np.float32
        assert scenario.codes.base is None
        assert (scenario.codes[:CONTEXT, 0] == entry[FUTURE]["price"][0]).all()
    assert read.rows.size == 0


def test_gaps_that_scenarios_share_count_once(server: Client) -> None:
    entry = shop()
    entry["series"][2][0] = None
    entry[FUTURE]["price"][3:5] = [None] * 2
    entry[FUTURE]["sky"][-1] = None
    entry["scenarios"] = [{}, {}, {FUTURE: {"price": [1.0, None, None, 2.0]}}, {}]
    options = {"missing": "interpolate"}
    answer = answered(server, request_body(entry, model="shop", options=options))
    (warning,) = [each for each in answer["warnings"] if each["type"] == "filled"]
    # One of the series, two of rows, one of the steps of all and two of a scenario.
    assert warning["message"].startswith("6 missing values")
    own = [each["filled"] for each in answer["outputs"][0]["content"][0]["scenarios"]]
    assert own[0] == own[1] == own[3] == {"sales": 1, "price": 2, "sky": 1}
    assert own[2] == {"sales": 1, "price": 4, "sky": 1}


def test_scenarios_run_in_one_run(server: Client) -> None:
    with submitted(server, "shop") as runs:
        first(server, "shop", {**shop(), "scenarios": changes(5)})
    assert runs == [5]


def test_input_without_a_future_of_its_own(server: Client) -> None:
    """It has the rows, and each scenario the steps."""
    entry = kiosk()
    whole = first(server, "kiosk", entry)
    price = entry.pop(FUTURE)["price"]
    entry[PAST]["price"] = price[:CONTEXT]
    entry["scenarios"] = [{"name": n, FUTURE: {"price": price[CONTEXT:]}} for n in ("as now", "b")]
    found = first(server, "kiosk", entry)
    np.testing.assert_allclose(found["mean_forecast"], whole["mean_forecast"], rtol=1e-6)
    assert [each["name"] for each in found["scenarios"]] == ["as now", "b"]
    del entry["scenarios"][1][FUTURE]
    error = server.error(request_body(entry, model="kiosk"))
    assert error["param"] == "inputs[0].scenarios[1].future_covariates.price"
    assert error["message"].endswith("send the 4 values of the steps after them")
    del entry[PAST]["price"]
    error = server.error(request_body(entry, model="kiosk"))
    assert error["param"] == "inputs[0].future_covariates.price"


WRONG: list[tuple[Any, str, str]] = [
    ([], "scenarios", "a list of at least 1"),
    ({}, "scenarios", "expected a list"),
    ([1], "scenarios[0]", "expected an object"),
    ([{}, {FUTURE: [1]}], f"scenarios[1].{FUTURE}", "expected an object"),
    ([{}, {FUTURE: {"price": [1.0] * 3}}], f"scenarios[1].{FUTURE}.price", "expected 4 values"),
    ([{FUTURE: {"price": [1.0] * 12}}], f"scenarios[0].{FUTURE}.price", "rows' come once, in the"),
    ([{FUTURE: {"prices": [1.0] * 4}}], f"scenarios[0].{FUTURE}.prices", "did you mean 'price'"),
    (
        [{FUTURE: {"size": [1.0] * 4}}],
        f"scenarios[0].{FUTURE}.size",
        "static_covariates, which all",
    ),
    ([{FUTURE: {"sky": ["rian"] * 4}}], f"scenarios[0].{FUTURE}.sky[0]", "did you mean 'rain'"),
    ([{FUTURE: {"open": [True, None] * 2}}], f"scenarios[0].{FUTURE}.open[1]", "is missing"),
    ([{}, {"futur_covariates": {}}], "scenarios[1].futur_covariates", "did you mean"),
    ([{"series": [1]}], "scenarios[0].series", r"belongs in inputs\[\]"),
    ([{"name": "a"}, {"name": "a"}], "scenarios[1].name", "no other scenario has, got .*'a'"),
    ([{}, {"name": ""}], "scenarios[1].name", "expected a name that is not empty; leave it out"),
    ([{}, {"name": 1}], "scenarios[1].name", "expected a string, got 1"),
]


@pytest.mark.parametrize(("scenarios", "place", "message"), WRONG)
def test_mistakes_have_their_place(
    server: Client, scenarios: Any, place: str, message: str
) -> None:
    found = server.error(request_body({**shop(), "scenarios": scenarios}, model="shop"))
    assert found["param"] == f"inputs[0].{place}"
    assert re.search(message, found["message"]), found["message"]


def test_names_that_the_request_leaves_out_differ_from_given_ones(server: Client) -> None:
    scenarios = [{"name": "scenario-1"}, {}, {"name": "scenario-1-1"}, {}]
    found = first(server, "shop", {**shop(), "scenarios": scenarios})["scenarios"]
    names = ["scenario-1", "scenario-1-1-1", "scenario-1-1", "scenario-3"]
    assert [each["name"] for each in found] == names


def test_scenario_names_the_field_of_the_input_that_a_past_covariate_belongs_in(
    server: Client,
) -> None:
    entry = {**kiosk(), "scenarios": [{FUTURE: {"visits": [1.0] * HORIZON}}]}
    found = server.error(request_body(entry, model="kiosk"))
    assert found["param"] == "inputs[0].scenarios[0].future_covariates.visits"
    assert found["message"] == (
        "kiosk reads no such covariate here; it belongs in inputs[0].past_covariates, which all "
        "scenarios read"
    )
    entry["scenarios"] = [{PAST: {"visits": [1.0] * HORIZON}}]
    found = server.error(request_body(entry, model="kiosk"))
    assert found["param"] == "inputs[0].scenarios[0].past_covariates"
    assert found["message"] == "unknown; 'past_covariates' belongs in inputs[]"


def test_gap_that_cannot_be_filled_is_named_where_it_is(server: Client) -> None:
    entry = shop(rows=12)
    entry[FUTURE]["price"][:11] = [None] * 11
    entry["scenarios"] = [{}, {FUTURE: {"price": [1.0] * 4}}]
    request = request_body(entry, model="shop", options={"missing": "ffill"})
    assert server.error(request)["param"] == "inputs[0].future_covariates.price[4]"
    # Rows before the context fill gaps in it, in every scenario.
    entry[FUTURE]["price"][2] = 7.5
    found = first(server, "shop", entry, missing="ffill")
    assert [each["filled"] for each in found["scenarios"]] == [{"price": 7}] * 2
    entry["scenarios"][1][FUTURE]["price"][0] = None
    found = first(server, "shop", entry, missing="ffill")
    assert [each["filled"] for each in found["scenarios"]] == [{"price": 7}, {"price": 8}]
    assert found["filled"] == {"price": 7}


def test_models_and_backtests_without_scenarios(server: Client) -> None:
    entry = {"series": [1.0] * 8, "scenarios": [{}, {}]}
    found = server.error(request_body(entry, model="plain"))
    assert (found["param"], found["type"]) == ("inputs[0].scenarios", "not_supported")
    assert found["message"] == "plain reads no future covariates, in which scenarios differ"
    entry = {**shop(30, 0), "scenarios": [{}]}
    found = refused_backtest(server, request_body(entry, model="shop"))
    assert found["param"] == "inputs[0].scenarios"
    assert "leave scenarios out" in found["message"]


def test_scenarios_count_as_inputs(models: Path) -> None:
    request = request_body(shop(), {**shop(shift=1), "scenarios": changes(3)}, model="shop")
    with Client(models, max_inputs=3) as client:
        found = client.error(request)
        assert (found["param"], found["message"]) == (
            "inputs",
            "expected at most 3 inputs, one for each scenario, got 4",
        )
    with Client(models, max_queue_bytes=4 * 12 * 5 * 4) as client:
        message = client.error(request)["message"]
        assert message == "expected at most 3 scenarios in all (max_queue_bytes), got 4"
    # Each window has 8 values; each scenario has differences, and the first is written twice.
    with Client(models, max_inputs=4, max_answer_values=63) as client:
        assert "would hold 64 values" in client.error(request)["message"]
    with Client(models, max_inputs=4, max_answer_values=64) as client:
        assert client.forecast(request).status_code == 200


def test_answer_of_one_scenario_is_counted_whole(models: Path) -> None:
    """Its forecasts of 2 targets and 4 steps, the same again as the first, and the difference."""
    request = request_body({**shop(), "scenarios": [{}]}, model="shop")
    with Client(models, max_answer_values=23) as client:
        assert "would hold 24 values" in client.error(request)["message"]
    with Client(models, max_answer_values=24) as client:
        assert client.forecast(request).status_code == 200


def test_many_scenarios_are_not_read_on_the_event_loop(server: Client) -> None:
    def work(*scenarios: Any) -> int:
        request = request_body({**shop(), "scenarios": [*scenarios]}, model="shop")
        codec = parsing.JsonCodec(FORECASTING, server.settings)
        return codec.parse(json.dumps(request).encode(), request_of()).work

    assert work({}) < LARGE <= work(*[{}] * 100)
    assert work({FUTURE: {"sky": ["x"] * 200}}) < LARGE <= work({FUTURE: {"sky": ["x"] * 10_000}})


def test_warnings_name_scenarios(server: Client) -> None:
    entry = shop()
    entry["series"] = [[100.0, 1.0]] * 8
    entry["scenarios"] = [{}, {FUTURE: {"price": [1e6] * 4}}]
    warnings = answered(server, request_body(entry, model="shop"))["warnings"]
    assert [(each["type"], each["param"]) for each in warnings] == [
        ("outside_training_range", "inputs[0].series"),
        ("forecast_outside_training_range", "inputs[0].series"),
        ("forecast_outside_training_range", "inputs[0].scenarios[1]"),
    ]


def test_forecast_that_is_not_finite_names_its_scenario(server: Client) -> None:
    request = request_body({**shop(), "scenarios": [{}, {}]}, shop(), model="shop")
    envelope, ignored = parsing.parse(json.dumps(request).encode())
    model = server.repository.registry.find("shop")
    job = decode(envelope, ignored, model, server.settings)
    forecast = np.ones((3, HORIZON, 2), np.float32)
    forecast[1, 2] = np.nan
    written, _ = encode(job, {"forecast": forecast})
    first, second = json.loads(written)["outputs"]
    assert (first["status"], second["status"]) == ("error", "completed")
    assert first["error"]["param"] == "inputs[0].scenarios[1]"


def test_requests_are_read_alike_in_pieces(server: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_body({**shop(), "scenarios": changes(8)}, model="shop")
    whole = answered(server, request)
    monkeypatch.setattr(parsing, "_simd", None)
    monkeypatch.setattr(parsing, "_WHOLE", 0)
    monkeypatch.setattr(cut, "_PIECE", 30)
    in_pieces = answered(server, request)
    assert json.dumps(in_pieces["outputs"][0]["content"]) == json.dumps(
        whole["outputs"][0]["content"]
    )
