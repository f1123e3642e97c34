"""Times in several columns, and columns beside a time.

Parts of a time are one time together, and neither names of series nor channels.

NASA's POWER (`YEAR,MO,DY`, `YEAR,DOY`), NOAA's buoys (`#YY MM DD hh mm`), the Bureau of Labor
Statistics (`year,period`), OMIE (hours called periods), INMET (`1300 UTC`), Binance's `close_time`.

Times of the day and other times are never names of series, and what is told works.

UCI's AirQuality (mr-kelsey/sp26-aai530-group1, sowmyasoundar2610/data-analytics), InfluxDB's
annotated CSV, and tables of a date beside a time.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretell.data.panel import Panel
from foretell.data.reading import Reading, read
from tests.reported.following import flags, follow

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


MARCH = pd.date_range("2024-03-01", periods=96, freq="h")
VALUES = [round(20 + i % 24 + i / 7, 3) for i in range(len(MARCH))]


def frame_of(folder: Path, header: str, *columns: object) -> Path:
    frame = pd.DataFrame(dict(enumerate(map(list, columns))))  # type: ignore[call-overload]
    path = folder / "data.csv"
    frame.to_csv(path, index=False, header=header.split(","))
    return path


def assert_hourly(panel: Panel, start: str = "2024-03-01") -> None:
    (table,) = panel.tables
    hours = np.datetime64(start) + np.arange(len(MARCH)) * np.timedelta64(1, "h")
    np.testing.assert_array_equal(table.timestamps, hours)
    assert table.values[:, table.channels.index("load")].tolist() == VALUES


FORMS: dict[str, Callable[[int], object]] = {
    "13:00": "{:02d}:00".format,
    "13:00:00": "{:02d}:00:00".format,
    "T13:00": "T{:02d}:00".format,
    "18.00.00": "{:02d}.00.00".format,
    "00h15": "{:02d}h00".format,
    "13h": "{}h".format,
    "1800": "{:02d}00".format,
    "180000": "{:02d}0000".format,
    "1 PM": lambda hour: f"{hour % 12 or 12} {'PM' if hour > 11 else 'AM'}",
    "1:00 p.m.": lambda hour: f"{hour % 12 or 12}:00 {'p.m.' if hour > 11 else 'a.m.'}",
    "0 to 23": lambda hour: hour,
    "00:00 - 01:00": lambda hour: f"{hour:02d}:00 - {hour + 1:02d}:00",
    "00:00-01:00": lambda hour: f"{hour:02d}:00-{(hour + 1) % 24:02d}:00",
    "00-01": lambda hour: f"{hour:02d}-{hour + 1:02d}",
    "13:00 CET": "{:02d}:00 CET".format,
}
ENDS: dict[str, Callable[[int], object]] = {
    "HE01": lambda hour: f"HE{hour + 1:02d}",
    "H1": lambda hour: f"H{hour + 1}",
    "1 to 24": lambda hour: hour + 1,
    "01:00 to 24:00": lambda hour: f"{hour + 1:02d}:00",
}


@pytest.mark.parametrize("header", ["date,time,load", "date,place,time,load", "hour,date,load"])
@pytest.mark.parametrize("name", FORMS | ENDS)
def test_a_clock_in_any_form_and_place_is_read(tmp_path: Path, name: str, header: str) -> None:
    clock = [(FORMS | ENDS)[name](hour) for hour in MARCH.hour]
    known = {"date": MARCH.date, "place": ["S1"] * 96, "load": VALUES, "time": clock, "hour": clock}
    panel = read(frame_of(tmp_path, header, *(known[name] for name in header.split(","))))
    assert_hourly(panel, "2024-03-01T01" if name in ENDS else "2024-03-01")


@pytest.mark.parametrize("name", FORMS | ENDS)
@pytest.mark.parametrize("series", [1, 2])
def test_the_remedy_that_is_told_reads_the_hours(tmp_path: Path, name: str, series: int) -> None:
    days = [day for day in MARCH.date for _ in range(series)]
    clock = [(FORMS | ENDS)[name](hour) for hour in MARCH.hour for _ in range(series)]
    values = [value for value in VALUES for _ in range(series)]
    path = frame_of(tmp_path, "day,place,x,load", days, ["S1", "S2"][:series] * 96, clock, values)
    panel, options = follow(path, time_column="day")
    assert options["time_column"] == "day,x"
    assert (str(panel.frequency), list(panel.rows.values())) == ("h", [96] * series)


@pytest.mark.parametrize(("parts", "frequency"), [(48, "30min"), (96, "15min")])
def test_parts_of_a_day_are_counted(tmp_path: Path, parts: int, frequency: str) -> None:
    days = [f"2024-03-{1 + i // parts:02d}" for i in range(4 * parts)]
    counted = [i % parts + 1 for i in range(4 * parts)]
    for header in ("date,settlement_period,load", "date,x,load"):
        path = frame_of(tmp_path, header, days, counted, [i / 4 for i in range(4 * parts)])
        panel, _ = follow(path)
        assert (str(panel.frequency), len(panel.tables)) == (frequency, 1)


def test_hours_and_minutes(tmp_path: Path) -> None:
    quarters = pd.date_range("2024-03-01", periods=96, freq="15min")
    path = frame_of(
        tmp_path, "date,hour,minute,load", quarters.date, quarters.hour, quarters.minute, VALUES
    )
    assert str(read(path).frequency) == "15min"


def test_a_date_called_hour_is_no_clock(tmp_path: Path) -> None:
    days = [f"2024-03-{1 + i // 3:02d}" for i in range(30)]
    path = frame_of(tmp_path, "hour,unique_id,load", days, ["a", "b", "c"] * 10, range(30))
    assert set(read(path).rows.values()) == {10}


SECOND_TIMES: dict[str, tuple[str, list[object]]] = {
    "date": ("date,datetime,load", [MARCH.date, MARCH]),
    "run": ("run_time,valid_time,load", [MARCH.floor("6h"), MARCH]),
    "loaded": ("loaded_at,ts_local,load", [["2024-04-01 05:00:00"] * 96, MARCH]),
    "epoch": ("date,timestamp,load", [MARCH.date, MARCH.as_unit("s").astype("int64")]),
    "month": ("month,when,load", [MARCH.strftime("%Y-%m"), MARCH]),
    "influx": ("_start,_stop,_time,load", [["2024-01-01"] * 96, ["2024-06-01"] * 96, MARCH]),
}


@pytest.mark.parametrize("name", SECOND_TIMES)
def test_a_second_time_that_does_not_repeat_is_read(tmp_path: Path, name: str) -> None:
    header, columns = SECOND_TIMES[name]
    path = frame_of(tmp_path, header, *columns, VALUES)
    panel = read(path)
    assert_hourly(panel)
    assert "repeats its times; those of" in panel.notes[0]
    followed, options = follow(path, time_column=header.split(",")[0])
    assert_hourly(followed)
    assert options["time_column"] == header.split(",")[-2]


def test_series_with_a_second_time_are_told_apart_by_their_names(tmp_path: Path) -> None:
    days = [f"2024-03-{1 + i // 3:02d}" for i in range(60)]
    updated = pd.date_range("2024-04-01", periods=60, freq="7s")
    shops = ["A", "B", "C"] * 20
    path = frame_of(tmp_path, "shop,ds,updated_at,y", shops, days, updated, np.arange(60) / 4)
    panel, options = follow(path)
    assert options == {"id_column": "shop"}
    assert list(panel.rows.values()) == [20, 20, 20]


@pytest.mark.parametrize("header", ["ds,price,qty", "ds,y,z"])
def test_values_are_no_names(tmp_path: Path, header: str) -> None:
    noise = np.random.default_rng(0)
    days = [f"2024-{1 + i // 56:02d}-{1 + i // 2 % 28:02d}" for i in range(224)]
    prices = noise.integers(0, 9, 224) + 9 * (np.arange(224) % 2)
    path = frame_of(tmp_path, header, days, prices, noise.integers(1, 40, 224))
    with pytest.raises(ValueError, match="no one or two columns tell their series apart") as raised:
        read(path)
    assert flags(str(raised.value)).get("id_column", "takes") == "takes"


def test_the_only_channel_is_no_name(tmp_path: Path) -> None:
    days = [f"2024-01-{1 + i // 4:02d}" for i in range(100)]
    path = frame_of(tmp_path, "ds,shop,y", days, ["A", "B"] * 50, [i % 4 for i in range(100)])
    with pytest.raises(ValueError, match="no one or two columns"):
        read(path)


@pytest.mark.parametrize("name", ["Country Name", "Country, Name", "it's"])
def test_names_of_columns_are_told_as_a_shell_takes_them(tmp_path: Path, name: str) -> None:
    days = [f"2024-01-{1 + i // 2:02d}" for i in range(40)]
    frame = pd.DataFrame({"ds": days, name: ["A", "B"] * 20, "y": range(40)})
    frame.to_csv(tmp_path / "data.csv", index=False)
    panel, _ = follow(tmp_path / "data.csv")
    assert list(panel.series) == ["A", "B"]


def test_numbers_that_are_names_are_told(tmp_path: Path) -> None:
    days = [f"2024-01-{1 + i // 6:02d}" for i in range(120)]
    shops, items = [i % 2 + 1 for i in range(120)], [i % 3 + 1 for i in range(120)]
    path = frame_of(tmp_path, "ds,shop,item,y", days, shops, items, np.arange(120) / 4)
    panel, options = follow(path)
    assert options == {"id_column": "shop,item"}
    assert len(panel.series) == 6


def test_joined_names_with_the_mark_in_them_are_two_series(tmp_path: Path) -> None:
    """OasisLMF/OasisLMF#307, autogluon/autogluon#4522: names as they are."""
    days = [f"2024-01-{1 + i // 2:02d}" for i in range(40)]
    path = frame_of(tmp_path, "ds,p,q,y", days, ["a/b", "a"] * 20, ["c", "b/c"] * 20, range(40))
    panel = read(path, Reading(id_column=("p", "q")))
    assert list(panel.rows.items()) == [(r"a\/b/c", 20), (r"a/b\/c", 20)]
