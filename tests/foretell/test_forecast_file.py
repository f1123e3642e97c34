from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.client import Client
from foretell.client.errors import ForetellError
from foretell.data.errors import DataError
from foretell.data.reading import Reading
from foretell.forecast_file import (
    Answers,
    Forecast,
    choose_model,
    read_histories,
    request_forecasts,
)
from tests.foretell.conftest import SERVED, answer
from tests.foretell.server import FakeServer


def ask_all(
    server: FakeServer,
    path: Path,
    model: str | None = None,
    series: tuple[str, ...] = (),
    hold_back: int = 0,
    reading: Reading | None = None,
    **options: Any,
) -> Answers:
    with Client(server.url + "/", timeout=10) as client:
        card = choose_model(client.models(), model)
        histories, _ = read_histories(path, card, reading or Reading(), series, hold_back)
        return request_forecasts(client, model or card.name, card, histories, options, path.stem)


def ask(server: FakeServer, path: Path, *given: Any, **options: Any) -> Forecast:
    (forecast,) = ask_all(server, path, *given, **options).forecasts
    return forecast


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
    with pytest.raises(ValueError, match=message):
        ask(server, data, model)


def test_a_version(server: FakeServer, data: Path):
    ask(server, data, "weather@2")
    assert server.requests[1][1]["model"] == "weather@2"


def test_one_of_several_models(server: FakeServer, data: Path):
    server.answers["/models"] = (200, [SERVED | {"name": "b", "channels": ["lost"]}, SERVED])
    ask(server, data, "weather")
    assert server.requests[1][1]["model"] == "weather"


def test_an_error_of_the_server(server: FakeServer, data: Path):
    said = {"code": "422", "message": "too short", "param": "inputs[0].series"}
    server.answers["/forecast"] = (422, {"error": said})
    with pytest.raises(ForetellError, match=r"inputs\[0\]\.series: too short"):
        ask(server, data)


@pytest.mark.parametrize("body", [{}, [], [{}], {"outputs": []}, 7])
def test_an_answer_of_another_service(server: FakeServer, data: Path, body: object):
    server.answers["/forecast"] = (200, body)
    with pytest.raises(ForetellError, match="not an answer of foretell: "):
        ask(server, data)


def test_a_column_is_missing(server: FakeServer, data: Path):
    server.answers["/models"] = (200, [SERVED | {"channels": ["load", "sun"]}])
    with pytest.raises(DataError, match="sun"):
        ask(server, data)


def test_another_frequency(server: FakeServer, data: Path):
    server.answers["/models"] = (200, [SERVED | {"frequency": "15min"}])
    with pytest.raises(DataError, match="lines 5, 6 and 7"):
        ask(server, data)


def test_one_series_of_several(server: FakeServer, tmp_path: Path):
    path = tmp_path / "shops.csv"
    hours = [f"2024-01-01T0{hour}:00" for hour in range(4)]
    rows = [f"{name},{hour},{at}" for at, name in enumerate(("east", "west")) for hour in hours]
    path.write_text("\n".join(["unique_id,ds,load", *rows]) + "\n")
    server.answers["/models"] = (200, [SERVED | {"channels": ["load"]}])
    content = {"mean_forecast": [1.0], "timestamps": ["2024-01-01T04:00:00"]}
    server.answers["/forecast"] = (200, answer(outputs=[{"content": [content]}]))
    ask(server, path, series=("west",))
    (entry,) = server.requests[1][1]["inputs"]
    assert (entry["name"], entry["series"]) == ("west", [1, 1, 1, 1])
    with pytest.raises(DataError, match=r"no series weast; did you mean (west|east)\?"):
        ask(server, path, series=("weast",))


def test_all_series_of_a_file(server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "shops.csv"
    hours = [f"2024-01-01T0{hour}:00" for hour in range(4)]
    rows = [f"{name},{hour},{at}" for at, name in enumerate("abc") for hour in hours]
    path.write_text("\n".join(["unique_id,ds,load", *rows]) + "\n")
    server.answers["/models"] = (200, [SERVED | {"channels": ["load"]}])
    good = {"mean_forecast": [1.0], "timestamps": ["2024-01-01T04:00:00"]}
    refused = {"content": [], "error": {"message": "constant"}}

    def answered(body: dict[str, Any]) -> dict[str, Any]:
        names = [entry["name"] for entry in body["inputs"]]
        outputs = [refused if name == "a" else {"content": [good], "error": None} for name in names]
        return answer(outputs=outputs, warnings=[{"message": f"filled in {', '.join(names)}"}])

    server.answers["/forecast"] = (200, answered)
    # Of two requests, the second one has one series left.
    monkeypatch.setattr("foretell.forecast_file._MOST_SERIES", 2)
    answers = ask_all(server, path)
    assert [one.series for one in answers.forecasts] == ["b", "c"]
    assert answers.failures == {"a": "constant"}
    assert answers.warnings == ["filled in a, b", "filled in c"]
    assert [one.series for one in ask_all(server, path, series=("c", "b")).forecasts] == ["c", "b"]
    # Four rows of each are read.
    monkeypatch.setattr("foretell.forecast_file._MOST_NUMBERS", 7)
    before = len(server.requests)
    ask_all(server, path)
    assert [len(body["inputs"]) for _, body in server.requests[before + 1 :]] == [1, 1, 1]


def test_a_wrong_cell_that_is_not_read_does_not_matter(server: FakeServer, data: Path):
    whole = data.read_text()
    data.write_text(whole.replace("10,x,1.5", "wrong,x,1.5"))
    assert ask(server, data).history.values.tolist() == [[2.5, 20], [3.5, 30], [4.5, 40], [5.5, 50]]
    with pytest.raises(DataError, match="line 3, column 'load': 'wrong'"):
        ask(server, data, hold_back=1)


def test_missing_rows_are_filled_from_those_before(server: FakeServer, data: Path):
    lines = data.read_text().splitlines()
    data.write_text("\n".join(lines[:3] + lines[4:]) + "\n")
    with pytest.raises(DataError, match="rows are missing before it"):
        ask(server, data)
    forecast = ask(server, data, reading=Reading(missing="ffill"))
    assert forecast.history.values[:, 0].tolist() == [1.5, 3.5, 4.5, 5.5]
    # So is the first value that is read.
    data.write_text("\n".join(lines).replace("20,x,2.5", ",x,2.5") + "\n")
    forecast = ask(server, data, reading=Reading(missing="ffill"))
    assert forecast.history.values.tolist() == [[2.5, 10], [3.5, 30], [4.5, 40], [5.5, 50]]


def test_what_the_answer_says_besides(server: FakeServer, data: Path):
    _, said = server.answers["/forecast"]
    (content,) = said["outputs"][0]["content"]
    content |= {"rolled_from": 1, "ill_conditioned": True, "quantiles": {"0.9": [[6, 51], [7, 61]]}}
    forecast = ask(server, data, hold_back=1)
    assert (forecast.rolled_from, forecast.ill_conditioned) == (1, True)
    assert forecast.quantiles[0.9].tolist() == [[6, 51], [7, 61]]
    assert forecast.actual.tolist() == [[5.5, 50]]
    later = "".join(f"2024-01-01T0{hour}:00:00+01:00,{hour}0,x,{hour}.5\n" for hour in (6, 7))
    # Of three rows that are held back, those of the two steps.
    data.write_text(data.read_text() + later)
    assert ask(server, data, hold_back=3).actual.tolist() == [[5.5, 50], [6.5, 60]]
