"""Dates and columns that look like something else."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell.data.panel import Panel
from foretell.data.reading import Reading, read, read_frame


def table_of(folder: Path, text: str, **reading: object) -> Panel:
    path = folder / "data.csv"
    path.write_text(text)
    return read(path, Reading(**reading))


def times_of(panel: Panel) -> list[str]:
    (table,) = panel.tables
    return pd.DatetimeIndex(table.timestamps).strftime("%Y-%m-%dT%H:%M").tolist()


DAYS = pd.date_range("2024-01-01", periods=60)


@pytest.mark.parametrize("form", ["%d %b %y", "%d %B %y"])
def test_a_year_of_two_digits_is_no_midnight(tmp_path: Path, form: str) -> None:
    lines = [f"{day.strftime(form)},{row}" for row, day in enumerate(DAYS)]
    text = "\n".join(["date,y", *lines])
    for given in (None, form):
        found = times_of(table_of(tmp_path, text, date_format=given))
        assert found == DAYS.strftime("%Y-%m-%dT%H:%M").tolist()


def test_years_of_two_digits_in_a_column(tmp_path: Path) -> None:
    lines = [f"{day:%y,%m,%d},{row}" for row, day in enumerate(DAYS)]
    found = times_of(table_of(tmp_path, "\n".join(["Year,Month,Day,y", *lines])))
    assert found == DAYS.strftime("%Y-%m-%dT%H:%M").tolist()


def test_dates_of_digits_that_begin_with_zero(tmp_path: Path) -> None:
    months = pd.date_range("2000-01-01", periods=9, freq="MS")
    lines = [f"{month:%d%m%Y},{row}" for row, month in enumerate(months)]
    found = times_of(table_of(tmp_path, "\n".join(["date,y", *lines]), date_format="%d%m%Y"))
    assert found == months.strftime("%Y-%m-%dT%H:%M").tolist()


def test_an_ordinal_before_a_comma(tmp_path: Path) -> None:
    lines = [
        f'"{day:%B} {day.day}{"st" if day.day in (1, 21, 31) else "th"}, {day:%Y}",{row}'
        for row, day in enumerate(DAYS)
        if day.day not in (2, 3, 22, 23)
    ]
    found = times_of(table_of(tmp_path, "\n".join(["date,y", *lines]), missing="interpolate"))
    assert found[0] == "2024-01-01T00:00"
    assert len(found) == len(DAYS)


def test_opening_hours_keep_their_clock(tmp_path: Path) -> None:
    hours = pd.date_range("2024-03-25T06:00", "2024-04-07T22:00", freq="h")
    hours = hours[(hours.hour >= 6) & (hours.hour <= 22)]
    lines = [f"{hour:%Y-%m-%d},{hour.hour},{row}" for row, hour in enumerate(hours)]
    panel = table_of(
        tmp_path,
        "\n".join(["date,hour,y", *lines]),
        time_zone="Europe/Berlin",
        missing="ffill",
        max_gap=8,
    )
    (table,) = panel.tables
    known = {time: int(y) for time, y in zip(times_of(panel), table.values[:, 0], strict=True)}
    for row, hour in enumerate(hours):
        assert known[f"{hour:%Y-%m-%dT%H:%M}"] == row


@pytest.mark.parametrize("name", ["sunrise", "Moving Time", "peak_time"])
def test_another_time_of_the_day_is_not_that_of_the_rows(tmp_path: Path, name: str) -> None:
    lines = [
        f"{day:%Y-%m-%d},0{7 - row // 40}:{row * 7 % 60:02d},{row}" for row, day in enumerate(DAYS)
    ]
    found = times_of(table_of(tmp_path, "\n".join([f"date,{name},y", *lines])))
    assert found == DAYS.strftime("%Y-%m-%dT%H:%M").tolist()


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_an_index_made_of_a_column_of_texts(zone: str | None) -> None:
    frame = pd.DataFrame({"date": DAYS.strftime("%Y-%m-%d"), "y": np.arange(60.0)})
    frame.index = pd.DatetimeIndex(pd.to_datetime(frame["date"]), name="date").tz_localize(zone)
    (table,) = read_frame(frame).tables
    assert table.timestamps.tolist() == DAYS.to_numpy("M8[us]").tolist()
    assert table.values[:, 0].tolist() == list(range(60))
