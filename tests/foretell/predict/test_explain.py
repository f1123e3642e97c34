from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from foretell.commands.predict import command
from tests.foretell.predict.stages import ALL, DENSE
from tests.foretell.server import FakeServer


@pytest.fixture
def explaining(server: FakeServer) -> FakeServer:
    _, answer = server.answers["/forecast"]
    answer["outputs"][0]["content"][0]["attention"] = ALL
    return server


def run(server: FakeServer, *words: str) -> Result:
    return CliRunner().invoke(command, [f"--url={server.url}", "--explain", *words])


def test_prints_every_form(explaining: FakeServer, data: Path):
    result = run(explaining, str(data))
    assert result.exit_code == 0, result.stderr
    text = result.stdout
    assert "\nweather@3 on weather.csv: what it looked at\n" in text
    assert "weather@3 on weather.csv: 2 steps" in text
    assert "│   3 │ 3 days │  75.0% │ ████████████████████ │ 2           │" in text
    # The steps of the forecast, and of them what they looked at most.
    assert "│ 2024-01-01 06:00 │ 2024-01-01 05:00 │  40.0% │ 2024-01-01 04:00 │  30.0% │" in text
    assert "2024-01-01 04:00 │ 2024-01-01 04:00" not in text
    assert "│ 2024-01-01 02:00 to 03:00 │  75.0% │ ████████████████████ │" in text
    assert "│ load           │  75.0% │" in text
    assert "without a map: encoder.3.self" in text
    assert explaining.requests[1][1]["options"] == {"attention": {"heads": "mean"}}


def test_a_line_for_some_of_very_many_steps(
    explaining: FakeServer, data: Path, monkeypatch: pytest.MonkeyPatch
):
    _, answer = explaining.answers["/forecast"]
    answer["outputs"][0]["content"][0]["attention"] = [DENSE]
    monkeypatch.setattr("foretell.predict.evidence_text._MOST_STEPS", 1)
    text = run(explaining, str(data)).stdout
    assert "forecast step (one in 2)" in text
    assert "│ 2024-01-01 06:00 " in text
    assert "│ 2024-01-01 07:00 " not in text


def test_chosen_stages_and_rows_held_back(explaining: FakeServer, data: Path):
    result = run(explaining, str(data), "--stage=a", "--stage=b", "--holdout=1")
    assert result.exit_code == 0, result.stderr
    _, body = explaining.requests[1]
    assert body["options"] == {"attention": {"heads": "mean", "stages": ["a", "b"]}}
    assert body["inputs"][0]["series"][-1] == [4.5, 40]


def test_draws_it(explaining: FakeServer, data: Path, tmp_path: Path):
    picture = tmp_path / "out.svg"
    result = run(explaining, str(data), f"--plot={picture}")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.endswith(f"drawn to {picture}\n")
    # Three maps with their colours.
    assert picture.read_text().count("<image") == 6


def test_a_model_without_maps(explaining: FakeServer, data: Path, tmp_path: Path):
    _, answer = explaining.answers["/forecast"]
    answer["outputs"][0]["content"][0]["attention"] = ALL[-1:]
    result = run(explaining, str(data), "--stage=encoder.3.self", f"--plot={tmp_path / 'out.png'}")
    assert result.exit_code == 0, result.stderr
    assert "without a map: encoder.3.self" in result.stdout
    assert not (tmp_path / "out.png").exists()


def test_several_series(explaining: FakeServer, tmp_path: Path):
    path = tmp_path / "shops.csv"
    hours = [f"2024-01-01T0{hour}:00" for hour in range(4)]
    rows = [f"{name},{hour},1,2" for name in ("east", "west") for hour in hours]
    path.write_text("\n".join(["unique_id,ds,wind,load", *rows]) + "\n")
    result = run(explaining, str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "2 series; choose one with --series, such as east" in result.stderr
    assert run(explaining, str(path), "--series=west").exit_code == 0
    assert [entry["name"] for entry in explaining.requests[-1][1]["inputs"]] == ["west"]


def test_an_error_of_the_server(explaining: FakeServer, data: Path):
    explaining.answers["/forecast"] = (422, {"error": {"message": "no attention maps"}})
    result = run(explaining, str(data), "--plot=nowhere/out.png")
    assert "there is no folder nowhere" in result.stderr
    assert explaining.requests == []
    result = run(explaining, str(data))
    assert (result.exit_code, result.stderr) == (2, "foretell predict: no attention maps\n")


def test_a_forecast_does_not_ask_for_attention(explaining: FakeServer, data: Path):
    CliRunner().invoke(command, [f"--url={explaining.url}", str(data)])
    assert explaining.requests[1][1]["options"] == {}
