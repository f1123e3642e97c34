from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

from tests.service.client import Client, connect
from tests.service.conftest import CALENDAR, MONTHLY, MULTIVARIATE
from tests.service.forecast.bodies import EIGHT, PAIRS, body
from tests.service.kserve import kserve_types
from tests.support.bundles import Spec, write_bundle


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
    listed = ["2024-02-28T20:00:00", *(f"2024-02-28T{hour}:00" for hour in (21, 22, 23))]
    listed += [f"2024-02-29T{hour:02}:00:00" for hour in range(4)]
    assert client.first(body({"series": EIGHT, "timestamps": listed}, model="calendar")) == forecast


def test_months_are_calendar_months(client: Client) -> None:
    entry = {"series": EIGHT, "start_timestamp": "2023-07-01", "frequency": "M"}
    forecast = client.first(body(entry, model="monthly"))
    assert (forecast["frequency"], forecast["frequency_alias"]) == ("M", "MS")
    assert "frequency_multiple" not in forecast
    assert len(forecast["timestamps"]) == MONTHLY.horizon
    assert forecast["timestamps"][:2] == ["2024-03-01T00:00:00", "2024-04-01T00:00:00"]


@pytest.mark.parametrize(
    ("frequency", "letter", "multiple"),
    [
        *(("SMS-15", "M", 1), ("3SME-20", "M", 3), ("BME", "M", 1), ("2WOM-3FRI", "M", 2)),
        *(("BQS-FEB", "Q", 1), ("BYE-DEC", "Y", 1), ("LWOM-FRI", "M", 1), ("250us", "S", 250)),
    ],
)
def test_other_frequencies_are_those_of_pandas(
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
    assert (forecast["frequency"], forecast["frequency_alias"]) == (letter, frequency)
    assert forecast.get("frequency_multiple", 1) == multiple
    assert gap["param"] == "inputs[0].timestamps[3]"
    assert "steps are missing before it" in gap["message"]


def test_multiples_are_told_apart_from_their_letter(client: Client) -> None:
    entry = {"series": EIGHT, "start_timestamp": "2024-01-01T00:00:00"}
    forecast = client.first(body(entry, model="quarter-hourly", horizon=1))
    assert (forecast["frequency"], forecast["frequency_multiple"]) == ("T", 15)
    assert forecast["frequency_alias"] == "15min"
    assert forecast["timestamps"] == ["2024-01-01T02:00:00"]
    assert not {"frequency_multiple", "frequency_alias"} & set(client.first(body()))


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


def test_everyone_gets_their_own_forecast(
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


def test_attention_goes_to_who_asked(
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
