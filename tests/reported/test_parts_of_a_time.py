"""Parts of a time are one time together, and neither names of series nor channels.

NASA's POWER (`YEAR,MO,DY`, `YEAR,DOY`), NOAA's buoys (`#YY MM DD hh mm`), the Bureau of Labor
Statistics (`year,period`), OMIE (hours called periods), INMET (`1300 UTC`), Binance's `close_time`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretell.data.panel import Panel
from foretell.data.reading import Reading, read
from tests.reported.following import follow

DAYS = pd.date_range("2023-12-01", periods=120)
HOURS = pd.date_range("2024-01-29", periods=120, freq="h")
QUARTERS = pd.date_range("2024-03-01", periods=120, freq="15min")
MONTHS = pd.date_range("2015-01-01", periods=120, freq="MS")
WEEKS = pd.date_range("2020-01-06", periods=120, freq="7D")
Y_QUARTERS = pd.date_range("1990-01-01", periods=120, freq="QS")
DATES = HOURS.strftime("%Y-%m-%d")


def written(folder: Path, header: str, *columns: Any) -> Path:
    frame = pd.DataFrame({i: list(column) for i, column in enumerate(columns)})
    frame["load"] = np.arange(len(frame)) / 4
    path = folder / "data.csv"
    frame.to_csv(path, index=False, header=[*header.split(","), "load"])
    return path


def assert_reads(panel: Panel, times: pd.DatetimeIndex) -> None:
    (table,) = panel.tables
    assert table.timestamps.tolist() == times.to_pydatetime().tolist()
    assert (panel.channels, table.values[:, 0].tolist()) == (
        ("load",),
        (np.arange(len(times)) / 4).tolist(),
    )


SPANISH = ["ene", "feb", "mar", "abr", "may", "jun", "jul", "ago", "sep", "oct", "nov", "dic"]
ISO_YEARS = WEEKS.isocalendar()
PARTS: dict[str, tuple[pd.DatetimeIndex, list[object]]] = {
    "YEAR,MO,DY": (DAYS, [DAYS.year, DAYS.month, DAYS.day]),
    "YEAR,DOY": (DAYS, [DAYS.year, DAYS.day_of_year]),
    "year,day": (DAYS, [DAYS.year, DAYS.day_of_year]),
    "YEAR,MO,DY,HR": (HOURS, [HOURS.year, HOURS.month, HOURS.day, HOURS.hour]),
    "yyyy,mm,dd,hh": (HOURS, [HOURS.year, HOURS.month, HOURS.day, HOURS.hour]),
    "#YY,MM,DD,hh,mm": (
        QUARTERS,
        [QUARTERS.year, QUARTERS.month, QUARTERS.day, QUARTERS.hour, QUARTERS.minute],
    ),
    "Year,DOY,Hour,Min": (
        QUARTERS,
        [QUARTERS.year, QUARTERS.day_of_year, QUARTERS.hour, QUARTERS.minute],
    ),
    "Jahr,Monat,Tag,Stunde": (HOURS, [HOURS.year, HOURS.month, HOURS.day, HOURS.hour]),
    "Y,M,D": (DAYS, [DAYS.year, DAYS.month, DAYS.day]),
    "Year,Mo": (MONTHS, [MONTHS.year, MONTHS.month]),
    "yyyy,mm": (MONTHS, [MONTHS.year, MONTHS.month]),
    "Year,Month": (MONTHS, [MONTHS.year, MONTHS.strftime("%B")]),
    "a\u00f1o,mes": (MONTHS, [MONTHS.year, [SPANISH[month - 1] for month in MONTHS.month]]),
    "year,period": (MONTHS, [MONTHS.year, MONTHS.strftime("M%m")]),
    "Year,Period": (MONTHS, [MONTHS.year, MONTHS.month]),
    "Year,Qtr": (Y_QUARTERS, [Y_QUARTERS.year, Y_QUARTERS.quarter]),
    "year,quarter": (Y_QUARTERS, [Y_QUARTERS.year, [f"Q{each}" for each in Y_QUARTERS.quarter]]),
    "year,week": (WEEKS, [ISO_YEARS["year"], ISO_YEARS["week"]]),
    "Jahr,KW": (WEEKS, [ISO_YEARS["year"], [f"KW {week}" for week in ISO_YEARS["week"]]]),
    "date,hh,mm": (QUARTERS, [QUARTERS.strftime("%Y-%m-%d"), QUARTERS.hour, QUARTERS.minute]),
    "date,Hour,Minute,Second": (
        QUARTERS,
        [QUARTERS.strftime("%Y-%m-%d"), QUARTERS.hour, QUARTERS.minute, QUARTERS.second],
    ),
    "year,month,day,time": (
        HOURS,
        [HOURS.year, HOURS.month, HOURS.day, HOURS.strftime("%H:%M")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("header", PARTS)
def test_parts_are_one_time(tmp_path: Path, header: str) -> None:
    times, columns = PARTS[header]
    assert_reads(read(written(tmp_path, header, *columns)), times)


@pytest.mark.parametrize("header", [header for header in PARTS if header.count(",") > 1])
@pytest.mark.parametrize("given", [1, 2])
def test_other_parts_are_told(tmp_path: Path, header: str, given: int) -> None:
    times, columns = PARTS[header]
    names = header.removeprefix("#").split(",")
    told = ",".join(names[:given])
    panel, options = follow(written(tmp_path, header, *columns), time_column=told)
    assert_reads(panel, times)
    assert options == {"time_column": ",".join(names)}


def test_parts_beside_names_of_series(tmp_path: Path) -> None:
    twice = MONTHS.repeat(2)
    path = written(tmp_path, "site,YEAR,MO", ["a", "b"] * 120, twice.year, twice.month)
    panel, options = follow(path)
    assert options == {"id_column": "site"}
    assert (str(panel.frequency), list(panel.rows.values())) == ("MS", [120, 120])


@pytest.mark.parametrize("header", ["year,month,day,period", "date,period", "period,date"])
def test_periods_of_a_day_are_its_hours(tmp_path: Path, header: str) -> None:
    known = {
        "year": HOURS.year,
        "month": HOURS.month,
        "day": HOURS.day,
        "date": DATES,
        "period": HOURS.hour + 1,
    }
    panel = read(written(tmp_path, header, *(known[name] for name in header.split(","))))
    assert_reads(panel, HOURS + pd.Timedelta(1, "h"))


@pytest.mark.parametrize("name", ["period", "week", "epoch"])
def test_numbers_that_count_are_no_dates(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, f"{name},when", range(1, 121), DAYS)
    assert read(path).tables[0].timestamps.tolist() == DAYS.to_pydatetime().tolist()
    with pytest.raises(ValueError, match=r"frame\.insert\(0, 'ds'"):
        read(written(tmp_path, name, range(1, 121)))


CLOCKS = {
    "Uhr": "{:%H:%M} Uhr",
    "hours": "{0.hour} Uhr",
    "hrs": "{:%H} hrs",
    "o'clock": "{0.hour} o'clock",
    "UTC": "{:%H%M} UTC",
    "Chinese": "{0.hour}\u65f6",
}


@pytest.mark.parametrize("form", CLOCKS)
@pytest.mark.parametrize("name", ["Zeit", "x"])
def test_hours_in_words(tmp_path: Path, form: str, name: str) -> None:
    clock = [CLOCKS[form].format(hour) for hour in HOURS]
    path = written(tmp_path, f"day,place,{name}", DATES, ["S"] * 120, clock)
    panel, options = follow(path, time_column="day")
    assert_reads(panel, HOURS)
    assert options == {"time_column": f"day,{name}"}


def test_noon_and_letters(tmp_path: Path) -> None:
    halves = [f"{(hour - 1) % 12 + 1}:00{'ap'[hour > 11]}" for hour in HOURS.hour]
    assert_reads(read(written(tmp_path, "date,time", DATES, halves)), HOURS)
    words = {0: "Midnight", 12: "Noon"}
    clock = [words.get(hour, f"{hour}:00") for hour in HOURS.hour]
    assert_reads(read(written(tmp_path, "date,time", DATES, clock)), HOURS)


def test_a_clock_that_is_not_known_is_no_name(tmp_path: Path) -> None:
    clock = [f"{hour} bells" for hour in HOURS.hour]
    with pytest.raises(ValueError, match="'hour' may hold times of the day: write them as 13:00"):
        read(written(tmp_path, "date,hour", DATES, clock))


SECOND = {
    "time_ms": HOURS.as_unit("ms").astype("int64"),
    "close_time": HOURS.as_unit("ms").astype("int64") + 3_599_999,
    "dt": HOURS.as_unit("s").astype("int64"),
    "x": HOURS.as_unit("us").astype("int64") + 7_200_000_000,
    "datekey": HOURS.strftime("%Y%m%d").astype(int),
    "decimal date": 2024 + (HOURS.day_of_year + HOURS.hour / 24) / 366,
    "Jahr": HOURS.year,
    "Stunde": HOURS.hour,
    "week": HOURS.isocalendar().week,
}


@pytest.mark.parametrize("name", SECOND)
def test_a_second_column_of_the_time_is_no_channel(tmp_path: Path, name: str) -> None:
    panel = read(written(tmp_path, f"timestamp,{name}", HOURS, SECOND[name]))
    assert_reads(panel, HOURS)
    assert f"left out: {name}" in panel.notes[0]
    panel = read(tmp_path / "data.csv", Reading(channels=(name, "load")))
    assert panel.channels == (name, "load")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("min", range(120)),
        ("m", [i % 12 + 1 for i in range(120)]),
        ("dt", range(1_700_000_000, 1_700_012_000, 100)),
        ("volume", range(20_240_000, 20_240_120)),
    ],
)
def test_numbers_that_are_no_times_of_their_rows_are_channels(
    tmp_path: Path, name: str, values: range
) -> None:
    assert read(written(tmp_path, f"timestamp,{name}", HOURS, values)).channels == (name, "load")
