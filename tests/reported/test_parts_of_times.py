"""Times in several columns, and columns beside a time.

Parts of a time are one time together, and neither names of series nor channels: NASA's POWER
(`YEAR,MO,DY`, `YEAR,DOY`), NOAA's buoys (`#YY MM DD hh mm`), the Bureau of Labor Statistics
(`year,period`), OMIE (hours called periods), INMET (`1300 UTC`), Binance's `close_time`.

Times of the day and other times are never names of series, and suggestions work: UCI's AirQuality
(mr-kelsey/sp26-aai530-group1, sowmyasoundar2610/data-analytics), InfluxDB's annotated CSV, and
tables of a date beside a time.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell.data.panel import Panel
from foretell.data.reading import Reading, read
from tests.reported.following import flags, follow, written

DAYS = pd.date_range("2023-12-01", periods=120)
HOURS = pd.date_range("2024-01-29", periods=120, freq="h")
QUARTERS = pd.date_range("2024-03-01", periods=120, freq="15min")
MONTHS = pd.date_range("2015-01-01", periods=120, freq="MS")
WEEKS = pd.date_range("2020-01-06", periods=120, freq="7D")
Y_QUARTERS = pd.date_range("1990-01-01", periods=120, freq="QS")
DATES = HOURS.strftime("%Y-%m-%d")
HOUR = pd.Timedelta(1, "h")


def assert_reads(panel: Panel, times: pd.DatetimeIndex) -> None:
    (table,) = panel.tables
    assert table.timestamps.tolist() == times.to_pydatetime().tolist()
    assert panel.channels == ("load",)
    assert table.values[:, 0].tolist() == (np.arange(len(times)) / 4).tolist()


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
    "date,hour,minute": (QUARTERS, [QUARTERS.date, QUARTERS.hour, QUARTERS.minute]),
    "date,Hour,Minute,Second": (
        QUARTERS,
        [QUARTERS.strftime("%Y-%m-%d"), QUARTERS.hour, QUARTERS.minute, QUARTERS.second],
    ),
    "year,month,day,time": (
        HOURS,
        [HOURS.year, HOURS.month, HOURS.day, HOURS.strftime("%H:%M")],
    ),
    # Periods number the hours of a day by their ends.
    "year,month,day,period": (
        HOURS + HOUR,
        [HOURS.year, HOURS.month, HOURS.day, HOURS.hour + 1],
    ),
    "date,period": (HOURS + HOUR, [DATES, HOURS.hour + 1]),
    "period,date": (HOURS + HOUR, [HOURS.hour + 1, DATES]),
}  # fmt: skip


@pytest.mark.parametrize("header", PARTS)
def test_parts_are_one_time(tmp_path: Path, header: str) -> None:
    times, columns = PARTS[header]
    path = written(tmp_path, header, *columns)
    assert_reads(read(path), times)
    names = header.removeprefix("#").split(",")
    if len(names) == 2 or "period" in names:
        return
    # If only some columns are named, the message suggests the others.
    for given in (1, 2):
        panel, options = follow(path, time_column=",".join(names[:given]))
        assert_reads(panel, times)
        assert options == {"time_column": ",".join(names)}


@pytest.mark.parametrize("name", ["period", "week", "epoch"])
def test_counters_are_not_dates(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, f"{name},when", range(1, 121), DAYS)
    assert read(path).tables[0].timestamps.tolist() == DAYS.to_pydatetime().tolist()
    with pytest.raises(ValueError, match=r"frame\.insert\(0, 'ds'"):
        read(written(tmp_path, name, range(1, 121)))


def test_noon_and_letters(tmp_path: Path) -> None:
    halves = [f"{(hour - 1) % 12 + 1}:00{'ap'[hour > 11]}" for hour in HOURS.hour]
    assert_reads(read(written(tmp_path, "date,time", DATES, halves)), HOURS)
    words = {0: "Midnight", 12: "Noon"}
    clock = [words.get(hour, f"{hour}:00") for hour in HOURS.hour]
    assert_reads(read(written(tmp_path, "date,time", DATES, clock)), HOURS)


def test_numbers_of_hours_minutes_and_seconds(tmp_path: Path) -> None:
    times = QUARTERS + pd.Timedelta(30, "s")
    clock = times.hour * 10_000 + times.minute * 100 + times.second
    dates = times.strftime("%Y-%m-%d")
    assert_reads(read(written(tmp_path, "date,time", dates, clock)), times)


def test_unknown_clock_is_not_a_series_name(tmp_path: Path) -> None:
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
def test_second_column_of_times_is_not_a_channel(tmp_path: Path, name: str) -> None:
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
def test_numbers_that_differ_from_the_times_are_channels(
    tmp_path: Path, name: str, values: range
) -> None:
    assert read(written(tmp_path, f"timestamp,{name}", HOURS, values)).channels == (name, "load")


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
    "Uhr": "{:02d}:00 Uhr".format,
    "hours": "{} Uhr".format,
    "hrs": "{:02d} hrs".format,
    "o'clock": "{} o'clock".format,
    "UTC": "{:02d}00 UTC".format,
    "Chinese": "{}\u65f6".format,
}
ENDS: dict[str, Callable[[int], object]] = {
    "HE01": lambda hour: f"HE{hour + 1:02d}",
    "H1": lambda hour: f"H{hour + 1}",
    "1 to 24": lambda hour: hour + 1,
    "01:00 to 24:00": lambda hour: f"{hour + 1:02d}:00",
}


@pytest.mark.parametrize("name", FORMS | ENDS)
def test_a_clock_in_any_form_and_place_is_read(tmp_path: Path, name: str) -> None:
    clock = [(FORMS | ENDS)[name](hour) for hour in HOURS.hour]
    times, place = HOURS + HOUR if name in ENDS else HOURS, ["S1"] * 120
    for header, columns in (
        ("date,time", [DATES, clock]),
        ("date,place,time", [DATES, place, clock]),
        ("hour,date", [clock, DATES]),
    ):
        assert_reads(read(written(tmp_path, header, *columns)), times)
    for column in ("x", "Zeit"):
        path = written(tmp_path, f"day,place,{column}", DATES, place, clock)
        panel, options = follow(path, time_column="day")
        assert options == {"time_column": f"day,{column}"}
        assert_reads(panel, times)
    twice = [[value for value in values for _ in "ab"] for values in (DATES, clock)]
    path = written(tmp_path, "day,place,x", twice[0], ["S1", "S2"] * 120, twice[1])
    panel, options = follow(path, time_column="day")
    assert options["time_column"] == "day,x"
    assert (str(panel.frequency), list(panel.rows.values())) == ("h", [120, 120])


@pytest.mark.parametrize(("parts", "frequency"), [(48, "30min"), (96, "15min")])
@pytest.mark.parametrize("name", ["settlement_period", "x"])
def test_parts_of_a_day_are_counted(tmp_path: Path, parts: int, frequency: str, name: str) -> None:
    days = [f"2024-03-{1 + i // parts:02d}" for i in range(4 * parts)]
    counted = [i % parts + 1 for i in range(4 * parts)]
    panel, _ = follow(written(tmp_path, f"date,{name}", days, counted))
    assert (str(panel.frequency), len(panel.tables)) == (frequency, 1)


def test_date_column_named_hour_is_not_a_time_of_day(tmp_path: Path) -> None:
    days = [f"2024-03-{1 + i // 3:02d}" for i in range(30)]
    path = written(tmp_path, "hour,unique_id", days, ["a", "b", "c"] * 10)
    assert set(read(path).rows.values()) == {10}


SECOND_TIMES: dict[str, list[object]] = {
    "date,datetime": [DATES, HOURS],
    "run_time,valid_time": [HOURS.floor("6h"), HOURS],
    "loaded_at,ts_local": [["2024-04-01 05:00:00"] * 120, HOURS],
    "date,timestamp": [DATES, HOURS.as_unit("s").astype("int64")],
    "month,when": [HOURS.strftime("%Y-%m"), HOURS],
    "_start,_stop,_time": [["2024-01-01"] * 120, ["2024-06-01"] * 120, HOURS],
}


@pytest.mark.parametrize("header", SECOND_TIMES)
def test_a_second_time_that_does_not_repeat_is_read(tmp_path: Path, header: str) -> None:
    path = written(tmp_path, header, *SECOND_TIMES[header])
    panel = read(path)
    assert_reads(panel, HOURS)
    assert "repeats its times; those of" in panel.notes[0]
    names = header.split(",")
    followed, options = follow(path, time_column=names[0])
    assert_reads(followed, HOURS)
    assert options["time_column"] == names[-1]


TWICE = [f"2024-01-{1 + i // 2:02d}" for i in range(40)]
NAMES: dict[str, tuple[list[object], str, list[int]]] = {
    "site,YEAR,MO": (
        [["a", "b"] * 120, MONTHS.repeat(2).year, MONTHS.repeat(2).month],
        *("site", [120, 120]),
    ),
    # A second time does not name series, nor do two columns together.
    "shop,ds,updated_at": (
        [
            ["A", "B", "C"] * 20,
            [f"2024-03-{1 + i // 3:02d}" for i in range(60)],
            pd.date_range("2024-04-01", periods=60, freq="7s"),
        ],
        *("shop", [20, 20, 20]),
    ),
    "ds,shop,item": (
        [
            [f"2024-01-{1 + i // 6:02d}" for i in range(120)],
            [i % 2 + 1 for i in range(120)],
            [i % 3 + 1 for i in range(120)],
        ],
        *("shop,item", [20] * 6),
    ),
    # Suggested names are quoted for a shell.
    "ds,Country Name": ([TWICE, ["A", "B"] * 20], "Country Name", [20, 20]),
    'ds,"Country, Name"': ([TWICE, ["A", "B"] * 20], '"Country, Name"', [20, 20]),
    "ds,it's": ([TWICE, ["A", "B"] * 20], "it's", [20, 20]),
}


@pytest.mark.parametrize("header", NAMES)
def test_message_suggests_the_columns_of_series_names(tmp_path: Path, header: str) -> None:
    columns, suggested, rows = NAMES[header]
    panel, options = follow(written(tmp_path, header, *columns))
    assert options == {"id_column": suggested}
    assert list(panel.rows.values()) == rows


@pytest.mark.parametrize("header", ["ds,price", "ds,y", "ds,shop"])
def test_values_are_not_series_names(tmp_path: Path, header: str) -> None:
    noise = np.random.default_rng(0)
    days = [f"2024-{1 + i // 56:02d}-{1 + i // 2 % 28:02d}" for i in range(224)]
    values: list[object] = [*noise.integers(0, 9, 224) + 9 * (np.arange(224) % 2)]
    load = [*noise.integers(1, 40, 224)]
    if header == "ds,shop":
        # A column that is the only channel is not suggested as the name of series.
        days = [f"2024-01-{1 + i // 4:02d}" for i in range(100)]
        values, load = ["A", "B"] * 50, [i % 4 for i in range(100)]
    path = written(tmp_path, header, days, values, load=load)
    with pytest.raises(ValueError, match="no one or two columns") as raised:
        read(path)
    assert flags(str(raised.value)).get("id_column", "takes") == "takes"


def test_joined_names_with_the_mark_in_them_are_two_series(tmp_path: Path) -> None:
    """OasisLMF/OasisLMF#307, autogluon/autogluon#4522: names as they are."""
    path = written(tmp_path, "ds,p,q", TWICE, ["a/b", "a"] * 20, ["c", "b/c"] * 20)
    panel = read(path, Reading(id_column=("p", "q")))
    assert list(panel.rows.items()) == [(r"a\/b/c", 20), (r"a/b\/c", 20)]
