import csv
import io
import json
import re
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from foretell.commands.forecast import command
from foretell.forecast_output import write
from foretell.forecast_text import print_forecasts
from tests.foretell.conftest import SERVED, answer
from tests.foretell.forecasts import forecast
from tests.foretell.server import FakeServer

TIMES = ["2024-01-01T06:00:00", "2024-01-01T07:00:00"]


def run(server: FakeServer, *words: str, **variables: str) -> Result:
    return CliRunner(env=variables).invoke(command, [f"--url={server.url}", *words])


def cells(result: Result) -> list[list[str]]:
    """The rows of all tables below their headings."""
    lines = [line for line in result.stdout.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_prints_shapes_and_steps(server: FakeServer, data: Path):
    result = run(server, str(data), "--model=weather", "--horizon=2")
    assert result.exit_code == 0, result.stderr
    assert "weather@3 on weather.csv: 2 steps" in result.stdout
    assert cells(result) == [
        ["wind", "▁▃▅▆|▆█", "5.5", "5.5", "5.5", "6.5"],
        ["load", "▁▃▅▆|▆█", "50", "50", "50", "60"],
        [TIMES[0], "5.5", "50"],
        [TIMES[1], "6.5", "60"],
    ]
    assert server.requests[1][1]["options"] == {"horizon": 2}
    assert result.stderr == ""


def test_prints_quantiles_and_draws_what_followed(server: FakeServer, data: Path, tmp_path: Path):
    _, said = server.answers["/forecast"]
    (content,) = said["outputs"][0]["content"]
    content["quantiles"] = {"0.1": [[5, 49], [6, 59]], "0.9": [[6, 51], [7, 61]]}
    picture = tmp_path / "out.png"
    options = ["--quantiles=0.1,0.9", "--hold-back=1", f"--plot={picture}"]
    result = run(server, str(data), "--model=weather", *options)
    assert result.exit_code == 0, result.stderr
    assert cells(result)[2:] == [
        [TIMES[0], "wind", "5.5", "5.0", "6.0"],
        [TIMES[0], "load", "50", "49", "51"],
        [TIMES[1], "wind", "6.5", "6.0", "7.0"],
        [TIMES[1], "load", "60", "59", "61"],
    ]
    _, body = server.requests[1]
    assert [wind for wind, _ in body["inputs"][0]["series"]] == [1.5, 2.5, 3.5, 4.5]
    assert body["options"] == {"quantiles": [0.1, 0.9]}
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"written to {picture}" in result.stdout


def test_prints_the_targets(server: FakeServer, data: Path):
    _, said = server.answers["/forecast"]
    (content,) = said["outputs"][0]["content"]
    content |= {"mean_forecast": [[50.0], [60.0]], "channels": ["load"]}
    result = run(server, str(data), "--model=weather", "--hold-back=1")
    assert result.exit_code == 0, result.stderr
    assert "wind" not in result.stdout
    assert cells(result)[1:] == [[TIMES[0], "50"], [TIMES[1], "60"]]


def test_marks_where_forecasts_are_made_from_forecasts(server: FakeServer, data: Path):
    _, said = server.answers["/forecast"]
    said["outputs"][0]["content"][0]["rolled_from"] = 1
    said["warnings"] = [{"message": "the steps from 1 on are forecast from forecasts"}]
    result = run(server, str(data))
    assert "2 steps, from 2 on from forecasts" in result.stdout
    before, after = (result.stdout.index(f"│ {time}") for time in TIMES)
    assert "├──" in result.stdout[before:after]
    assert result.stderr == "warning: the steps from 1 on are forecast from forecasts\n"


@pytest.mark.parametrize(("width", "bars"), [(80, 8), (120, 16)])
def test_thirty_channels_fit_the_terminal(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, bars: int
):
    names = [f"channel {i}" for i in range(30)]
    table = pd.DataFrame(12_860.1, index=range(30), columns=names)
    table.insert(0, "ds", pd.date_range("2024-01-01", periods=30, freq="h"))
    table.to_csv(tmp_path / "wide.csv", index=False)
    server.answers["/models"] = (200, [SERVED | {"channels": names, "context": 30}])
    times = [str(time) for time in pd.date_range("2024-01-02T06:00", periods=24, freq="h")]
    content = {"mean_forecast": [[12_860.3] * 30] * 24, "timestamps": times}
    outputs = [{"content": [content], "error": None}]
    server.answers["/forecast"] = (200, answer(outputs=outputs))
    monkeypatch.setattr("foretell.terminal._FILE_WIDTH", width)
    result = run(server, str(tmp_path / "wide.csv"))
    assert result.exit_code == 0, result.stderr
    rows = cells(result)
    assert [row[0] for row in rows] == names
    assert rows[0][2:] == ["12860.1", "12860.3", "12860.3", "12860.3"]
    assert [len(part) for part in rows[0][1].split("|")] == [bars, bars]
    assert max(map(len, result.stdout.splitlines())) <= width
    assert result.stdout.endswith("--output FILE writes all 720 values\n")


def test_several_series_where_one_fails(server: FakeServer, tmp_path: Path):
    path = tmp_path / "shops.csv"
    hours = [f"2024-01-01T0{hour}:00" for hour in range(4)]
    rows = [f"{name},{hour},{i}" for name in ("east", "west") for i, hour in enumerate(hours)]
    path.write_text("\n".join(["unique_id,ds,load", *rows]) + "\n")
    server.answers["/models"] = (200, [SERVED | {"channels": ["load"]}])
    content = {"mean_forecast": [4.0], "timestamps": ["2024-01-01T04:00:00"]}
    good, bad = {"content": [content]}, {"content": [], "error": {"message": "too wild"}}
    server.answers["/forecast"] = (200, answer(outputs=[good, bad]))
    output = tmp_path / "out.csv"
    result = run(server, str(path), f"--output={output}")
    assert result.exit_code == 1
    assert cells(result) == [
        ["east", "load", "▁▃▅▆|█", "3", "4", "4", "4"],
        ["2024-01-01T04:00:00", "4"],
    ]
    assert result.stderr == "warning: series west has no forecast: too wild\n"
    assert output.read_text() == "unique_id,ds,load\neast,2024-01-01T04:00:00,4.0\n"
    server.answers["/forecast"] = (200, answer(outputs=[bad]))
    result = run(server, str(path), "--series=west", f"--output={output}", "--overwrite")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no series has a forecast" in result.stderr
    assert output.read_text().startswith("unique_id")


def test_names_are_printed_as_they_are_and_give_way_to_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    names = ("wind [m/s]", "[/x] :warning:", "a name that is far too long for a narrow terminal")
    plain = forecast(3, "a series that is called by a very long name, too")
    one = replace(plain, targets=names, history=replace(plain.history, channels=names))
    print_forecasts([one], "[red].csv")
    text = capsys.readouterr().out
    assert all(name in text for name in (*names, "[red].csv"))
    monkeypatch.setattr("foretell.terminal._FILE_WIDTH", 80)
    print_forecasts([one], "data.csv")
    shapes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert len(shapes) == 3
    assert "│ wind [m/… │" in shapes[0]
    assert all(len(re.findall(r" -?\d\.\d+ │", line)) == 4 for line in shapes)


def test_small_numbers_keep_their_digits(tmp_path: Path):
    plain = forecast(1)
    one = replace(plain, values=np.float32(plain.values * 1e-18).astype(np.float64))
    write([one], tmp_path / "out.json")
    found = json.loads((tmp_path / "out.json").read_text())
    assert [row["channel 0"] for row in found] == one.values[:, 0].tolist()


def test_a_picture_without_matplotlib_is_missed_at_once(
    server: FakeServer, data: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run(server, str(data), "--plot=out.png")
    assert isinstance(result.exception, ImportError)
    assert server.requests == []


def test_writes_every_format(server: FakeServer, data: Path, tmp_path: Path):
    _, said = server.answers["/forecast"]
    said["outputs"][0]["content"][0]["quantiles"] = {"0.9": [[6, 51], [7, 61]]}
    for kind in ("csv", "json", "parquet"):
        result = run(server, str(data), "--hold-back=1", f"--output={tmp_path / 'out'}.{kind}")
        assert result.exit_code == 0, result.stderr
    zoned = [f"{time}+01:00" for time in TIMES]
    columns = {"wind": [5.5, 6.5], "load": [50.0, 60.0], "wind_q0.9": [6.0, 7.0]}
    columns |= {"load_q0.9": [51.0, 61.0]}
    text = pd.read_csv(tmp_path / "out.csv")
    assert text["ds"].tolist() == zoned
    assert text[list(columns)].to_dict("list") == columns
    assert text["wind_actual"].isna().tolist() == [False, True]
    first, second = json.loads((tmp_path / "out.json").read_text())
    assert first == {"ds": zoned[0]} | {name: values[0] for name, values in columns.items()} | {
        "wind_actual": 5.5,
        "load_actual": 50.0,
    }
    assert second["load_actual"] is None
    table = pd.read_parquet(tmp_path / "out.parquet")
    assert table[list(columns)].to_dict("list") == columns
    assert table["ds"].tolist() == [pd.Timestamp(time) for time in zoned]
    assert sorted(path.name for path in tmp_path.glob("*out*")) == [
        "out.csv",
        "out.json",
        "out.parquet",
    ]


def test_standard_output_has_nothing_but_the_table(server: FakeServer, data: Path, tmp_path: Path):
    result = run(server, str(data), "--output=-", f"--plot={tmp_path / 'out.svg'}")
    assert list(csv.reader(io.StringIO(result.stdout))) == [
        ["ds", "wind", "load"],
        [f"{TIMES[0]}+01:00", "5.5", "50.0"],
        [f"{TIMES[1]}+01:00", "6.5", "60.0"],
    ]


def test_what_an_overwriting_fails_to_write_is_left_as_it_was(
    server: FakeServer, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    output = tmp_path / "out.csv"
    output.write_text("old")

    def fail(_: pd.DataFrame, path: Path, **__: object) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pandas.DataFrame.to_csv", fail)
    assert run(server, str(data), f"--output={output}", "--overwrite").exit_code == 1
    assert output.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [output, data]


def test_times_over_a_change_of_the_clock_are_written_in_utc(tmp_path: Path):
    plain = forecast(1)
    hours = [f"2024-10-27T{hour}" for hour in ("01:00+02:00", "02:00+02:00", "02:00+01:00")]
    table = replace(plain.history, utc_offset=timedelta(hours=2))
    one = replace(plain, times=[*hours, *hours], history=table)
    for name in ("out.parquet", "out.csv"):
        write([one], tmp_path / name)
    found = pd.read_parquet(tmp_path / "out.parquet")["ds"]
    assert str(found.dt.tz) == "UTC"
    assert found.dt.hour.tolist()[:3] == [23, 0, 1]
    assert pd.read_csv(tmp_path / "out.csv")["ds"].tolist() == [*hours, *hours]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--quantiles=0.1;0.9", "expected levels such as 0.1,0.9"),
        ("--horizon=0", "--horizon"),
        ("--timeout=0", "--timeout"),
        ("--timeout=-1", "--timeout"),
        ("--plot=out.xyz", "out.xyz: expected a name that ends with .png, .svg, .pdf"),
        ("--plot=nowhere/out.png", "nowhere/out.png: there is no folder nowhere"),
        ("--output=out.xls", "out.xls: expected a name that ends with .csv, .json, .parquet, or -"),
        ("--output=nowhere/out.csv", "nowhere/out.csv: there is no folder nowhere"),
    ],
)
def test_bad_options(server: FakeServer, data: Path, option: str, message: str):
    result = run(server, str(data), "--model=weather", option)
    assert result.exit_code == 2
    assert message in result.stderr
    assert server.requests == []


def test_bad_options_of_the_file(server: FakeServer, data: Path):
    result = run(server, str(data), "--hold-back=6")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "6 rows, all of which are held back" in result.stderr
    assert "--missing" in run(server, str(data), "--missing=guess").stderr
    assert run(server, "nowhere.csv").exit_code == 2
    assert all(place == "GET /models" for place, _ in server.requests)


def test_a_file_that_is_there_is_not_overwritten(server: FakeServer, data: Path):
    result = run(server, str(data), f"--output={data}")
    assert result.exit_code == 2
    assert result.stderr == f"foretell forecast: {data}: exists already; --overwrite replaces it\n"
    assert server.requests == []


def test_keys_are_sent_and_never_shown(server: FakeServer, data: Path):
    run(server, str(data))
    assert server.keys == [None, None]
    results = [
        run(server, str(data), FORETELL_KEY="secret"),
        run(server, str(data), "--key=secret", FORETELL_KEY="other"),
    ]
    assert server.keys[2:] == ["Bearer secret"] * 4
    server.answers["/models"] = (401, {"error": {"message": "no such key"}})
    results.append(run(server, str(data), "--key=secret"))
    assert results[-1].exit_code == 2
    assert "no such key" in results[-1].stderr
    assert not any("secret" in result.output for result in results)


def test_an_address_needs_no_scheme(server: FakeServer, data: Path):
    result = CliRunner().invoke(command, [str(data), f"--url={server.url.removeprefix('http://')}"])
    assert result.exit_code == 0, result.stderr


def test_an_error_of_the_server(server: FakeServer, data: Path):
    server.answers["/forecast"] = (422, {"error": {"message": "too short"}})
    result = run(server, str(data))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == "foretell forecast: too short\n"


def test_a_bad_file(server: FakeServer, tmp_path: Path):
    path = tmp_path / "bad.csv"
    path.write_text("date,load,wind\n2024-01-01T00,1,2\n2024-01-01T01,x,2\n2024-01-01T02,1,2\n")
    result = run(server, str(path))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"foretell forecast: {path}: line 3, column 'load'")


def test_notes_of_the_file_are_told(server: FakeServer, data: Path):
    data.write_text(data.read_text().replace("00,x,0.5", "wrong,x,0.5"))
    result = run(server, str(data))
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith("note: before the rows that are read: line 2, column 'load'")


def test_a_forecast_that_rounding_may_decide(server: FakeServer, data: Path):
    _, said = server.answers["/forecast"]
    said["outputs"][0]["content"][0]["ill_conditioned"] = True
    assert "another machine may forecast otherwise" in run(server, str(data)).stderr


@pytest.mark.parametrize("url", ["http://[::1", "ftp://localhost", "http://"])
def test_a_bad_address(server: FakeServer, data: Path, url: str):
    result = run(server, str(data), f"--url={url}")
    assert result.exit_code == 2
    assert result.stderr.startswith("foretell forecast: url: ")
