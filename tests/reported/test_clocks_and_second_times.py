"""Times of the day and other times are never names of series, and what is told works.

UCI's AirQuality (mr-kelsey/sp26-aai530-group1, sowmyasoundar2610/data-analytics), InfluxDB's
annotated CSV, and tables of a date beside a time.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell.data.panel import Panel
from foretell.data.reading import Reading, read
from tests.reported.following import flags, follow

HOURS = pd.date_range("2024-03-01", periods=96, freq="h")
VALUES = [round(20 + i % 24 + i / 7, 3) for i in range(len(HOURS))]


def written(folder: Path, header: str, *columns: object) -> Path:
    frame = pd.DataFrame(dict(enumerate(map(list, columns))))  # type: ignore[call-overload]
    path = folder / "data.csv"
    frame.to_csv(path, index=False, header=header.split(","))
    return path


def assert_hourly(panel: Panel, start: str = "2024-03-01") -> None:
    (table,) = panel.tables
    hours = np.datetime64(start) + np.arange(len(HOURS)) * np.timedelta64(1, "h")
    np.testing.assert_array_equal(table.timestamps, hours)
    assert table.values[:, table.channels.index("load")].tolist() == VALUES


CLOCKS: dict[str, Callable[[int], object]] = {
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
@pytest.mark.parametrize("name", CLOCKS | ENDS)
def test_a_clock_in_any_form_and_place_is_read(tmp_path: Path, name: str, header: str) -> None:
    clock = [(CLOCKS | ENDS)[name](hour) for hour in HOURS.hour]
    known = {"date": HOURS.date, "place": ["S1"] * 96, "load": VALUES, "time": clock, "hour": clock}
    panel = read(written(tmp_path, header, *(known[name] for name in header.split(","))))
    assert_hourly(panel, "2024-03-01T01" if name in ENDS else "2024-03-01")


@pytest.mark.parametrize("name", CLOCKS | ENDS)
@pytest.mark.parametrize("series", [1, 2])
def test_the_remedy_that_is_told_reads_the_hours(tmp_path: Path, name: str, series: int) -> None:
    days = [day for day in HOURS.date for _ in range(series)]
    clock = [(CLOCKS | ENDS)[name](hour) for hour in HOURS.hour for _ in range(series)]
    values = [value for value in VALUES for _ in range(series)]
    path = written(tmp_path, "day,place,x,load", days, ["S1", "S2"][:series] * 96, clock, values)
    panel, options = follow(path, time_column="day")
    assert options["time_column"] == "day,x"
    assert (str(panel.frequency), list(panel.rows.values())) == ("h", [96] * series)


@pytest.mark.parametrize(("parts", "frequency"), [(48, "30min"), (96, "15min")])
def test_parts_of_a_day_are_counted(tmp_path: Path, parts: int, frequency: str) -> None:
    days = [f"2024-03-{1 + i // parts:02d}" for i in range(4 * parts)]
    counted = [i % parts + 1 for i in range(4 * parts)]
    for header in ("date,settlement_period,load", "date,x,load"):
        path = written(tmp_path, header, days, counted, [i / 4 for i in range(4 * parts)])
        panel, _ = follow(path)
        assert (str(panel.frequency), len(panel.tables)) == (frequency, 1)


def test_hours_and_minutes(tmp_path: Path) -> None:
    quarters = pd.date_range("2024-03-01", periods=96, freq="15min")
    path = written(
        tmp_path, "date,hour,minute,load", quarters.date, quarters.hour, quarters.minute, VALUES
    )
    assert str(read(path).frequency) == "15min"


def test_a_date_called_hour_is_no_clock(tmp_path: Path) -> None:
    days = [f"2024-03-{1 + i // 3:02d}" for i in range(30)]
    path = written(tmp_path, "hour,unique_id,load", days, ["a", "b", "c"] * 10, range(30))
    assert set(read(path).rows.values()) == {10}


SECOND: dict[str, tuple[str, list[object]]] = {
    "date": ("date,datetime,load", [HOURS.date, HOURS]),
    "run": ("run_time,valid_time,load", [HOURS.floor("6h"), HOURS]),
    "loaded": ("loaded_at,ts_local,load", [["2024-04-01 05:00:00"] * 96, HOURS]),
    "epoch": ("date,timestamp,load", [HOURS.date, HOURS.as_unit("s").astype("int64")]),
    "month": ("month,when,load", [HOURS.strftime("%Y-%m"), HOURS]),
    "influx": ("_start,_stop,_time,load", [["2024-01-01"] * 96, ["2024-06-01"] * 96, HOURS]),
}


@pytest.mark.parametrize("name", SECOND)
def test_a_second_time_that_does_not_repeat_is_read(tmp_path: Path, name: str) -> None:
    header, columns = SECOND[name]
    path = written(tmp_path, header, *columns, VALUES)
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
    path = written(tmp_path, "shop,ds,updated_at,y", shops, days, updated, np.arange(60) / 4)
    panel, options = follow(path)
    assert options == {"id_column": "shop"}
    assert list(panel.rows.values()) == [20, 20, 20]


@pytest.mark.parametrize("header", ["ds,price,qty", "ds,y,z"])
def test_values_are_no_names(tmp_path: Path, header: str) -> None:
    noise = np.random.default_rng(0)
    days = [f"2024-{1 + i // 56:02d}-{1 + i // 2 % 28:02d}" for i in range(224)]
    prices = noise.integers(0, 9, 224) + 9 * (np.arange(224) % 2)
    path = written(tmp_path, header, days, prices, noise.integers(1, 40, 224))
    with pytest.raises(ValueError, match="no one or two columns tell their series apart") as raised:
        read(path)
    assert flags(str(raised.value)).get("id_column", "takes") == "takes"


def test_the_only_channel_is_no_name(tmp_path: Path) -> None:
    days = [f"2024-01-{1 + i // 4:02d}" for i in range(100)]
    path = written(tmp_path, "ds,shop,y", days, ["A", "B"] * 50, [i % 4 for i in range(100)])
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
    path = written(tmp_path, "ds,shop,item,y", days, shops, items, np.arange(120) / 4)
    panel, options = follow(path)
    assert options == {"id_column": "shop,item"}
    assert len(panel.series) == 6


def test_joined_names_with_the_mark_in_them_are_two_series(tmp_path: Path) -> None:
    """OasisLMF/OasisLMF#307, autogluon/autogluon#4522: names as they are."""
    days = [f"2024-01-{1 + i // 2:02d}" for i in range(40)]
    path = written(tmp_path, "ds,p,q,y", days, ["a/b", "a"] * 20, ["c", "b/c"] * 20, range(40))
    panel = read(path, Reading(id_column=("p", "q")))
    assert list(panel.rows.items()) == [(r"a\/b/c", 20), (r"a/b\/c", 20)]
