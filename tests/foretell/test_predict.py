"""`foretell predict`, and its requests to a server."""

import csv
import io
import json
import re
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import Result

from foretell.predict.output import write
from foretell.predict.text import print_forecasts
from tests.foretell.conftest import SERVED, FakeServer, answer
from tests.foretell.test_plots import forecast
from tests.support import command
from tests.support.command import cells

TIMES = ["2024-01-01T06:00:00", "2024-01-01T07:00:00"]
LOAD = SERVED | {"channels": ["load"]}


def run(server: FakeServer, file: Path, *words: str, **variables: str) -> Result:
    return command.run("predict", f"--url={server.url}", file, *words, **variables)


def predict(server: FakeServer, file: Path, *words: str) -> Result:
    return command.done("predict", f"--url={server.url}", file, *words)


def refused(server: FakeServer, file: Path, *words: str) -> str:
    return command.refused("predict", f"--url={server.url}", file, *words)


def content(server: FakeServer) -> dict[str, Any]:
    """The server's content for the only series."""
    _, body = server.answers["/forecast"]
    return body["outputs"][0]["content"][0]


def sent(server: FakeServer) -> dict[str, Any]:
    """The input of the only series of the last request."""
    (entry,) = server.requests[-1][1]["inputs"]
    return entry


def serve(server: FakeServer, served: dict[str, Any], times: list[str], **more: Any) -> None:
    """Let a server of one channel forecast the value 1 at each of these times."""
    found = {"mean_forecast": [1.0] * len(times), "timestamps": times}
    server.answers["/models"] = (200, [served])
    server.answers["/forecast"] = (200, answer(outputs=[{"content": [found]}], **more))


@pytest.fixture
def shops(tmp_path: Path) -> Path:
    """Three series of four hours, each of one value."""
    hours = [f"2024-01-01T0{hour}:00" for hour in range(4)]
    rows = [f"{name},{hour},{at}" for at, name in enumerate("abc") for hour in hours]
    path = tmp_path / "shops.csv"
    path.write_text("\n".join(["unique_id,ds,load", *rows]) + "\n")
    return path


def test_predict_sends_the_last_rows_and_prints_shapes_and_steps(server: FakeServer, data: Path):
    result = run(server, data, "--horizon=2")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [place for place, _ in server.requests] == ["GET /models", "POST /forecast"]
    assert server.requests[1][1] == {
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
    assert "weather@3 on weather.csv: 2 steps" in result.stdout
    assert cells(result.stdout) == [
        ["wind", "▁▃▅▆|▆█", "5.5", "5.5", "5.5", "6.5"],
        ["load", "▁▃▅▆|▆█", "50", "50", "50", "60"],
        [TIMES[0], "5.5", "50"],
        [TIMES[1], "6.5", "60"],
    ]


def test_prints_quantiles_and_actual_values(server: FakeServer, data: Path, tmp_path: Path):
    content(server)["quantiles"] = {"0.1": [[5, 49], [6, 59]], "0.9": [[6, 51], [7, 61]]}
    picture = tmp_path / "out.png"
    result = predict(server, data, "--quantiles=0.1,0.9", "--holdout=1", f"--plot={picture}")
    assert cells(result.stdout)[2:] == [
        [TIMES[0], "wind", "5.5", "5.0", "6.0"],
        [TIMES[0], "load", "50", "49", "51"],
        [TIMES[1], "wind", "6.5", "6.0", "7.0"],
        [TIMES[1], "load", "60", "59", "61"],
    ]
    assert [wind for wind, _ in sent(server)["series"]] == [1.5, 2.5, 3.5, 4.5]
    assert server.requests[1][1]["options"] == {"quantiles": [0.1, 0.9]}
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert f"drawn to {picture}" in result.stdout


def test_only_targets_are_printed(server: FakeServer, data: Path):
    content(server).update({"mean_forecast": [[50.0], [60.0]], "channels": ["load"]})
    result = predict(server, data, "--holdout=1")
    assert "wind" not in result.stdout
    assert cells(result.stdout)[1:] == [[TIMES[0], "50"], [TIMES[1], "60"]]


def test_single_channel_is_sent_as_a_flat_series(server: FakeServer, data: Path):
    serve(server, LOAD, TIMES)
    assert cells(predict(server, data).stdout)[1:] == [[TIMES[0], "1"], [TIMES[1], "1"]]
    assert sent(server)["series"] == [20, 30, 40, 50]
    # The server decides which series are too short.
    serve(server, LOAD | {"context": 100}, TIMES)
    run(server, data)
    assert len(sent(server)["series"]) == 6


def test_months_on_the_30th_are_sent_with_every_time(server: FakeServer, tmp_path: Path):
    days = ["2024-01-30", "2024-02-29", "2024-03-30", "2024-04-30"]
    path = tmp_path / "monthly.csv"
    path.write_text("\n".join(["date,load", *(f"{day},1" for day in days)]) + "\n")
    serve(server, LOAD | {"frequency": "M", "context": 3}, ["2024-05-30T00:00:00"])
    run(server, path)
    assert sent(server)["timestamps"] == [f"{day}T00:00:00" for day in days[1:]]
    assert "start_timestamp" not in sent(server)


@pytest.mark.parametrize(
    ("served", "model", "expected"),
    [
        ([SERVED], "weather@2", "weather@2"),
        ([SERVED | {"name": "b", "channels": ["lost"]}, SERVED], "weather", "weather"),
        ([SERVED], "oracle", "model 'oracle' is not served; served: weather"),
        ([SERVED], "weather@1", "weather has no version '1'; served: 2, 3"),
        ([SERVED], "weather@", "weather has no version ''; served: 2, 3"),
        ([SERVED, SERVED | {"name": "b"}], "", "choose one .* with --model: b, weather"),
        ([], "", "choose one .* with --model: none"),
        ([SERVED | {"channels": ["load", "sun"]}], "", "sun"),
        ([SERVED | {"frequency": "15min"}], "", "lines 5, 6 and 7"),
    ],
)
def test_model_is_chosen(
    server: FakeServer, data: Path, served: list[Any], model: str, expected: str
):
    server.answers["/models"] = (200, served)
    result = run(server, data, *([f"--model={model}"] if model else []))
    if result.exit_code:
        assert re.search(rf"^foretell predict: .*{expected}", result.stderr)
    else:
        assert server.requests[1][1]["model"] == expected


def test_steps_that_are_forecast_from_forecasts(server: FakeServer, data: Path):
    content(server).update({"rolled_from": 1, "ill_conditioned": True})
    warning = {"type": "rolled", "message": "the steps from 1 on are forecast from forecasts"}
    server.answers["/forecast"][1]["warnings"] = [warning]
    result = run(server, data)
    assert "2 steps, from 2 on from forecasts" in result.stdout
    before, after = (result.stdout.index(f"│ {time}") for time in TIMES)
    assert "├──" in result.stdout[before:after]
    first, second = result.stderr.splitlines()
    assert first == "warning: the steps from 1 on are forecast from forecasts"
    assert second.endswith("another machine may forecast otherwise")


@pytest.mark.parametrize(("width", "bars"), [(80, 8), (120, 16)])
def test_thirty_channels_fit_the_terminal(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, bars: int
):
    names = [f"channel {i}" for i in range(30)]
    table = pd.DataFrame(12_860.1, index=range(30), columns=names)
    table.insert(0, "ds", pd.date_range("2024-01-01", periods=30, freq="h"))
    table.to_csv(tmp_path / "wide.csv", index=False)
    times = [str(time) for time in pd.date_range("2024-01-02T06:00", periods=24, freq="h")]
    serve(server, SERVED | {"channels": names, "context": 30}, times)
    content(server)["mean_forecast"] = [[12_860.3] * 30] * 24
    monkeypatch.setattr("foretell.terminal.tables._FILE_WIDTH", width)
    result = predict(server, tmp_path / "wide.csv")
    rows = cells(result.stdout)
    assert [row[0] for row in rows] == names
    assert rows[0][2:] == ["12860.1", "12860.3", "12860.3", "12860.3"]
    assert [len(part) for part in rows[0][1].split("|")] == [bars, bars]
    assert max(map(len, result.stdout.splitlines())) <= width
    assert result.stdout.endswith("--out FILE writes all 720 values\n")


def test_several_series_where_one_fails(server: FakeServer, shops: Path, tmp_path: Path):
    serve(server, LOAD, ["2024-01-01T04:00:00"])
    good = {"content": [content(server)]}
    bad = {"content": [], "error": {"type": "wild", "message": "too wild"}}
    server.answers["/forecast"] = (200, answer(outputs=[good, bad]))
    output = tmp_path / "out.csv"
    result = run(server, shops, "--series=a", "--series=b", f"--out={output}")
    assert result.exit_code == 1
    assert cells(result.stdout) == [
        ["a", "load", "▁▁▁▁|█", "0", "1", "1", "1"],
        ["2024-01-01T04:00:00", "1"],
    ]
    assert result.stderr == "warning: series b has no forecast: too wild\n"
    assert output.read_text() == "unique_id,ds,load\na,2024-01-01T04:00:00,1.0\n"
    server.answers["/forecast"] = (200, answer(outputs=[bad]))
    result = run(server, shops, "--series=b", f"--out={output}", "--overwrite")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no series has a forecast" in result.stderr
    assert output.read_text().startswith("unique_id")
    assert "no series d; the first is a" in refused(server, shops, "--series=d")


@pytest.mark.parametrize(
    ("most", "sizes"), [({"_MOST_SERIES": 2}, [2, 1]), ({"_MOST_NUMBERS": 7}, [1, 1, 1])]
)
def test_many_series_are_sent_in_parts(
    server: FakeServer,
    shops: Path,
    monkeypatch: pytest.MonkeyPatch,
    most: dict[str, int],
    sizes: list[int],
):
    serve(server, LOAD, ["2024-01-01T04:00:00"])
    good, refused = content(server), {"type": "constant", "message": "constant"}

    def answered(body: dict[str, Any]) -> dict[str, Any]:
        names = [entry["name"] for entry in body["inputs"]]
        outputs = [{"content": [] if name == "a" else [good]} for name in names]
        for name, output in zip(names, outputs, strict=True):
            output["error"] = refused if name == "a" else None  # type: ignore[assignment]
        warning = {"type": "filled", "message": f"filled in {', '.join(names)}"}
        return answer(outputs=outputs, warnings=[warning])

    server.answers["/forecast"] = (200, answered)
    for name, value in most.items():
        monkeypatch.setattr(f"foretell.predict.forecasts.{name}", value)
    result = run(server, shops, "--out=-")
    assert [row[0] for row in csv.reader(io.StringIO(result.stdout))] == ["unique_id", "b", "c"]
    assert [len(body["inputs"]) for _, body in server.requests[1:]] == sizes
    assert result.stderr.count("warning: filled in ") == len(sizes)
    assert "warning: series a has no forecast: constant\n" in result.stderr


def test_wrong_cell_in_the_context_is_an_error(server: FakeServer, data: Path):
    data.write_text(data.read_text().replace("10,x,1.5", "wrong,x,1.5"))
    result = predict(server, data)
    assert result.stderr.startswith("note: before the rows that are read: line 3, column 'load'")
    message = refused(server, data, "--holdout=1")
    assert message.startswith(f"foretell predict: {data}: line 3, column 'load': 'wrong'")


def test_missing_rows_are_filled_from_earlier_rows(server: FakeServer, data: Path):
    lines = data.read_text().splitlines()
    data.write_text("\n".join(lines[:3] + lines[4:]) + "\n")
    assert "rows are missing before it" in run(server, data).stderr
    predict(server, data, "--missing=ffill")
    assert [wind for wind, _ in sent(server)["series"]] == [1.5, 3.5, 4.5, 5.5]
    # The first value that is read is filled too.
    data.write_text("\n".join(lines).replace("20,x,2.5", ",x,2.5") + "\n")
    predict(server, data, "--missing=ffill")
    assert sent(server)["series"] == [[2.5, 10], [3.5, 30], [4.5, 40], [5.5, 50]]


def test_names_are_printed_literally_and_shortened_before_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    names = ("wind [m/s]", "[/x] :warning:", "a name that is far too long for a narrow terminal")
    plain = forecast(3, "a series that is called by a very long name, too")
    one = replace(plain, targets=names, history=replace(plain.history, channels=names))
    print_forecasts([one], "[red].csv")
    text = capsys.readouterr().out
    assert all(name in text for name in (*names, "[red].csv"))
    monkeypatch.setattr("foretell.terminal.tables._FILE_WIDTH", 80)
    print_forecasts([one], "data.csv")
    shapes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert len(shapes) == 3
    assert "│ wind [m/… │" in shapes[0]
    assert all(len(re.findall(r" -?\d\.\d+ │", line)) == 4 for line in shapes)


def test_every_format_is_written(server: FakeServer, data: Path, tmp_path: Path):
    content(server)["quantiles"] = {"0.9": [[6, 51], [7, 61]]}
    for kind in ("csv", "json", "parquet"):
        predict(server, data, "--holdout=1", f"--out={tmp_path / 'out'}.{kind}")
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
        *("out.csv", "out.json", "out.parquet")
    ]
    # Three rows are held out; the two of the forecast steps are compared.
    later = "".join(f"2024-01-01T0{hour}:00:00+01:00,{hour}0,x,{hour}.5\n" for hour in (6, 7))
    data.write_text(data.read_text() + later)
    result = run(server, data, "--holdout=3", "--out=-")
    assert [row[-2:] for row in csv.reader(io.StringIO(result.stdout))][1:] == [
        *(["5.5", "50.0"], ["6.5", "60.0"])
    ]


def test_standard_output_has_only_the_table(server: FakeServer, data: Path, tmp_path: Path):
    result = run(server, data, "--out=-", f"--plot={tmp_path / 'out.svg'}")
    assert list(csv.reader(io.StringIO(result.stdout))) == [
        ["ds", "wind", "load"],
        [f"{TIMES[0]}+01:00", "5.5", "50.0"],
        [f"{TIMES[1]}+01:00", "6.5", "60.0"],
    ]


def test_failed_write_leaves_the_old_file(
    server: FakeServer, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    output = tmp_path / "out.csv"
    output.write_text("old")

    def fail(_: pd.DataFrame, path: Path, **__: object) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pandas.DataFrame.to_csv", fail)
    result = run(server, data, f"--out={output}", "--overwrite")
    assert (result.exit_code, result.stderr) == (2, "foretell predict: No space left on device\n")
    assert output.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [output, data]


def test_small_numbers_and_times_over_a_change_of_the_clock_are_written(tmp_path: Path):
    plain = forecast(1)
    hours = [f"2024-10-27T{hour}" for hour in ("01:00+02:00", "02:00+02:00", "02:00+01:00")]
    table = replace(plain.history, utc_offset=timedelta(hours=2))
    values = np.float32(plain.values * 1e-18).astype(np.float64)
    one = replace(plain, times=[*hours, *hours], history=table, values=values)
    for name in ("out.parquet", "out.csv", "out.json"):
        write([one], tmp_path / name)
    found = pd.read_parquet(tmp_path / "out.parquet")["ds"]
    assert str(found.dt.tz) == "UTC"
    assert found.dt.hour.tolist()[:3] == [23, 0, 1]
    assert pd.read_csv(tmp_path / "out.csv")["ds"].tolist() == [*hours, *hours]
    rows = json.loads((tmp_path / "out.json").read_text())
    assert [row["channel 0"] for row in rows] == values[:, 0].tolist()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--quantiles=0.1;0.9", "expected levels such as 0.1,0.9"),
        ("--horizon=0", "--horizon"),
        ("--timeout=0", "--timeout"),
        ("--missing=guess", "--missing"),
        ("--plot=out.xyz", "out.xyz: expected a name that ends with .png, .svg, .pdf"),
        ("--plot=nowhere/out.png", "nowhere/out.png: there is no folder nowhere"),
        ("--out=out.xls", "out.xls: expected a name that ends with .csv, .json, .parquet"),
        ("--out=nowhere/out.csv", "nowhere/out.csv: there is no folder nowhere"),
        ("--out={data}", "{data}: exists already; --overwrite replaces it"),
        ("--url=ftp://localhost", "url: "),
    ],
)
def test_bad_options_are_refused_before_a_request(
    server: FakeServer, data: Path, option: str, message: str
):
    result = run(server, data, option.format(data=data))
    assert result.exit_code == 2
    assert message.format(data=data) in result.stderr
    assert server.requests == []


def test_missing_matplotlib_is_an_error_before_a_request(
    server: FakeServer, data: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run(server, data, "--plot=out.png")
    assert isinstance(result.exception, ImportError)
    assert server.requests == []


def test_holdout_of_all_rows_is_refused(server: FakeServer, data: Path):
    assert "6 rows, all of which are held out" in refused(server, data, "--holdout=6")


def test_keys_are_sent_and_never_shown(server: FakeServer, data: Path):
    server.url = server.url.removeprefix("http://")
    predict(server, data)
    assert server.keys == [None, None]
    results = [
        run(server, data, FORETELL_KEY="secret"),
        run(server, data, "--key=secret", FORETELL_KEY="other"),
    ]
    assert server.keys[2:] == ["Bearer secret"] * 4
    server.answers["/models"] = (401, {"error": {"message": "no such key"}})
    results.append(run(server, data, "--key=secret"))
    assert results[-1].exit_code == 2
    assert "no such key" in results[-1].stderr
    assert not any("secret" in result.output for result in results)


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (422, {"error": {"message": "too short", "param": "series"}}, "series: too short"),
        (200, [{}], ".*not an answer of foretell: "),
        (200, {"outputs": []}, ".*not an answer of foretell: "),
    ],
)
def test_errors_of_the_server_are_printed(
    server: FakeServer, data: Path, status: int, body: object, message: str
):
    server.answers["/forecast"] = (status, body)
    assert re.match(f"foretell predict: {message}", refused(server, data))
