import shlex
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from tests.support.command import done, refused

HOURS = [str(np.datetime64("2024-01-01T00:00") + np.timedelta64(i, "h")) for i in range(240)]
PLAIN = [f"{time},{i}" for i, time in enumerate(HOURS)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [f"{time},{10 + 5 * np.sin(i * np.pi / 12):.3f},{i},7" for i, time in enumerate(HOURS)]
    path = tmp_path / "load.csv"
    path.write_text("\n".join(["date,load,count,flag", *rows]))
    return path


def test_inspect_prints_the_reading(data: Path) -> None:
    output = " ".join(done("inspect", data).stdout.split())
    for text in (
        *("series 1 of 240 rows", "2024-01-01T00:00:00 to 2024-01-10T23:00:00, every step h"),
        *("never below 0", "bounds --bounds=count=0: clips", "constant"),
        *("times column 'date'", "24 steps (1 day), correlation 1.00"),
        "windows of context 60 and horizon 24: 85 to learn from, 1 to choose by, 25 to test on",
    ):
        assert text in output


def test_proposed_command_trains(data: Path) -> None:
    lines = data.read_text().splitlines()
    data.write_text("\n".join([*lines[:9], *lines[12:]]))
    printed = done("inspect", data, "--missing=ffill", "--context=24", "--horizon=2").stdout
    (start,) = (line for line in printed.splitlines() if line.startswith("start with "))
    _, *arguments = shlex.split(start.removeprefix("start with "))
    assert arguments[:3] == ["train", f"--data={data}", "--missing=ffill"]
    out = data.parent / "model"
    done(*arguments, f"--out={out}", "--arch=dlinear", "--epochs=1")
    assert out.is_dir()


def test_inspect_reports_too_few_rows(data: Path) -> None:
    output = done("inspect", data, "--context=200", "--horizon=48").stdout
    assert "windows    not enough: " in output
    assert "start with" not in output


def test_inspect_counts_the_series(data: Path) -> None:
    days = [
        f"{name},{time},{i}"
        for i, time in enumerate(HOURS)
        for name in "ab"
        if i < 99 or name < "b"
    ]
    days = [row for i, row in enumerate(days) if not 50 < i < 91]
    data.write_text("\n".join(["unique_id,ds,y", *days]))
    output = done("inspect", data, "--missing=interpolate").stdout
    assert "series     2 of 79 to 220 rows, cut at 2 holes" in output
    assert "names      column 'unique_id'" in output
    assert "note       2 holes longer than 12 steps" in output


def test_columns_known_ahead_are_read_as_such(data: Path) -> None:
    frame = pd.read_csv(data)
    frame.loc[frame.index[-24:], "load"] = np.nan
    frame.to_csv(data, index=False)
    output = done("inspect", data, "--target=load").stdout
    assert "note       24 rows after the last values have covariates alone" in output
    assert "start with foretell train" in output
    assert "--target=load --future-covariates=count,flag --arch" in output
    # Without a target, any column may be short.
    assert "column 'load': no value" in refused("inspect", data)


def test_named_covariates_stay_in_the_command(data: Path) -> None:
    frame = pd.read_csv(data).assign(day=np.arange(240) // 24 % 2)
    frame.to_csv(data, index=False)
    output = done("inspect", data, "--target=load", "--future-covariates=count").stdout
    assert "covariates --future-covariates=day: known ahead" in output
    assert "--target=load --future-covariates=count,day --arch" in output.splitlines()[-1]


class UnreadableTable(NamedTuple):
    """Lines that cannot be read without an option, the place in the message, and the option."""

    lines: list[str]
    place: str
    remedy: str


# tests/data/test_reading.py has all that is wrong with files.
UNREADABLE = {
    "missing value": UnreadableTable(
        ["date,a", *PLAIN[:5], f"{HOURS[5]},NA", *PLAIN[6:]],
        "line 7, column 'a': no value",
        "--missing interpolate",
    ),
    "decimal marks": UnreadableTable(
        ["date;a", *(f"{time};1,{i:03d}" for i, time in enumerate(HOURS))],
        "numbers such as '1,000' can be read as 1000 and as 1",
        "--decimal ,",
    ),
    "several series": UnreadableTable(
        ["shop,date,a", *(f"{shop},{row}" for row in PLAIN for shop in "xy")],
        "column 'date' repeats its times: several series, named by 'shop'",
        "--id-column shop",
    ),
    "local clock": UnreadableTable(
        [
            "date,a",
            *(
                f"{np.datetime64('2024-10-20T00:00') + np.timedelta64(i - (i > 170), 'h')},{i}"
                for i in range(240)
            ),
        ],
        "line 173, column 'date': 2024-10-27T02:00:00 has another row, with other values",
        "--time-zone Europe/Berlin",
    ),
}


@pytest.mark.parametrize("unreadable", UNREADABLE.values(), ids=UNREADABLE)
def test_error_names_place_and_remedy(tmp_path: Path, unreadable: UnreadableTable) -> None:
    path = tmp_path / "unreadable.csv"
    path.write_text("\n".join(unreadable.lines))
    sizes = ["--arch=dlinear", "--context=24", "--horizon=2", "--epochs=1"]
    train = ["train", f"--data={path}", f"--out={tmp_path / 'model'}", *sizes]
    for command in (["inspect", path], train):
        message = refused(*command)
        assert message.startswith(f"foretell {command[0]}: {path}: ")
        assert unreadable.place in message
        assert unreadable.remedy in message
        assert [entry.name for entry in tmp_path.iterdir()] == ["unreadable.csv"]
    done("inspect", path, *unreadable.remedy.split())


def test_wrong_value_of_an_option_is_named_once(data: Path) -> None:
    assert refused("inspect", data, "--frequency=soon").count("'soon'") == 1
