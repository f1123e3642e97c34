"""`foretell predict --explain`: the strongest attention, printed and drawn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.client import Stage
from foretell.plots.evidence import figure_of
from foretell.predict.evidence import Evidence, find_evidence
from tests.foretell.conftest import FakeServer
from tests.support import command

TIMES = [f"2024-01-01T0{hour}:00:00+01:00" for hour in range(2, 8)]
# The first two forecast steps are the last two of them.
FIRST = TIMES[4]

CIRCULANT: dict[str, Any] = {
    "name": "encoder.0.self",
    "kind": "autocorrelation",
    "form": "circulant",
    "shape": [4, 4],
    "axes": ["query", "key"],
    "weights": [[0.25, 0, 0, 0.75], [0.75, 0.25, 0, 0], [0, 0.75, 0.25, 0], [0, 0, 0.75, 0.25]],
    "query": TIMES[:4],
    "key": TIMES[:4],
    "lags": [0, 3],
    "lag_durations": ["PT0H", "PT72H"],
    "lag_weights": [0.25, 0.75],
    "correlation": [1.5, 0.5, -1, 2],
}
DENSE: dict[str, Any] = {
    "name": "decoder.0.cross",
    "kind": "softmax",
    "form": "dense",
    "shape": [4, 4],
    "axes": ["query", "key"],
    "weights": [[1, 0, 0, 0], [0, 1, 0, 0], [0.1, 0.2, 0.3, 0.4], [0.6, 0, 0.4, 0]],
    "query": TIMES[2:],
    "key": TIMES[:4],
}
PATCHES: dict[str, Any] = {
    "name": "encoder.1.self",
    "kind": "softmax",
    "form": "dense",
    "shape": [2, 3, 3],
    "axes": ["channel", "query", "key"],
    "channels": ["wind", "load"],
    "weights": [[[0.5, 0.5, 0]] * 3, [[1, 0, 0]] * 3],
    "query": [{"start": TIMES[0], "end": TIMES[1]}, {"start": TIMES[2], "end": TIMES[3]}, None],
    "key": [{"start": TIMES[0], "end": TIMES[1]}, {"start": TIMES[2], "end": TIMES[3]}, None],
}
CHANNELS: dict[str, Any] = {
    "name": "encoder.2.self",
    "kind": "softmax",
    "form": "dense",
    "shape": [2, 2],
    "axes": ["query", "key"],
    "weights": [[0.5, 0.5], [0, 1]],
    "query": ["wind", "load"],
    "key": ["wind", "load"],
}
NONE: dict[str, Any] = {"name": "encoder.3.self", "kind": "mixing", "form": "none"}
ALL = [CIRCULANT, DENSE, PATCHES, CHANNELS, NONE]


def found_in(*stages: dict[str, Any], first: str = FIRST) -> list[Evidence]:
    return find_evidence([Stage.model_validate(stage) for stage in stages], first)


def test_steps_are_times_by_the_clock():
    (found,) = found_in(DENSE)
    assert found.queries == tuple(f"2024-01-01 0{hour}:00" for hour in (4, 5, 6, 7))
    assert found.ahead.tolist() == [False, False, True, True]
    strongest = [("2024-01-01 05:00", 0.4), ("2024-01-01 04:00", 0.3)]
    assert found.strongest(found.weights[2], 2) == strongest


def test_patches_are_time_ranges_and_padding_is_left_out():
    (found,) = found_in(PATCHES)
    assert found.keys == ("2024-01-01 02:00 to 03:00", "2024-01-01 04:00 to 05:00")
    # Their mean over the channels.
    assert found.weights.tolist() == [[0.75, 0.25]] * 2
    assert not found.ahead.any()


DAYS = [f"2024-01-0{day}T00:00:00" for day in range(1, 5)]
NIGHT = [{"start": "2024-01-01T23:00:00", "end": "2024-01-02T00:00:00"}]


@pytest.mark.parametrize(
    ("stage", "first", "keys", "ahead"),
    [
        (
            DENSE | {"query": DAYS, "key": DAYS},
            DAYS[-1],
            ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"),
            [False, False, False, True],
        ),
        (
            DENSE | {"weights": [[1.0]], "query": NIGHT, "key": NIGHT},
            "2024-01-01T23:00:00",
            ("2024-01-01 23:00 to 2024-01-02 00:00",),
            [True],
        ),
        (CHANNELS, FIRST, ("wind", "load"), [False] * 2),
        (CHANNELS | {"key": [0, 1]}, FIRST, ("0", "1"), [False] * 2),
    ],
)
def test_labels_of_keys(
    stage: dict[str, Any], first: str, keys: tuple[str, ...], ahead: list[bool]
):
    (found,) = found_in(stage, first=first)
    assert found.keys == keys
    assert found.ahead.tolist() == ahead


def test_lags_are_sorted_by_weight_and_have_periods():
    (found,) = found_in(CIRCULANT)
    assert found.lags is not None
    assert found.lags.positions.tolist() == [3, 0]
    assert found.lags.periods == ("3 days", "")
    assert found.lags.weights.tolist() == [0.75, 0.25]
    np.testing.assert_array_equal(found.lags.correlation, [1.5, 0.5, -1, 2])


@pytest.mark.parametrize(
    ("duration", "words"),
    [
        ("PT90S", "1 minute 30 seconds"),
        ("PT15M", "15 minutes"),
        ("P7D", "1 week"),
        ("P2W", "2 weeks"),
        ("P3M", "3 months"),
        ("P12M", "1 year"),
        ("P1Y", "1 year"),
        (None, ""),
    ],
)
def test_periods_of_lags(duration: str | None, words: str):
    (found,) = found_in(CIRCULANT | {"lag_durations": [duration] * 2})
    assert found.lags is not None
    assert found.lags.periods == (words, words)


def test_line_separates_history_and_forecast_in_a_map():
    figure = figure_of(found_in(DENSE, CHANNELS), "")
    lines = [[line.get_ydata()[0] for line in panel.lines] for panel in figure.axes[:2]]
    assert lines == [[1.5], []]


@pytest.fixture
def explaining(server: FakeServer) -> FakeServer:
    _, answer = server.answers["/forecast"]
    answer["outputs"][0]["content"][0]["attention"] = ALL
    return server


def explain(server: FakeServer, *words: object) -> str:
    """The printed text."""
    return command.done("predict", f"--url={server.url}", "--explain", *words).stdout


def refused(server: FakeServer, *words: object) -> str:
    return command.refused("predict", f"--url={server.url}", "--explain", *words)


def test_prints_every_form(explaining: FakeServer, data: Path):
    text = explain(explaining, data)
    assert "\nweather@3 on weather.csv: what it looked at\n" in text
    assert "weather@3 on weather.csv: 2 steps" in text
    assert "│   3 │ 3 days │  75.0% │ ████████████████████ │ 2           │" in text
    # Steps of the forecast, and the steps that have most of their attention.
    assert "│ 2024-01-01 06:00 │ 2024-01-01 05:00 │  40.0% │ 2024-01-01 04:00 │  30.0% │" in text
    assert "2024-01-01 04:00 │ 2024-01-01 04:00" not in text
    assert "│ 2024-01-01 02:00 to 03:00 │  75.0% │ ████████████████████ │" in text
    assert "│ load           │  75.0% │" in text
    assert "without a map: encoder.3.self" in text
    assert explaining.requests[1][1]["options"] == {"attention": {"heads": "mean"}}


def test_prints_only_some_of_many_steps(
    explaining: FakeServer, data: Path, monkeypatch: pytest.MonkeyPatch
):
    _, answer = explaining.answers["/forecast"]
    answer["outputs"][0]["content"][0]["attention"] = [DENSE]
    monkeypatch.setattr("foretell.predict.evidence_text._MOST_STEPS", 1)
    text = explain(explaining, data)
    assert "forecast step (one in 2)" in text
    assert "│ 2024-01-01 06:00 " in text
    assert "│ 2024-01-01 07:00 " not in text


def test_asks_for_stages_without_the_rows_held_back(
    explaining: FakeServer, data: Path, tmp_path: Path
):
    picture = tmp_path / "out.svg"
    output = explain(explaining, data, "--stage=a", "--stage=b", "--holdout=1", f"--plot={picture}")
    _, body = explaining.requests[1]
    assert body["options"] == {"attention": {"heads": "mean", "stages": ["a", "b"]}}
    assert body["inputs"][0]["series"][-1] == [4.5, 40]
    assert output.endswith(f"drawn to {picture}\n")
    # Three maps with their colours.
    assert picture.read_text().count("<image") == 6


def test_model_without_maps_is_not_drawn(explaining: FakeServer, data: Path, tmp_path: Path):
    _, answer = explaining.answers["/forecast"]
    answer["outputs"][0]["content"][0]["attention"] = ALL[-1:]
    output = explain(explaining, data, f"--plot={tmp_path / 'out.png'}")
    assert "without a map: encoder.3.self" in output
    assert not (tmp_path / "out.png").exists()


def test_one_of_several_series_is_chosen(explaining: FakeServer, tmp_path: Path):
    path = tmp_path / "shops.csv"
    hours = [f"2024-01-01T0{hour}:00" for hour in range(4)]
    rows = [f"{name},{hour},1,2" for name in ("east", "west") for hour in hours]
    path.write_text("\n".join(["unique_id,ds,wind,load", *rows]) + "\n")
    message = refused(explaining, path)
    assert "2 series; choose one with --series, such as east" in message
    explain(explaining, path, "--series=west")
    assert [entry["name"] for entry in explaining.requests[-1][1]["inputs"]] == ["west"]


def test_errors_are_one_line(explaining: FakeServer, data: Path):
    explaining.answers["/forecast"] = (422, {"error": {"message": "no attention maps"}})
    assert "there is no folder nowhere" in refused(explaining, data, "--plot=nowhere/out.png")
    assert explaining.requests == []
    assert refused(explaining, data) == "foretell predict: no attention maps\n"
