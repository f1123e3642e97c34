from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.service.client import Client
from tests.service.conftest import CALENDAR
from tests.service.forecast.test_timeseries import EIGHT, PAIRS, body
from tests.support.bundles import Spec, write_bundle


def test_attention(client: Client) -> None:
    request = body({"series": PAIRS, "start_timestamp": "2024-01-01"}, model="multi")
    assert "attention" not in client.first(request)
    request["options"] = {"attention": True}
    forecast = client.first(request)
    assert forecast["mean_forecast"] == [[7.0, -10.0]] * 4
    patches, lags, cross = forecast["attention"]
    assert (patches["name"], patches["kind"]) == ("encoder.0.self", "softmax")
    assert (patches["form"], lags["form"], cross["form"]) == ("dense", "circulant", "dense")
    assert (lags["kind"], cross["kind"]) == ("autocorrelation", "softmax")
    assert patches["axes"] == ["head", "query", "key"]
    assert patches["shape"] == list(np.shape(patches["weights"])) == [2, 3, 3]
    np.testing.assert_allclose(np.sum(patches["weights"], axis=-1), 1, rtol=1e-5)
    assert patches["query"][0] == {"start": "2024-01-01T00:00:00", "end": "2024-01-01T03:00:00"}
    assert cross["axes"] == ["channel", "head", "query", "key"]
    assert cross["shape"] == list(np.shape(cross["weights"])) == [2, 2, 3, 3]
    # Both channels' mean is 1 throughout, so every lag is as good as the next.
    assert lags["shape"] == [8, 8]
    assert lags["axes"] == ["query", "key"]
    assert lags["correlation"] == [1.0] * 8
    assert lags["lag_weights"] == [0.5, 0.5]
    assert lags["lag_durations"] == [f"PT{lag}H" for lag in lags["lags"]]
    for row in range(8):
        chosen = {(row + lag) % 8 for lag in lags["lags"]}
        assert {key for key, weight in enumerate(lags["weights"][row]) if weight} == chosen


def test_attention_in_part(client: Client) -> None:
    request = body(
        {"series": PAIRS, "channels": ["wind", "load"]},
        model="multi",
        attention={"stages": ["decoder.0.cross"], "heads": "mean"},
    )
    (cross,) = client.first(request)["attention"]
    assert cross["axes"] == ["channel", "query", "key"]
    assert cross["key"] == [
        {"start": -8, "end": -5},
        {"start": -6, "end": -3},
        {"start": -4, "end": -1},
    ]
    own_order = body(
        {"series": [row[::-1] for row in PAIRS]}, model="multi", attention={"heads": "mean"}
    )
    whole = client.first(own_order)["attention"][2]
    np.testing.assert_allclose(cross["weights"], np.array(whole["weights"])[::-1], rtol=1e-5)


def test_attention_of_several_inputs(client: Client) -> None:
    entry = {"series": EIGHT, "start_timestamp": "2024-01-01"}
    other = {"series": [0, 1] * 4, "start_timestamp": "2024-06-01"}
    answer = client.forecast(body(entry, other, model="calendar", attention=True)).json()
    lags = [output["content"][0]["attention"][0]["lags"] for output in answer["outputs"]]
    assert sorted(lags[1]) == [0, 2]
    assert lags[0] != lags[1]


def test_too_much_attention_names_the_limit(models: Any) -> None:
    with Client(models, max_attention_values=200) as client:
        client.first(body({"series": PAIRS}, model="multi", attention=True))
        error = client.error(
            body({"series": PAIRS}, {"series": PAIRS}, model="multi", attention=True)
        )
        assert error["param"] == "options.attention"
        assert "would hold 236 attention weights and may hold 200" in error["message"]


def test_some_heads_of_the_attention(client: Client) -> None:
    whole = client.first(body({"series": PAIRS}, model="multi", attention=True))["attention"]
    some = client.first(body({"series": PAIRS}, model="multi", attention={"heads": [1]}))
    for all_heads, one_head in zip(whole, some["attention"], strict=True):
        if all_heads["form"] == "dense":
            assert (all_heads["heads"], one_head["heads"]) == ([0, 1], [1])
            expected = np.array(all_heads["weights"])[..., [1], :, :]
            np.testing.assert_array_equal(one_head["weights"], expected)
    assert whole[2]["channels"] == ["load", "wind"]
    request = body({"series": PAIRS}, model="multi", attention={"heads": [2]})
    assert client.error(request)["param"] == "options.attention.heads[0]"


@pytest.mark.parametrize(
    ("missing", "last", "filled"), [("interpolate", 5.0, 3), ("ffill", 4.0, 3)]
)
def test_missing_values(client: Client, missing: str, last: float, filled: int) -> None:
    whole = [0.0, 1.0, 2.0, None, 4.0, None, 6.0, 7.0, 4.0, None]
    forecast = client.first(body({"series": [*whole[:9], 4.0, 5.0][:8]}, missing="interpolate"))
    assert (forecast["mean_forecast"], forecast["filled"]) == ([7.0] * 4, {"load": 2})
    content = json.dumps(body({"series": [4.0, *whole]}, missing=missing)).replace("null", "NaN", 1)
    answer = client.send(content.encode()).json()["outputs"][0]["content"][0]
    assert (answer["mean_forecast"], answer["filled"]) == ([4.0] * 4, {"load": filled})
    assert "filled" not in client.first(body(missing=missing))
    pairs = [[first, second] for first, second in zip(EIGHT, [None, *EIGHT[:7]], strict=True)]
    entry = {"series": pairs, "channels": ["wind", "load"]}
    if missing == "interpolate":
        assert client.first(body(entry, model="multi", missing=missing))["filled"] == {"load": 1}
    else:
        error = client.error(body(entry, model="multi", missing=missing))
        assert error["param"] == "inputs[0].series[0][1]"
        assert "no value of 'load' comes before it" in error["message"]


def test_a_channel_without_values(client: Client) -> None:
    pairs = [[value, None] for value in EIGHT]
    request = body({"series": [[1, 1], *pairs]}, model="multi", missing="interpolate")
    error = client.error(request)
    assert error["param"] == "inputs[0].series[1][1]"
    assert "'wind' has no value in the last 8 rows, the model's context" in error["message"]


@pytest.mark.parametrize("name", ["multi", "calendar", "monthly", "calibrated"])
def test_a_long_horizon_is_what_a_caller_gets_by_hand(client: Client, name: str) -> None:
    model = client.repository.registry.find(name)
    own, channels = model.manifest.horizon, len(model.manifest.channels)
    values = np.random.default_rng(3).normal(size=(11, channels)).astype(np.float32)
    known = (values if channels > 1 else values[:, 0]).tolist()
    start = "2023-11-01T00:00:00+01:00"
    entry = {"series": known, "start_timestamp": start}
    rolled = client.first(body(entry, model=name, horizon=3 * own - 1))
    assert rolled["rolled_from"] == own
    times: list[str] = []
    for _ in range(3):
        step = client.first(body({"series": known, "start_timestamp": start}, model=name))
        assert "rolled_from" not in step
        known = known + step["mean_forecast"]
        times += step["timestamps"]
    assert rolled["mean_forecast"] == known[11:][: 3 * own - 1]
    assert rolled["timestamps"] == times[: 3 * own - 1]


def test_the_longest_horizon(models: Any) -> None:
    with Client(models, max_horizon_multiple=2) as client:
        assert len(client.first(body(horizon=8))["mean_forecast"]) == 8
        error = client.error(body(horizon=9))
        assert (error["type"], error["param"]) == ("not_supported", "options.horizon")
        assert "at most 8 steps, 2 times (max_horizon_multiple) the 4" in error["message"]


def test_a_deadline_holds_over_all_passes(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("slow")
    write_bundle(folder, Spec(name="slow", burn=8))
    with Client(folder, max_horizon_multiple=100_000) as client:
        request = {"inputs": [{"series": EIGHT}], "options": {"horizon": 400_000}}
        answer = client.forecast(request, **{"X-Timeout-Ms": "150"})
        assert answer.status_code == 504


def test_attention_of_a_long_horizon_is_that_of_the_first_pass(client: Client) -> None:
    request = body({"series": PAIRS}, model="multi", attention=True)
    first = client.first(request)
    request["options"]["horizon"] = 9
    assert client.first(request)["attention"] == first["attention"]


def test_any_pass_makes_a_forecast_ill_conditioned(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The margin of this model is the oldest value that it reads: here the fifth, in pass two."""
    folder = tmp_path_factory.mktemp("margin")
    write_bundle(folder, Spec(margin_bound=1e-5))
    series = [1.0, 1.0, 1.0, 1.0, 1e-6, 1.0, 1.0, 1.0]
    with Client(folder) as client:
        for horizon, flagged in ((4, False), (5, True), (12, True)):
            request = {"inputs": [{"series": series}], "options": {"horizon": horizon}}
            assert client.first(request)["ill_conditioned"] is flagged


@pytest.mark.parametrize("horizon", [2, 4, 9])
def test_quantiles(client: Client, horizon: int) -> None:
    levels = [0.9, 0.1, 0.5]
    request = body({"series": EIGHT}, model="calibrated", horizon=horizon, quantiles=levels)
    forecast = client.first(request)
    assert list(forecast["quantiles"]) == ["0.9", "0.1", "0.5"]
    scale = np.std(EIGHT)
    for level in levels:
        offsets = (level - 0.5) * np.arange(1, horizon + 1) * scale
        expected = np.array(forecast["mean_forecast"]) + offsets
        np.testing.assert_allclose(forecast["quantiles"][str(level)], expected, rtol=1e-3)
    request["inputs"][0]["series"] = [[value] for value in EIGHT]
    nested = client.first(request)["quantiles"]
    assert nested == {
        level: [[value] for value in values] for level, values in forecast["quantiles"].items()
    }


@pytest.mark.parametrize(
    ("model", "quantiles", "param", "message"),
    [
        ("repeat", [0.5], "options.quantiles", "repeat has no quantiles"),
        ("calibrated", [0.5, 1], "options.quantiles[1]", "expected less than 1"),
        ("calibrated", [0], "options.quantiles[0]", "expected more than 0"),
        ("calibrated", ["0.5"], "options.quantiles[0]", "expected a number"),
        ("calibrated", [0.2, 0.5, 0.2], "options.quantiles[2]", "0.2 is asked for twice"),
        ("calibrated", [0.0001], "options.quantiles[0]", "between 0.01"),
        ("calibrated", [0.5] * 100, "options.quantiles", "a list of at most 99"),
    ],
)
def test_quantiles_that_cannot_be_told(
    client: Client, model: str, quantiles: list[Any], param: str, message: str
) -> None:
    error = client.error(body({"series": EIGHT}, model=model, quantiles=quantiles))
    assert error["param"] == param
    assert message in error["message"]


def test_too_large_an_answer_names_the_limit(models: Any) -> None:
    with Client(models, max_answer_values=23) as client:
        request = body({"series": EIGHT}, {"series": EIGHT}, model="calibrated", quantiles=[0.5])
        assert client.forecast(request).status_code == 200
        request["options"]["horizon"] = 6
        error = client.error(request)
        assert error["param"] == "options"
        assert "would hold 24 values and may hold 23 (max_answer_values)" in error["message"]


def test_local_times_over_a_change_of_the_clock(client: Client) -> None:
    local = [f"2024-03-30T{hour:02}:00:00" for hour in range(17, 24)] + ["2024-03-31T00:00:00"]
    entry = {"series": EIGHT, "timestamps": local, "time_zone": "Europe/Berlin"}
    forecast = client.first(body(entry, model="calendar"))
    hours = ["01:00:00+01:00", "03:00:00+02:00", "04:00:00+02:00", "05:00:00+02:00"]
    assert forecast["timestamps"] == [f"2024-03-31T{hour}" for hour in hours]
    calendar = CALENDAR.calendar
    assert calendar is not None
    walls = np.array([f"2024-03-31T{hour:02}" for hour in (1, 3, 4, 5)], "M8[us]")
    history = np.array(EIGHT, np.float32)[None, :, None]
    expected = CALENDAR.forecast(history, calendar.encode(walls)[None])[0, :, 0]
    np.testing.assert_allclose(forecast["mean_forecast"], expected, rtol=1e-6)
    in_utc = {"series": EIGHT, "start_timestamp": "2024-03-30T16:00Z", "time_zone": "Europe/Berlin"}
    same = client.first(body(in_utc, model="calendar"))
    assert same == forecast
    error = client.error(body({"series": EIGHT, "time_zone": "Mars"}))
    assert error["param"] == "inputs[0].time_zone"
