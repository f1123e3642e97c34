"""`foretell actuals` and `foretell accuracy`, with a real server and its ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import numpy as np
import pandas as pd
import pytest

from foretell import Client
from foretell.client import Counts, InvalidInputError, Notes, SeriesError, Written
from foretell.client.ledger import By
from foretell.commands.accuracy import command as accuracy
from tests.support import command
from tests.support.bundles import Spec, write_bundle
from tests.support.command import cells
from tests.support.process import Server
from tests.support.waiting import until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of `pair`, a model of two channels, and others of one; each test has own series."""
    folder = tmp_path_factory.mktemp("actuals")
    write_bundle(folder / "models", Spec(name="one", calibrated=3))
    write_bundle(folder / "models", Spec(name="pair", channels=("load", "wind")))
    write_bundle(folder / "models", Spec(name="daily", frequency="D"))
    ledger = f"sqlite:///{folder / 'ledger.db'}"
    with Server(folder / "models", folder / "log", ledger=ledger) as server:
        yield server


def write(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


def send(server: Server, file: Path, model: str, *words: str) -> str:
    return command.done("actuals", file, f"--url={server.url}", f"--model={model}", *words).output


def refused(server: Server, file: Path, model: str, *words: str) -> str:
    return command.refused("actuals", file, f"--url={server.url}", f"--model={model}", *words)


def known(server: Server, model: str, series: str) -> pd.DataFrame:
    """The actual values of a series in the ledger, of a forecast's times."""
    with Client(server.url) as client:
        return client.trajectories(model, series).actuals


def forecast(server: Server, model: str, frame: pd.DataFrame) -> None:
    with Client(server.url) as client:
        client.forecast(frame, model=model)


def hours(name: str, rows: int, *channels: str, zone: str | None = None) -> pd.DataFrame:
    times = pd.date_range("2024-03-01", periods=rows, freq="h", tz=zone)
    values = {channel: np.arange(rows, dtype=float) for channel in channels}
    return pd.DataFrame({"unique_id": name, "ds": times, **values})


def test_one_series_has_the_name_of_the_file_or_the_given_one(
    server: Server, tmp_path: Path
) -> None:
    file = write(tmp_path / "week.csv", "time,load", "2024-03-01T00:00,1", "2024-03-01T01:00,2")
    assert send(server, file, "one") == "week: 2 new, 0 changed and 0 same values\n"
    write(file, "time,load", "2024-03-01T01:00,3", "2024-03-01T00:00,1")
    assert "week: 0 new, 1 changed and 1 same values" in send(server, file, "one@1")
    assert send(server, file, "one", "--series=other").endswith(
        "other: 2 new, 0 changed and 0 same values\n"
    )


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_every_series_of_a_file_is_counted(server: Server, tmp_path: Path, suffix: str) -> None:
    rows = [hours(f"{suffix}-{name}", 3, "load") for name in "ab"]
    frame = pd.concat(rows, ignore_index=True).rename(columns={"unique_id": "shop", "ds": "at"})
    file = tmp_path / f"shops.{suffix}"
    if suffix == "csv":
        frame.to_csv(file, index=False)
    elif suffix == "parquet":
        frame.to_parquet(file, index=False)
    else:
        frame.to_feather(file)
    output = send(server, file, "one", "--id-column=shop", "--time-column=at")
    assert cells(output) == [[f"{suffix}-{name}", "3", "0", "0"] for name in "ab"]
    assert output.endswith("2 series: 6 new, 0 changed and 0 same values\n")
    message = refused(server, file, "one", "--id-column=shop", "--series=a")
    assert "its series have names; leave --series out" in message


def test_series_may_have_one_row_each(server: Server, tmp_path: Path) -> None:
    rows = ["at,2024-03-01T00:00,1", "once,2024-03-01T01:00,1"]
    file = write(tmp_path / "last.csv", "unique_id,ds,load", *rows)
    output = send(server, file, "one")
    assert [name for name, *_ in cells(output)] == ["at", "once"]


def test_missing_rows_and_values_stay_unknown(server: Server, tmp_path: Path) -> None:
    forecast(server, "pair", hours("gaps", 8, "load", "wind"))
    days = pd.date_range("2024-03-01", periods=60, freq="h")
    frame = pd.DataFrame({"unique_id": "gaps", "ds": days, "load": 1.0, "wind": 2.0})
    # The hour 9 has no row, 10 no load, 30 to 49 no rows: no more than the rest is written.
    frame.loc[10, "load"] = np.nan
    frame = frame.drop(index=[9, *range(30, 50)])
    file = tmp_path / "gaps.csv"
    frame.to_csv(file, index=False)
    assert send(server, file, "pair") == "gaps: 77 new, 0 changed and 0 same values\n"
    found = known(server, "pair", "gaps")
    hour = found["time"].dt.hour.where(found["time"] >= pd.Timestamp("2024-03-01 08:00"))
    assert hour[found["load"].notna()].dropna().tolist() == [8, 11]
    assert hour[found["wind"].notna()].dropna().tolist() == [8, 10, 11]


def test_columns_are_chosen_and_absent_ones_noted(server: Server, tmp_path: Path) -> None:
    file = write(tmp_path / "columns.csv", "time,wind,note", "2024-03-01T00:00,1,x")
    assert send(server, file, "pair").splitlines() == [
        "note: no column of load",
        "columns: 1 new, 0 changed and 0 same values",
    ]
    file = write(tmp_path / "chosen.csv", "time,wind,load", "2024-03-01T00:00,1,2")
    assert send(server, file, "pair", "--channels=load").startswith("chosen: 1 new")
    message = refused(server, file, "pair", "--channels=laod")
    assert "pair does not forecast channel 'laod'; did you mean 'load'?" in message


def test_local_times_are_sent_in_utc(server: Server, tmp_path: Path) -> None:
    forecast(server, "one", hours("local", 8, "load", zone="Europe/Berlin"))
    file = write(tmp_path / "local.csv", "time,load", "2024-03-01T08:00,8")
    send(server, file, "one", "--time-zone=Europe/Berlin")
    found = known(server, "one", "local").dropna()
    assert [str(time) for time in found["time"]] == ["2024-03-01 07:00:00"]


def test_days_of_a_clock_that_changes_are_written(server: Server, tmp_path: Path) -> None:
    # The offset changes on 31 March 2024.
    rows = [f"2024-03-{day}T00:00:00+01:00,1" for day in (30, 31)]
    rows += [f"2024-04-0{day}T00:00:00+02:00,1" for day in (1, 2)]
    file = write(tmp_path / "days.csv", "time,load", *rows)
    assert send(server, file, "daily") == "days: 4 new, 0 changed and 0 same values\n"
    assert "4 same" in send(server, file, "daily")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["time,power", "2024-03-01T00:00,1"], "expected a column of at least one of load"),
        (["time,load", "2024-03-01T00:00,"], "no value of load"),
        (["time,load", "2024-03-01T00:00,1", "2024-03-01T00:30,1"], "line 3"),
        (
            ["time,load", "2024-03-01T00:00,1", "2024-03-01T01:00,oops", "2024-03-01T02:00,2"],
            "correct it, or leave the cell empty\n",
        ),
    ],
)
def test_file_without_a_value_to_write_is_refused(
    server: Server, tmp_path: Path, rows: list[str], message: str
) -> None:
    found = refused(server, write(tmp_path / "wrong.csv", *rows), "one")
    assert found.startswith("foretell actuals: ")
    assert message in found


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A file of two series, with a row each."""
    rows = ["a,2024-03-01T00:00,1", "b,2024-03-01T01:00,1"]
    return write(tmp_path / "shops.csv", "unique_id,ds,load", *rows)


def test_series_that_the_server_refuses_is_named(
    server: Server, two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = {"unique_id": "b", "type": "invalid_input", "message": "too early", "param": "ds[1]"}
    notes = Notes(model="one", model_version="1", errors=[SeriesError.model_validate(error)])
    written = Written({"a": Counts(new=1, changed=0, same=0)}, notes)
    monkeypatch.setattr(Client, "actuals", lambda *_, **__: written)
    result = command.run("actuals", two, f"--url={server.url}", "--model=one")
    assert result.exit_code == 1
    assert result.stderr == "warning: nothing of series b: 2024-03-01T01:00:00: too early\n"
    assert result.stdout == "a: 1 new, 0 changed and 0 same values\n"


def test_refused_value_is_named_by_column_and_time(
    server: Server, two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise InvalidInputError("too large", place="load[1]")

    monkeypatch.setattr(Client, "actuals", refuse)
    assert refused(server, two, "one") == (
        "foretell actuals: load, 2024-03-01T01:00:00: too large\n"
    )


def test_server_without_a_ledger_is_named(tmp_path: Path, server: Server) -> None:
    write_bundle(tmp_path / "models", Spec(name="one"))
    file = write(tmp_path / "week.csv", "time,load", "2024-03-01T00:00,1")
    with Server(tmp_path / "models", tmp_path / "log") as other:
        assert "FORETELL_LEDGER" in refused(other, file, "one")
        message = command.refused("accuracy", "one", f"--url={other.url}")
    assert "FORETELL_LEDGER" in message


def scores(server: Server, *words: str) -> list[list[str]]:
    return cells(command.done("accuracy", "one", f"--url={server.url}", *words).stdout)


def test_scores_are_printed_by_group(server: Server, tmp_path: Path) -> None:
    history = hours("scored", 8, "load").assign(load=[0.0, 2.0] * 4)
    with Client(server.url) as client:
        client.forecast(history, model="one", quantiles=[0.1, 0.9])
    file = write(
        tmp_path / "scored.csv",
        "time,load",
        *(f"2024-03-01T{hour:02}:00,{hour - 7}" for hour in range(8, 12)),
    )
    send(server, file, "one")
    one = "--series=scored"
    until(lambda: not command.run("accuracy", "one", one, f"--url={server.url}").exit_code)
    [total] = scores(server, one)
    # The forecast is 2 and the values are 1 to 4.
    assert total[:5] == ["1", "4", "1", "1.225", "-0.5"]
    assert [row[:6] for row in scores(server, one, "--by=step")] == [
        ["1", "1", "1", "1", "1", "1"],
        ["1", "2", "1", "0", "0", "0"],
        ["1", "3", "1", "1", "1", "-1"],
        ["1", "4", "1", "2", "2", "-2"],
    ]
    days = scores(server, one, "--by=day", "--since=2024-03-01", "--until=2024-03-01")
    assert [row[:3] for row in days] == [["1", "2024-03-01", "4"]]
    assert [row[1] for row in scores(server, one, "--by=channel", "--version=1")] == ["load"]
    output = command.done("accuracy", "one", "--by=series", "--limit=1", f"--url={server.url}")
    assert "within 0.8" in output.stdout
    assert len(cells(output.stdout)) == 1
    assert "no scores of one" in command.refused(
        "accuracy", "one", "--since=2030-01-01", f"--url={server.url}"
    )
    assert "since" in command.refused("accuracy", "one", "--since=soon", f"--url={server.url}")


def test_scores_have_all_groups_of_the_client() -> None:
    [by] = [each.type for each in accuracy.params if each.name == "by"]
    assert isinstance(by, click.Choice)
    assert tuple(by.choices) == get_args(By)
