from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.service.bundles import Spec, write_bundle
from tests.service.client import Client
from tests.service.conftest import CALENDAR, MONTHLY, MULTIVARIATE
from tests.service.kserve import kserve_types

EIGHT = [float(n) for n in range(8)]
PAIRS = [[float(n), 2.0 - n] for n in range(8)]


def body(*inputs: dict[str, Any], model: str = "repeat", **options: Any) -> dict[str, Any]:
    return {"model": model, "inputs": list(inputs) or [{"series": EIGHT}], "options": options}


def test_forecasts(client: Client) -> None:
    answer = client.forecast(body({"name": "a", "series": EIGHT}))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert client.first(body())["mean_forecast"] == [7.0] * 4
    multi = client.first(body({"series": PAIRS}, model="multi"))
    assert multi["mean_forecast"] == [[7.0, -10.0]] * 4
    assert multi["type"] == "multivariate_time_series"


def test_both_paths_answer(client: Client) -> None:
    standard = client.request("POST", "/v1/timeseries/forecast", json=body())
    assert standard.status_code == 200
    assert (
        standard.json()["outputs"][0]["content"]
        == client.forecast(body()).json()["outputs"][0]["content"]
    )


def test_kserve_builds_requests_that_are_accepted(client: Client) -> None:
    types = kserve_types()
    if types is None:
        pytest.skip("kserve is not installed (pip install --no-deps kserve==0.21.0)")
    request = types.ForecastRequest(
        model="calendar",
        inputs=[
            types.TimeSeriesInput(
                type="univariate_time_series",
                name="a",
                series=EIGHT,
                frequency="hour",
                start_timestamp="2024-01-01T00:00:00Z",
            )
        ],
        options=types.ForecastOptions(horizon=2, quantiles=None),
        metadata=types.Metadata(source="test"),
    )
    answer = client.send(request.model_dump_json().encode())
    response = types.ForecastResponse.model_validate_json(answer.content)
    (forecast,) = response.outputs[0].content
    assert forecast.start_timestamp == "2024-01-01T08:00:00+00:00"
    assert len(forecast.mean_forecast) == 2
    assert response.metadata == {"source": "test"}


@pytest.mark.parametrize("extra", [{}, {"frequency_multiple": 15}])
def test_kserve_can_use_a_model_of_quarter_hours(client: Client, extra: dict[str, int]) -> None:
    types = kserve_types()
    if types is None:
        pytest.skip("kserve is not installed (pip install --no-deps kserve==0.21.0)")
    entry = types.TimeSeriesInput(
        type="univariate_time_series", name="a", series=EIGHT, frequency="T", **extra
    )
    request = types.ForecastRequest(
        model="quarter-hourly", inputs=[entry], options=types.ForecastOptions(horizon=1)
    )
    answer = client.send(request.model_dump_json().encode())
    (forecast,) = types.ForecastResponse.model_validate_json(answer.content).outputs[0].content
    assert forecast.frequency == types.Frequency.MINUTE_SHORT
    assert answer.json()["outputs"][0]["content"][0]["frequency_alias"] == "15min"


def test_calendar_features_reach_the_model(client: Client) -> None:
    entry = {"series": EIGHT, "start_timestamp": "2024-02-28T20:00:00"}
    forecast = client.first(body(entry, model="calendar"))
    calendar = CALENDAR.calendar
    assert calendar is not None
    future = calendar.encode(np.datetime64("2024-02-29T04", "h") + np.arange(4))
    history = np.array(EIGHT, np.float32)[None, :, None]
    expected = CALENDAR.forecast(history, future[None])[0, :, 0]
    np.testing.assert_allclose(forecast["mean_forecast"], expected, rtol=1e-6)
    assert forecast["timestamps"][0] == forecast["start_timestamp"] == "2024-02-29T04:00:00"


def test_months_are_calendar_months(client: Client) -> None:
    entry = {"series": EIGHT, "start_timestamp": "2023-07-01", "frequency": "M"}
    forecast = client.first(body(entry, model="monthly"))
    assert (forecast["frequency"], forecast["frequency_alias"]) == ("M", "MS")
    assert "frequency_multiple" not in forecast
    assert len(forecast["timestamps"]) == MONTHLY.horizon
    assert forecast["timestamps"][:2] == ["2024-03-01T00:00:00", "2024-04-01T00:00:00"]


def test_multiples_are_told_apart_from_their_letter(client: Client) -> None:
    entry = {"series": EIGHT, "start_timestamp": "2024-01-01T00:00:00"}
    forecast = client.first(body(entry, model="quarter-hourly", horizon=1))
    assert (forecast["frequency"], forecast["frequency_multiple"]) == ("T", 15)
    assert forecast["frequency_alias"] == "15min"
    assert forecast["timestamps"] == ["2024-01-01T02:00:00"]
    assert not {"frequency_multiple", "frequency_alias"} & set(client.first(body()))


def test_timestamps_instead_of_a_start(client: Client) -> None:
    listed = [f"2024-01-01T{hour:02}:00:00" for hour in range(8)]
    forecast = client.first(body({"series": EIGHT, "timestamps": listed}, model="calendar"))
    assert forecast["start_timestamp"] == "2024-01-01T08:00:00"


def test_the_horizon_cuts(client: Client) -> None:
    assert client.first(body(horizon=1))["mean_forecast"] == [7.0]
    assert client.first({"model": "repeat", "inputs": [{"series": EIGHT}], "options": None})


def test_a_version_can_be_named(client: Client) -> None:
    answers = [client.forecast({**body(), "model": name}).json() for name in ("repeat", "repeat@1")]
    assert [answer["model_version"] for answer in answers] == ["10", "1"]
    assert {answer["model"] for answer in answers} == {"repeat"}


def test_the_only_model_need_not_be_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("one")
    write_bundle(folder, Spec(name="single"))
    with Client(folder) as client:
        assert client.forecast({"inputs": [{"series": EIGHT}]}).json()["model"] == "single"


def test_a_forecast_is_the_same_alone_and_among_others(client: Client) -> None:
    rng = np.random.default_rng(1)
    inputs = [{"series": rng.normal(size=(8, 2)).tolist()} for _ in range(150)]
    together = client.forecast(body(*inputs, model="multi")).json()["outputs"]
    for entry, output in zip(inputs[::50], together[::50], strict=True):
        alone = client.first(body(entry, model="multi"))
        history = np.array(entry["series"], np.float32)[None]
        expected = MULTIVARIATE.forecast(history)[0]
        np.testing.assert_allclose(alone["mean_forecast"], expected, rtol=1e-6)
        np.testing.assert_allclose(output["content"][0]["mean_forecast"], expected, rtol=1e-6)


def test_one_bad_series_does_not_sink_the_others(client: Client) -> None:
    answer = client.forecast(
        body({"series": EIGHT}, {"series": [*EIGHT[:7], None]}, {"series": EIGHT, "name": "c"})
    )
    assert answer.status_code == 200
    parsed = answer.json()
    assert (parsed["status"], parsed["error"]) == ("partial", None)
    assert [output["status"] for output in parsed["outputs"]] == ["completed", "error", "completed"]
    bad = parsed["outputs"][1]
    assert bad["content"] == []
    assert bad["error"]["param"] == "inputs[1].series[7]"
    assert [o["id"].rpartition("-")[2] for o in parsed["outputs"]] == ["0", "1", "2"]


def test_attention(client: Client) -> None:
    request = body({"series": PAIRS, "start_timestamp": "2024-01-01"}, model="multi")
    assert "attention" not in client.first(request)
    request["options"] = {"attention": True}
    forecast = client.first(request)
    assert forecast["mean_forecast"] == [[7.0, -10.0]] * 4
    patches, lags, cross = forecast["attention"]
    assert (patches["name"], patches["kind"]) == ("encoder.0.self", "softmax")
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


def test_unknown_fields_are_accepted(client: Client) -> None:
    request = body({"series": EIGHT, "colour": "red"}, temperature=1)
    request |= {"user": "me", "metadata": {"trace": [1, {"a": None}]}}
    answer = client.forecast(request)
    assert answer.status_code == 200
    assert answer.json()["metadata"] == {"trace": [1, {"a": None}]}
    assert "metadata" not in client.forecast(body()).json()


def test_a_failing_model(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("failing")
    write_bundle(folder, Spec(name="fails", fails=True))
    with Client(folder) as client:
        answer = client.forecast({"inputs": [{"series": EIGHT}]})
        assert answer.status_code == 503
        assert answer.json()["error"]["type"] == "model_failed"
        assert client.forecast({"inputs": [{"series": [0.0] * 8}]}).status_code == 200


def test_values_too_large_to_forecast(client: Client) -> None:
    entry = {"series": [[1, 3e38]] * 8}
    error = client.error(body(entry, model="multi"))
    assert (error["code"], error["param"]) == ("422", "inputs[0].series")
    assert "not finite" in error["message"]


def test_models_are_listed_as_the_standard_has_it(client: Client) -> None:
    answer = client.get("/v1/timeseries/models")
    assert answer.json() == ["calendar", "monthly", "multi", "quarter-hourly", "repeat"]
    assert answer.headers["x-foretell-providers"] == "CPUExecutionProvider"


def series(*values: Any) -> bytes:
    text = ",".join(json.dumps(value) for value in values)
    return b'{"model":"repeat","inputs":[{"series":[%s]}]}' % text.encode()


HOSTILE: list[tuple[str, bytes, int, str | None]] = [
    ("not JSON", b"series=1,2,3", 400, None),
    ("empty", b"", 400, None),
    ("cut short", b'{"model":"repeat"', 400, None),
    ("two documents", b"{}{}", 400, None),
    ("invalid UTF-8", b'{"model":"\xff\xfe"}', 400, None),
    ("a lone surrogate", b'{"model":"\\ud800"}', 400, None),
    ("a null byte", b'{"model":"a\\u0000b","inputs":[{"series":[1]}]}', 404, "model"),
    ("nested 100,000 deep", b"[" * 100_000 + b"]" * 100_000, 400, None),
    ("deep metadata", b'{"metadata":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001, 400, None),
    ("a list", b"[1,2]", 422, None),
    ("null", b"null", 422, None),
    ("a string", b'"forecast"', 422, None),
    ("no inputs", b'{"model":"repeat"}', 422, "inputs"),
    ("inputs empty", b'{"model":"repeat","inputs":[]}', 422, "inputs"),
    ("inputs an object", b'{"model":"repeat","inputs":{}}', 422, "inputs"),
    ("inputs null", b'{"model":"repeat","inputs":null}', 422, "inputs"),
    ("an input a number", b'{"model":"repeat","inputs":[5]}', 422, "inputs[0]"),
    ("no series", b'{"model":"repeat","inputs":[{}]}', 422, "inputs[0].series"),
    ("series empty", series(), 422, "inputs[0].series"),
    ("series a string", b'{"model":"repeat","inputs":[{"series":"1"}]}', 422, "inputs[0].series"),
    ("too short", series(*EIGHT[1:]), 422, "inputs[0].series"),
    ("NaN", series(*EIGHT[1:], float("nan")), 422, "inputs[0].series[7]"),
    ("Infinity", series(float("inf"), *EIGHT), 422, "inputs[0].series[0]"),
    ("-Infinity", series(float("-inf"), *EIGHT), 422, "inputs[0].series[0]"),
    ("1e400", series(*EIGHT[1:], "@").replace(b'"@"', b"1e400"), 422, "inputs[0].series[7]"),
    ("over float32", series(*EIGHT[1:], 1e39), 422, "inputs[0].series[7]"),
    ("a huge integer", series(*EIGHT[1:], 10**500), 422, "inputs[0].series[7]"),
    ("a string among numbers", series(*EIGHT[1:], "8"), 422, "inputs[0].series[7]"),
    ("a boolean among numbers", series(*EIGHT[1:], True), 422, "inputs[0].series[7]"),
    ("a missing value", series(*EIGHT[1:], None), 422, "inputs[0].series[7]"),
    ("an object among numbers", series(*EIGHT[1:], {}), 422, "inputs[0].series[7]"),
    ("rows for one channel", series(*([[1, 2]] * 8)), 422, "inputs[0].series[0]"),
    ("ragged", series(*([[1]] * 7), [1, 2]), 422, "inputs[0].series[7]"),
    ("rows nested deeper", series(*([[[1]]] * 8)), 422, "inputs[0].series[0][0]"),
    ("model a number", b'{"model":5,"inputs":[{"series":[1]}]}', 422, "model"),
    ("no model among several", b'{"inputs":[{"series":[1]}]}', 422, "model"),
    ("unknown model", b'{"model":"nope","inputs":[{"series":[1]}]}', 404, "model"),
    ("unknown version", b'{"model":"repeat@7","inputs":[{"series":[1]}]}', 404, "model"),
    ("a path", b'{"model":"../../etc/passwd","inputs":[{"series":[1]}]}', 404, "model"),
    ("a path within", b'{"model":"repeat/../multi","inputs":[{"series":[1]}]}', 404, "model"),
    ("a path as version", b'{"model":"repeat@../1","inputs":[{"series":[1]}]}', 404, "model"),
]


@pytest.mark.parametrize(
    ("content", "status", "param"),
    [case[1:] for case in HOSTILE],
    ids=[case[0] for case in HOSTILE],
)
def test_hostile_bodies(client: Client, content: bytes, status: int, param: str | None) -> None:
    answer = client.send(content)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == (str(status), param)
    assert error["message"]
    assert "should" not in error["message"]
    assert len(answer.content) < 1000


MISFITS: list[tuple[str, dict[str, Any], str]] = [
    ("horizon", {"options": {"horizon": 0}}, "options.horizon"),
    ("horizon", {"options": {"horizon": -1}}, "options.horizon"),
    ("horizon", {"options": {"horizon": 5}}, "options.horizon"),
    ("horizon", {"options": {"horizon": 10**30}}, "options.horizon"),
    ("horizon", {"options": {"horizon": "4"}}, "options.horizon"),
    ("horizon", {"options": {"horizon": 4.0}}, "options.horizon"),
    ("horizon", {"options": {"horizon": True}}, "options.horizon"),
    ("options", {"options": [1]}, "options"),
    ("quantiles", {"options": {"quantiles": [0.1]}}, "options.quantiles"),
    ("quantiles", {"options": {"quantiles": ["x"]}}, "options.quantiles[0]"),
    ("missing", {"options": {"missing": "ffill"}}, "options.missing"),
    ("missing", {"options": {"missing": "guess"}}, "options.missing"),
    ("attention", {"options": {"attention": True}}, "options.attention"),
    ("attention", {"options": {"attention": "yes"}}, "options.attention"),
    ("attention", {"options": {"attention": {"heads": "one"}}}, "options.attention.heads"),
    ("attention", {"options": {"attention": {"layers": [1.5]}}}, "options.attention.layers[0]"),
    ("metadata", {"metadata": [1]}, "metadata"),
    ("metadata", {"metadata": {"a": float("nan")}}, "metadata"),
]

INPUT_MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"name": 5}, "name"),
    ({"type": "time_series"}, "type"),
    ({"type": "multivariate_time_series"}, "type"),
    ({"channels": ["load", "load"]}, "channels[1]"),
    ({"channels": ["wind"]}, "channels[0]"),
    ({"channels": []}, "channels"),
    ({"channels": "load"}, "channels"),
    ({"channels": [5]}, "channels[0]"),
    ({"frequency": "D"}, "frequency"),
    ({"frequency": "15min"}, "frequency"),
    ({"frequency": "fortnight"}, "frequency"),
    ({"frequency": ""}, "frequency"),
    ({"frequency": 1}, "frequency"),
    ({"frequency_multiple": 2}, "frequency_multiple"),
    ({"frequency": "H", "frequency_multiple": 0}, "frequency_multiple"),
    ({"frequency_multiple": "1"}, "frequency_multiple"),
    ({"start_timestamp": "yesterday"}, "start_timestamp"),
    ({"start_timestamp": ""}, "start_timestamp"),
    ({"start_timestamp": 1700000000}, "start_timestamp"),
    ({"start_timestamp": "2024-13-01"}, "start_timestamp"),
    ({"start_timestamp": "2023-02-29T00:00:00"}, "start_timestamp"),
    ({"start_timestamp": "9999-12-31T20:00:00"}, "start_timestamp"),
    ({"start_timestamp": "99999-01-01T00:00:00"}, "start_timestamp"),
    ({"timestamps": ["2024-01-01"]}, "timestamps"),
    ({"timestamps": [0] * 8}, "timestamps[0]"),
    ({"timestamps": "2024-01-01"}, "timestamps"),
]


@pytest.mark.parametrize(("changes", "param"), [case[1:] for case in MISFITS])
def test_requests_that_do_not_fit(client: Client, changes: dict[str, Any], param: str) -> None:
    answer = client.send(json.dumps(body() | changes).encode())
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["param"] == param
    assert "nput should" not in answer.json()["error"]["message"]


@pytest.mark.parametrize(("changes", "param"), INPUT_MISFITS)
def test_inputs_that_do_not_fit(client: Client, changes: dict[str, Any], param: str) -> None:
    error = client.error(body({"series": EIGHT, **changes}))
    assert error["code"] == "422"
    assert error["param"] == f"inputs[0].{param}"


def test_more_that_does_not_fit(client: Client) -> None:
    assert client.error(body(model="calendar"))["param"] == "inputs[0].start_timestamp"
    univariate = {"series": [[n] for n in EIGHT], "type": "univariate_time_series"}
    assert client.error(body(univariate))["param"] == "inputs[0].type"
    partial_names = {"series": PAIRS, "channels": ["load"]}
    error = client.error(body(partial_names, model="multi"))
    assert (error["param"], "missing: wind" in error["message"]) == ("inputs[0].channels", True)
    twins = client.forecast(body({"series": EIGHT, "name": "series-1"}, {"series": EIGHT})).json()
    assert twins["outputs"][1]["error"]["param"] == "inputs[1].name"


def test_not_supported_is_told_apart(client: Client) -> None:
    for options in ({"horizon": 5}, {"quantiles": [0.5]}, {"missing": "ffill"}):
        error = client.error(body(**options))
        assert (error["code"], error["type"]) == ("422", "not_supported")
        assert "yet" in error["message"]


def test_more_inputs_than_the_limit(models: Any) -> None:
    with Client(models, max_inputs=2) as client:
        client.first(body({"series": EIGHT}, {"series": EIGHT}))
        error = client.error(body(*[{"series": EIGHT}] * 3))
        assert error["param"] == "inputs"
        assert "at most 2 inputs, got 3" in error["message"]
