import socket
from pathlib import Path

import numpy as np
import pytest

from foretell.forecast_file import ClientError, Forecast, request_forecast
from foretell.models.data.errors import DataError
from tests.foretell.conftest import SERVED, answer
from tests.foretell.server import FakeServer


def ask(server: FakeServer, path: Path, model: str | None = None, horizon: int | None = None):
    return request_forecast(server.url + "/", path, model=model, horizon=horizon, timeout=10)


def test_posts_the_tail_of_the_file(server: FakeServer, data: Path):
    ask(server, data, horizon=2)
    (listed, _), (posted, body) = server.requests
    assert (listed, posted) == ("GET /models", "POST /forecast")
    assert body == {
        "model": "weather",
        "inputs": [
            {
                "name": "weather",
                # The model's channels, in its order.
                "series": [[2.5, 20], [3.5, 30], [4.5, 40], [5.5, 50]],
                "start_timestamp": "2024-01-01T02:00:00+01:00",
            }
        ],
        "options": {"horizon": 2},
    }


def test_reads_the_answer(server: FakeServer, data: Path):
    forecast = ask(server, data)
    assert isinstance(forecast, Forecast)
    assert forecast.model == "weather@3"
    assert forecast.values.tolist() == [[5.5, 50], [6.5, 60]]
    expected = np.array(["2024-01-01T06", "2024-01-01T07"], "M8[us]")
    np.testing.assert_array_equal(forecast.timestamps, expected)
    assert forecast.history.channels == ("wind", "load")
    assert forecast.history.values[:, 0].tolist() == [2.5, 3.5, 4.5, 5.5]
    assert server.requests[1][1]["options"] == {}


def test_a_single_channel_is_a_flat_series(server: FakeServer, data: Path):
    content = {"mean_forecast": [1.0, 2.0], "timestamps": ["2024-01-01T06:00", "2024-01-01T07:00"]}
    server.answers |= {
        "/models": (200, [SERVED | {"channels": ["load"]}]),
        "/forecast": (200, answer(outputs=[{"content": [content]}])),
    }
    assert ask(server, data).values.tolist() == [[1], [2]]
    assert server.requests[1][1]["inputs"][0]["series"] == [20, 30, 40, 50]


def test_months_on_the_30th_are_posted_with_every_time(server: FakeServer, tmp_path: Path):
    days = ["2024-01-30", "2024-02-29", "2024-03-30", "2024-04-30"]
    path = tmp_path / "monthly.csv"
    path.write_text("\n".join(["date,load", *(f"{day},1" for day in days)]) + "\n")
    served = SERVED | {"channels": ["load"], "frequency": "M", "context": 3}
    server.answers["/models"] = (200, [served])
    content = {"mean_forecast": [1.0], "timestamps": ["2024-05-30T00:00:00"]}
    server.answers["/forecast"] = (200, answer(outputs=[{"content": [content]}]))
    ask(server, path)
    entry = server.requests[1][1]["inputs"][0]
    assert entry["timestamps"] == [f"{day}T00:00:00" for day in days[1:]]
    assert "start_timestamp" not in entry


def test_a_file_shorter_than_the_context_is_posted_whole(server: FakeServer, data: Path):
    """How short is too short is the server's to say."""
    server.answers["/models"] = (200, [SERVED | {"context": 100}])
    ask(server, data)
    assert len(server.requests[1][1]["inputs"][0]["series"]) == 6


@pytest.mark.parametrize(
    ("served", "model", "message"),
    [
        ([SERVED], "oracle", "model 'oracle' is not served; served: weather"),
        ([SERVED], "weather@1", "weather has no version '1'; served: 2, 3"),
        ([SERVED], "weather@", "weather has no version ''; served: 2, 3"),
        ([SERVED, SERVED | {"name": "b"}], None, "choose one .* with --model: b, weather"),
        ([], None, "choose one .* with --model: none"),
    ],
)
def test_which_model(server: FakeServer, data: Path, served: list, model: str, message: str):
    server.answers["/models"] = (200, served)
    with pytest.raises(ClientError, match=message):
        ask(server, data, model)


def test_a_version(server: FakeServer, data: Path):
    ask(server, data, "weather@2")
    assert server.requests[1][1]["model"] == "weather@2"


def test_one_of_several_models(server: FakeServer, data: Path):
    server.answers["/models"] = (200, [SERVED | {"name": "b", "channels": ["lost"]}, SERVED])
    ask(server, data, "weather")
    assert server.requests[1][1]["model"] == "weather"


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (
            422,
            {"error": {"code": "422", "message": "too short", "param": "inputs[0].series"}},
            r"^422: inputs\[0\]\.series: too short$",
        ),
        (503, {"error": {"message": "draining", "param": None}}, "^503: draining$"),
        (500, {"error": "no such model"}, "^500: no such model$"),
        (404, {"detail": "Not Found"}, "^404: .*Not Found"),
        (502, ["bad gateway"], "^502: .*bad gateway"),
        (502, b"<html>", r"/forecast: 502, not JSON$"),
        (200, b"", r"/forecast: 200, not JSON$"),
    ],
)
def test_an_error_of_the_server(
    server: FakeServer, data: Path, status: int, body: object, message: str
):
    server.answers["/forecast"] = (status, body)
    with pytest.raises(ClientError, match=message):
        ask(server, data)


@pytest.mark.parametrize("path", ["/models", "/forecast"])
@pytest.mark.parametrize("body", [{}, [], [{}], {"outputs": []}, 7])
def test_an_answer_of_another_service(server: FakeServer, data: Path, path: str, body: object):
    server.answers[path] = (200, body)
    message = (
        "choose one" if (path, body) == ("/models", []) else f"{path}: no answer of foretell: "
    )
    with pytest.raises(ClientError, match=message):
        ask(server, data)


def test_no_server(data: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ClientError, match=url):
            request_forecast(url, data, model=None, horizon=None, timeout=10)


def test_a_column_is_missing(server: FakeServer, data: Path):
    server.answers["/models"] = (200, [SERVED | {"channels": ["load", "sun"]}])
    with pytest.raises(DataError, match="sun"):
        ask(server, data)


def test_another_frequency(server: FakeServer, data: Path):
    server.answers["/models"] = (200, [SERVED | {"frequency": "15min"}])
    with pytest.raises(DataError, match="lines 3, 4"):
        ask(server, data)


def test_one_series_of_several(server: FakeServer, tmp_path: Path):
    path = tmp_path / "shops.csv"
    hours = [f"2024-01-01T0{hour}:00" for hour in range(4)]
    rows = [f"{name},{hour},{at}" for at, name in enumerate(("east", "west")) for hour in hours]
    path.write_text("\n".join(["unique_id,ds,load", *rows]) + "\n")
    server.answers["/models"] = (200, [SERVED | {"channels": ["load"]}])
    content = {"mean_forecast": [1.0], "timestamps": ["2024-01-01T04:00:00"]}
    server.answers["/forecast"] = (200, answer(outputs=[{"content": [content]}]))
    request_forecast(
        server.url, path, model=None, horizon=None, timeout=10, quantiles=(), series="west"
    )
    (entry,) = server.requests[1][1]["inputs"]
    assert (entry["name"], entry["series"]) == ("west", [1, 1, 1, 1])
    with pytest.raises(DataError, match=r"2 series; choose one with --series, such as east"):
        ask(server, path)
    with pytest.raises(DataError, match=r"no series weast; did you mean (west|east)\?"):
        request_forecast(server.url, path, model=None, horizon=None, timeout=10, series="weast")
