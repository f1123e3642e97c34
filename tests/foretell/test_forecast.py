from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from foretell.commands.forecast import command
from tests.foretell.server import FakeServer


def run(server: FakeServer, *words: str) -> Result:
    return CliRunner().invoke(command, [f"--url={server.url}", *words])


def test_prints_the_forecast(server: FakeServer, data: Path):
    result = run(server, str(data), "--model=weather", "--horizon=2")
    assert result.exit_code == 0, result.stderr
    assert "weather@3 on weather.csv" in result.stdout
    found = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in result.stdout.splitlines()
        if line.startswith("│")
    ]
    assert found == [["2024-01-01T06:00:00", "5.5", "50"], ["2024-01-01T07:00:00", "6.5", "60"]]
    assert server.requests[1][1]["options"] == {"horizon": 2}


def test_prints_quantiles_and_draws_what_followed(server: FakeServer, data: Path, tmp_path: Path):
    _, answer = server.answers["/forecast"]
    (content,) = answer["outputs"][0]["content"]
    content["quantiles"] = {"0.1": [[5, 49], [6, 59]], "0.9": [[6, 51], [7, 61]]}
    picture = tmp_path / "out.png"
    options = ["--quantiles=0.1,0.9", "--hold-back=1", f"--plot={picture}"]
    result = run(server, str(data), "--model=weather", *options)
    assert result.exit_code == 0, result.stderr
    assert "│ 2024-01-01T06:00:00 │ wind    │      5.5 │   5 │   6 │" in result.stdout
    assert "│ 2024-01-01T07:00:00 │ load    │       60 │  59 │  61 │" in result.stdout
    _, body = server.requests[1]
    assert [wind for wind, _ in body["inputs"][0]["series"]] == [1.5, 2.5, 3.5, 4.5]
    assert body["options"] == {"quantiles": [0.1, 0.9]}
    assert picture.exists()


def test_prints_the_targets(server: FakeServer, data: Path):
    _, answer = server.answers["/forecast"]
    (content,) = answer["outputs"][0]["content"]
    content |= {"mean_forecast": [[50.0], [60.0]], "channels": ["load"]}
    result = run(server, str(data), "--model=weather", "--hold-back=1")
    assert result.exit_code == 0, result.stderr
    assert "wind" not in result.stdout
    assert "│ 2024-01-01T07:00:00 │   60 │" in result.stdout


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--quantiles=0.1;0.9", "expected levels such as 0.1,0.9"),
        ("--hold-back=6", "6 rows, all of which are held back"),
    ],
)
def test_bad_options(server: FakeServer, data: Path, option: str, message: str):
    result = run(server, str(data), "--model=weather", option)
    assert result.exit_code == 2
    assert message in result.stderr
    assert all(place == "GET /models" for place, _ in server.requests)


def test_draws_it(server: FakeServer, data: Path, tmp_path: Path):
    picture = tmp_path / "out.png"
    result = run(server, str(data), f"--plot={picture}")
    assert result.exit_code == 0, result.stderr
    assert f"drawn to {picture}" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["out.xyz", "nowhere/out.png"])
def test_a_picture_that_cannot_be_drawn(server: FakeServer, data: Path, tmp_path: Path, name: str):
    result = run(server, str(data), f"--plot={tmp_path / name}")
    assert result.exit_code == 2
    # The forecast itself was printed.
    assert "2024-01-01T06:00:00" in result.stdout
    assert result.stderr.startswith(f"foretell forecast: {tmp_path / name}: ")


def test_an_error_of_the_server(server: FakeServer, data: Path):
    server.answers["/forecast"] = (429, {"error": {"message": "queue full"}})
    result = run(server, str(data))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == "foretell forecast: 429: queue full\n"


def test_a_bad_file(server: FakeServer, tmp_path: Path):
    path = tmp_path / "bad.csv"
    path.write_text("date,load,wind\n2024-01-01T00,1,2\n2024-01-01T01,x,2\n2024-01-01T02,1,2\n")
    result = run(server, str(path))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"foretell forecast: {path}: line 3, column 'load'")


def test_bad_arguments(server: FakeServer, data: Path):
    assert run(server, str(data), "--horizon=0").exit_code == 2
    assert run(server, "nowhere.csv").exit_code == 2
    for seconds in ("-1", "0"):
        assert "--timeout" in run(server, str(data), f"--timeout={seconds}").stderr
    assert server.requests == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("127.0.0.1:8000", "missing an 'http://' or 'https://' protocol"),
        ("http://[::1", "http://[::1: Invalid"),
    ],
)
def test_a_bad_address(server: FakeServer, data: Path, url: str, message: str):
    result = run(server, str(data), f"--url={url}")
    assert result.exit_code == 2
    assert result.stderr.startswith("foretell forecast: ")
    assert message in result.stderr
