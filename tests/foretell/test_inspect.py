import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from foretell.__main__ import cli
from tests.foretell.messes import HOURS, MESSES, Mess

TRAIN = ("--arch=dlinear", "--context=24", "--horizon=2", "--epochs=1")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [f"{time},{10 + 5 * np.sin(i * np.pi / 12):.3f},{i},7" for i, time in enumerate(HOURS)]
    path = tmp_path / "load.csv"
    path.write_text("\n".join(["date,load,count,flag", *rows]))
    return path


def test_prints_what_was_understood(data: Path) -> None:
    result = run("inspect", str(data))
    assert result.exit_code == 0, result.stderr
    said = " ".join(result.stdout.split())
    for text in (
        *("series 1 of 240 rows", "2024-01-01T00:00:00 to 2024-01-10T23:00:00, every step h"),
        *("never below 0", "bounds --bounds=count=0: keeps", "constant"),
        *("times column 'date'", "24 steps (1 day), correlation 1.00"),
        "windows of context 60 and horizon 24: 85 to learn from, 1 to choose by, 25 to test on",
    ):
        assert text in said


def test_the_command_that_it_starts_with_trains(data: Path) -> None:
    lines = data.read_text().splitlines()
    data.write_text("\n".join([*lines[:9], *lines[12:]]))
    printed = run("inspect", str(data), "--missing=ffill", "--context=24", "--horizon=2").stdout
    (start,) = (line for line in printed.splitlines() if line.startswith("start with "))
    _, *arguments = shlex.split(start.removeprefix("start with "))
    assert arguments[:3] == ["train", f"--data={data}", "--missing=ffill"]
    out = data.parent / "model"
    quick = [f"--out={out}", "--arch=dlinear", "--epochs=1"]
    result = run(*arguments, *quick)
    assert result.exit_code == 0, result.stderr
    assert out.is_dir()


def test_says_when_there_is_not_enough(data: Path) -> None:
    result = run("inspect", str(data), "--context=200", "--horizon=48")
    assert result.exit_code == 0
    assert "windows    not enough: " in result.stdout
    assert "start with" not in result.stdout


def test_says_how_many_series_there_are(data: Path) -> None:
    days = [
        f"{name},{time},{i}"
        for i, time in enumerate(HOURS)
        for name in "ab"
        if i < 99 or name < "b"
    ]
    days = [row for i, row in enumerate(days) if not 50 < i < 91]
    data.write_text("\n".join(["unique_id,ds,y", *days]))
    said = run("inspect", str(data), "--missing=interpolate").stdout
    assert "series     2 of 79 to 220 rows, cut at 2 holes" in said
    assert "names      column 'unique_id'" in said
    assert "note       2 holes longer than 12 steps" in said


@pytest.mark.parametrize("mess", MESSES.values(), ids=MESSES)
def test_a_mess_is_told_with_place_and_remedy(tmp_path: Path, mess: Mess) -> None:
    path = tmp_path / "mess.csv"
    path.write_text(mess.content)
    for name, arguments in (
        ("inspect", (str(path),)),
        ("train", (f"--data={path}", f"--out={tmp_path / 'model'}", *TRAIN)),
    ):
        result = run(name, *arguments)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.startswith(f"foretell {name}: {path}: ")
        assert mess.place in result.stderr
        assert mess.remedy in result.stderr
        assert [entry.name for entry in tmp_path.iterdir()] == ["mess.csv"]
        if mess.options:
            assert run("inspect", str(path), *mess.options).exit_code == 0


def test_what_an_option_was_given_is_said_once(data: Path) -> None:
    result = run("inspect", str(data), "--frequency=soon")
    assert result.exit_code == 2
    assert result.stderr.count("'soon'") == 1


def test_needs_no_torch(data: Path) -> None:
    code = (
        "import sys; from foretell.__main__ import cli\n"
        "cli(['inspect', sys.argv[1]], standalone_mode=False); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(data)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
