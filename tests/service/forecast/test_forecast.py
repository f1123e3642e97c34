"""Forecasts in JSON, and those of models that do not forecast all they read."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from foretell.bundle.bounds import Bound
from foretell.bundle.scaler import Scaler
from foretell.service.inference.wire import describe
from tests.service.client import Client, connect
from tests.service.conftest import CALENDAR, MULTIVARIATE
from tests.service.forecast.bodies import EIGHT, PAIRS, body, notes_of, table_of
from tests.service.inference.bodies import infer, request, tensor
from tests.service.kserve import kserve_types
from tests.support.bundles import Spec, write_bundle


def test_forecast_of_a_request(client: Client) -> None:
    answer = client.forecast(body({"name": "a", "series": EIGHT}))
    assert answer.headers["content-type"] == "application/json"
    assert client.first(body())["mean_forecast"] == [7.0] * 4
    assert client.first(body(horizon=1))["mean_forecast"] == [7.0]
    multi = client.first(body({"series": PAIRS}, model="multi"))
    assert multi["mean_forecast"] == [[7.0, -10.0]] * 4
    assert multi["type"] == "multivariate_time_series"


@pytest.mark.parametrize(
    ("model", "frequency", "extra", "alias"),
    [
        ("calendar", "hour", {}, None),
        ("quarter-hourly", "T", {}, "15min"),
        ("quarter-hourly", "T", {"frequency_multiple": 15}, "15min"),
    ],
)
def test_kserve_builds_requests_that_are_accepted(
    client: Client, model: str, frequency: str, extra: dict[str, int], alias: str | None
) -> None:
    types = kserve_types()
    if types is None:
        pytest.skip("kserve is not installed (pip install --no-deps kserve==0.21.0)")
    request = types.ForecastRequest(
        model=model,
        inputs=[
            types.TimeSeriesInput(
                type="univariate_time_series",
                name="a",
                series=EIGHT,
                frequency=frequency,
                start_timestamp="2024-01-01T00:00:00Z",
                **extra,
            )
        ],
        options=types.ForecastOptions(horizon=2, quantiles=None),
        metadata=types.Metadata(source="test"),
    )
    content = request.model_dump_json().encode()
    answer = client.request("POST", "/v1/timeseries/forecast", content=content)
    response = types.ForecastResponse.model_validate_json(answer.content)
    (forecast,) = response.outputs[0].content
    minutes = 120 if alias else 480
    assert forecast.start_timestamp == f"2024-01-01T{minutes // 60:02}:00:00+00:00"
    assert len(forecast.mean_forecast) == 2
    assert forecast.frequency == (
        types.Frequency.MINUTE_SHORT if alias else types.Frequency.HOUR_SHORT
    )
    assert response.metadata == {"source": "test"}
    assert answer.json()["outputs"][0]["content"][0].get("frequency_alias") == alias


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
    listed = ["2024-02-28T20:00:00", *(f"2024-02-28T{hour}:00" for hour in (21, 22, 23))]
    listed += [f"2024-02-29T{hour:02}:00:00" for hour in range(4)]
    assert client.first(body({"series": EIGHT, "timestamps": listed}, model="calendar")) == forecast


@pytest.mark.parametrize(
    ("frequency", "letter", "multiple"),
    [
        *(("SMS-15", "M", 1), ("3SME-20", "M", 3), ("BME", "M", 1), ("2WOM-3FRI", "M", 2)),
        *(("BQS-FEB", "Q", 1), ("BYE-DEC", "Y", 1), ("LWOM-FRI", "M", 1), ("250us", "S", 250)),
        *(("h", "H", 1), ("15min", "T", 15), ("MS", "M", 1)),
    ],
)
def test_frequencies_follow_pandas(
    tmp_path: Path, frequency: str, letter: str, multiple: int
) -> None:
    write_bundle(tmp_path, Spec(frequency=frequency, with_calendar=True))
    times = [str(time) for time in pd.date_range("2024-01-31", periods=12, freq=frequency)]
    with Client(tmp_path) as client:
        listed = {"series": EIGHT, "timestamps": times[:8], "frequency": frequency}
        forecast = client.first(body(listed, horizon=4))
        start = {"series": EIGHT, "start_timestamp": times[0], "frequency": letter}
        assert client.first(body(start, horizon=4)) == forecast
        listed["timestamps"] = [*times[:3], *times[4:9]]
        gap = client.error(body(listed))
    assert [time.replace("T", " ") for time in forecast["timestamps"]] == times[8:]
    frequencies = {name: each for name, each in forecast.items() if name.startswith("frequency")}
    expected = {"frequency": letter, "frequency_alias": frequency, "frequency_multiple": multiple}
    if multiple == 1:
        del expected["frequency_multiple"]
    if frequency == "h":
        del expected["frequency_alias"]
    assert frequencies == expected
    assert gap["param"] == "inputs[0].timestamps[3]"
    assert "missing before it" in gap["message"]


def test_the_model_and_its_version(client: Client, tmp_path: Path) -> None:
    answers = [client.forecast({**body(), "model": name}).json() for name in ("repeat", "repeat@1")]
    assert [answer["model_version"] for answer in answers] == ["10", "1"]
    assert {answer["model"] for answer in answers} == {"repeat"}
    write_bundle(tmp_path, Spec(name="single"))
    with Client(tmp_path) as only:
        request = {"inputs": [{"series": EIGHT}], "options": None}
        assert only.forecast(request).json()["model"] == "single"


def test_forecast_does_not_depend_on_other_inputs(client: Client) -> None:
    rng = np.random.default_rng(1)
    inputs = [{"series": rng.normal(size=(8, 2)).tolist()} for _ in range(150)]
    together = client.forecast(body(*inputs, model="multi")).json()["outputs"]
    for entry, output in zip(inputs[::50], together[::50], strict=True):
        alone = client.first(body(entry, model="multi"))
        history = np.array(entry["series"], np.float32)[None]
        expected = MULTIVARIATE.forecast(history)[0]
        np.testing.assert_allclose(alone["mean_forecast"], expected, rtol=1e-6)
        np.testing.assert_allclose(output["content"][0]["mean_forecast"], expected, rtol=1e-6)


def test_invalid_input_does_not_fail_the_others(client: Client) -> None:
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


def test_failing_model_is_an_error(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("failing")
    write_bundle(folder, Spec(name="fails", fails=True))
    with Client(folder) as client:
        answer = client.forecast({"inputs": [{"series": EIGHT}]})
        assert answer.status_code == 503
        assert answer.json()["error"]["type"] == "model_failed"
        assert client.forecast({"inputs": [{"series": [0.0] * 8}]}).status_code == 200


def test_models_are_listed_as_in_the_standard(client: Client) -> None:
    answer = client.get("/v1/timeseries/models")
    names = ["calendar", "calibrated", "monthly", "multi", "quarter-hourly", "repeat"]
    assert answer.json() == names
    assert answer.headers["x-foretell-providers"] == "CPUExecutionProvider"


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


CALLERS = 64


@pytest.fixture(scope="module")
def histories() -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(2).normal(size=(CALLERS, 8, 2)).astype(np.float32)


def request_body(*histories: np.ndarray[Any, Any], **options: Any) -> dict[str, Any]:
    inputs = [{"series": history.tolist()} for history in histories]
    return {"model": "multi", "inputs": inputs, "options": options}


def post_together(client: Client, bodies: list[Any]) -> list[httpx.Response]:
    """Send every request before any is answered."""

    async def post() -> list[httpx.Response]:
        async with connect(client.app) as http:
            return await asyncio.gather(*(http.post("/forecast", json=body) for body in bodies))

    return asyncio.run(post())


def test_concurrent_clients_get_their_own_forecasts(
    models: Path, histories: np.ndarray[Any, np.dtype[np.float32]]
) -> None:
    with Client(models) as client:
        answers = post_together(client, [request_body(history) for history in histories])
        expected = MULTIVARIATE.forecast(histories)
        for answer, forecast in zip(answers, expected, strict=True):
            (output,) = answer.json()["outputs"]
            np.testing.assert_allclose(output["content"][0]["mean_forecast"], forecast, rtol=1e-5)
        metrics = client.get("/metrics").text
        labels = '{model="multi",version="1"}'
        windows = re.search(rf"foretell_batch_windows_sum{re.escape(labels)} (\S+)", metrics)
        assert windows is not None
        assert float(windows[1]) == CALLERS


def test_attention_is_returned_only_on_request(
    models: Path, histories: np.ndarray[Any, np.dtype[np.float32]]
) -> None:
    options = [{"attention": True} if caller % 3 == 0 else {} for caller in range(CALLERS)]
    bodies = [request_body(history, **own) for history, own in zip(histories, options, strict=True)]
    with Client(models) as client:
        contents = [
            answer.json()["outputs"][0]["content"][0] for answer in post_together(client, bodies)
        ]
        assert ["attention" in content for content in contents] == [bool(own) for own in options]
        for caller in (0, 30, 63):
            alone = client.first(bodies[caller])["attention"]
            for stage, same in zip(contents[caller]["attention"], alone, strict=True):
                assert stage["name"] == same["name"]
                np.testing.assert_allclose(stage["weights"], same["weights"], rtol=1e-5)


CHANNELS, TARGETS, COLUMNS = ("load", "wind", "sun"), ("wind", "sun"), [1, 2]
START, ROWS = "2024-03-01T00:00:00", 60
LEVELS = [0.1, 0.9]
CHANGES: dict[str, Any] = {
    "bounds": {"sun": Bound(low=-2.0)},
    "scaler": Scaler(mean=(0.0, 0.0, 1.0), std=(1.5, 3.0, 5.0)),
}
SPEC: dict[str, Any] = {"channels": CHANNELS, "calibrated": 1, "changes": CHANGES}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Serves a model that forecasts all of its three channels, and one that forecasts two."""
    folder = tmp_path_factory.mktemp("models")
    write_bundle(folder, Spec(name="whole", **SPEC))
    write_bundle(folder, Spec(name="some", targets=TARGETS, **SPEC))
    with Client(folder) as both:
        yield both


def values() -> np.ndarray:
    return np.random.default_rng(5).normal(size=(ROWS, 3)).round(3)


def body_for(model: str, **options: Any) -> dict[str, Any]:
    series = {"series": values().tolist(), "start_timestamp": START}
    return {"model": model, "inputs": [series], "options": options}


def first(both: Client, path: str, body: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    answer = both.request("POST", path, json=body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return found["outputs"][0]["content"][0], found.get("warnings")


@pytest.mark.parametrize("calibration", ["stored", "history"])
def test_forecasts_of_targets_equal_a_model_of_all_channels(both: Client, calibration: str) -> None:
    options = {"quantiles": LEVELS, "calibration": calibration}
    some, _ = first(both, "/forecast", body_for("some", **options))
    whole, _ = first(both, "/forecast", body_for("whole", **options))
    assert some["channels"] == list(TARGETS)
    assert some["type"] == "multivariate_time_series"
    found, expected = (
        np.array([each["mean_forecast"], *each["quantiles"].values()]) for each in (some, whole)
    )
    assert found.shape == (3, 4, 2)
    np.testing.assert_array_equal(found, expected[..., COLUMNS])
    assert some.get("calibration") == whole.get("calibration")
    assert (np.array(some["quantiles"]["0.1"])[:, 1] == -2).any()
    # Columns in another order do not change that of the answer.
    body = body_for("some", **options)
    body["inputs"][0] |= {
        "channels": ["sun", "load", "wind"],
        "series": values()[:, [2, 0, 1]].tolist(),
    }
    other, _ = first(both, "/forecast", body)
    assert other == some
    del body["options"]
    result, _ = first(both, "/backtest", body)
    assert [each["name"] for each in result["channels"]] == list(TARGETS)


def test_tables(both: Client) -> None:
    hours = [datetime(2024, 1, 1) + timedelta(hours=hour) for hour in range(ROWS)]
    named = dict(zip(CHANNELS, values().T, strict=True))
    table = pa.table({"unique_id": ["a"] * ROWS, "ds": hours, **named})
    found = {}
    for model in ("some", "whole"):
        path = f"/forecast?model={model}&quantiles=0.1,0.9&calibration=history"
        found[model] = table_of(both.send_table(table, path))
    columns = ["wind", "sun", "wind_q0.1", "sun_q0.1", "wind_q0.9", "sun_q0.9"]
    assert found["some"].column_names == ["unique_id", "ds", *columns]
    assert found["some"].select(columns).equals(found["whole"].select(columns))
    assert notes_of(found["some"])["calibration"] == notes_of(found["whole"])["calibration"]


@pytest.mark.parametrize("calibration", ["stored", "history"])
def test_backtest(both: Client, calibration: str) -> None:
    options = {"horizon": 3, "stride": 2, "quantiles": LEVELS, "calibration": calibration}
    some, _ = first(both, "/backtest", body_for("some", **options))
    whole, _ = first(both, "/backtest", body_for("whole", **options))
    assert some["channels"] == whole["channels"][1:]
    assert some["origins"] == whole["origins"]
    assert some.get("calibration") == whole.get("calibration")


@pytest.mark.parametrize("channel", range(3))
def test_warnings(both: Client, channel: int) -> None:
    """Warnings about each input channel, and about the forecasts."""
    distant = values()
    distant[:, channel] += 40
    found = {}
    for model in ("some", "whole"):
        body = body_for(model)
        body["inputs"][0]["series"] = distant.tolist()
        _, found[model] = first(both, "/forecast", body)
    expected = found["whole"]
    if channel not in COLUMNS:
        expected = [each for each in expected if not each["type"].startswith("forecast")]
        assert len(expected) < len(found["whole"])
    assert found["some"] == expected


@pytest.mark.parametrize("path", ["/forecast", "/backtest"])
def test_model_of_targets_does_not_roll_forecasts(both: Client, path: str) -> None:
    answer = both.request("POST", path, json=body_for("some", horizon=5))
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["param"] == "options.horizon"
    assert error["message"].startswith("expected at most 4 steps: some does not forecast all")
    assert both.request("POST", "/forecast", json=body_for("whole", horizon=5)).status_code == 200


def test_cards_and_metadata_name_the_targets(both: Client) -> None:
    some, whole = (both.get(f"/models/{name}").json() for name in ("some", "whole"))
    assert (some["channels"], some["targets"]) == (list(CHANNELS), list(TARGETS))
    assert (some["horizon"], some["max_horizon"]) == (4, 4)
    assert (whole["targets"], whole["max_horizon"]) == (list(CHANNELS), 16)
    metadata = describe(both.repository.registry.find("some"), ["1"])
    assert [each.shape for each in metadata.inputs] == [[-1, 8, 3]]
    assert [each.shape for each in metadata.outputs] == [[-1, 4, 2]]
    history = values()[-8:].astype(np.float32)
    (output,) = infer(both, request(tensor(history[None])), model="some").json()["outputs"]
    assert output["shape"] == [1, 4, 2]
    expected = np.tile(history[-1, COLUMNS] * [2, 3], 4)
    np.testing.assert_allclose(output["data"], expected, rtol=1e-6)
