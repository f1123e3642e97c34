from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell.data.panel import Panel
from foretell.data.reading import Reading, read
from tests.reported.following import follow

PERIODS = [("2024-10-20", "2024-11-06"), ("2024-03-05", "2024-04-03"), ("2024-03-05", "2024-11-06")]


def counted(folder: Path, times: pd.DatetimeIndex, first: int, form: str = "{}") -> Path:
    """A date, and how many parts of its day there were before."""
    days = times.strftime("%Y-%m-%d")
    counts = pd.Series(0, days).groupby(level=0).cumcount() + first
    path = folder / "data.csv"
    table = {"date": days, "hour": [form.format(each) for each in counts], "y": range(len(times))}
    pd.DataFrame(table).to_csv(path, index=False)
    return path


def by_parts(folder: Path, times: pd.DatetimeIndex, first: int) -> Path:
    path = counted(folder, times, first)
    table = pd.read_csv(path)
    parts = {"year": times.year, "month": times.month, "day": times.day}
    pd.DataFrame({**parts, **table[["hour", "y"]]}).to_csv(path, index=False)
    return path


def moments(panel: Panel) -> np.ndarray:
    (table,) = panel.tables
    assert table.values[:, 0].tolist() == list(range(len(table)))
    return table.timestamps - np.asarray(table.utc_offset, "m8[us]")


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("frequency", ["h", "30min", "15min"])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(("start", "end"), PERIODS)
def test_what_is_counted_through_a_day_of_any_length(
    tmp_path: Path, zone: str, frequency: str, first: int, start: str, end: str
) -> None:
    times = pd.date_range(start, end, freq=frequency, tz=zone, inclusive="left")
    panel = read(counted(tmp_path, times, first), Reading(time_zone=zone))
    assert str(panel.frequency) == frequency
    # What is counted from 1 is told by its end.
    expected = times.tz_convert("UTC").tz_localize(None).to_numpy() + first * (times[1] - times[0])
    np.testing.assert_array_equal(moments(panel), expected)


@pytest.mark.parametrize("form", ["{}", "HE{:02d}", "Hour {}"])
@pytest.mark.parametrize(("start", "end"), PERIODS)
def test_the_remedy_that_is_told_reads_a_longer_day(
    tmp_path: Path, form: str, start: str, end: str
) -> None:
    times = pd.date_range(start, end, freq="h", tz="Europe/Berlin", inclusive="left")
    path = counted(tmp_path, times, 1, form)
    panel, options = follow(path)
    assert options["time_zone"] == "Europe/Berlin"
    assert (str(panel.frequency), len(panel)) == ("h", len(times))


def test_parts_of_a_date_count_longer_days_too(tmp_path: Path) -> None:
    times = pd.date_range(*PERIODS[2], freq="h", tz="Europe/Berlin", inclusive="left")
    panel, options = follow(by_parts(tmp_path, times, 1))
    assert options["time_zone"] == "Europe/Berlin"
    assert len(moments(panel)) == len(times)


def test_a_clock_shows_what_it_shows(tmp_path: Path) -> None:
    """Hours of a clock that skips one and shows one twice are not counted."""
    times = pd.date_range(*PERIODS[2], freq="h", tz="Europe/Berlin", inclusive="left")
    path = tmp_path / "data.csv"
    table = {"date": times.strftime("%Y-%m-%d"), "hour": times.hour, "y": range(len(times))}
    pd.DataFrame(table).to_csv(path, index=False)
    panel = read(path, Reading(time_zone="Europe/Berlin"))
    expected = times.tz_convert("UTC").tz_localize(None).to_numpy()
    np.testing.assert_array_equal(moments(panel), expected)


def test_a_day_that_is_not_longer_by_a_clock_is_told(tmp_path: Path) -> None:
    times = pd.date_range(*PERIODS[0], freq="h", tz="Europe/Berlin", inclusive="left")
    path = counted(tmp_path, times, 1)
    with pytest.raises(
        ValueError, match=r"line 194, column 'date,hour': more is counted than .* Asia/Tokyo"
    ):
        read(path, Reading(time_zone="Asia/Tokyo"))


def test_fifty_shops_are_no_half_hours(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=30)
    table = [{"date": day, "shop": shop, "y": 1.5} for day in days for shop in range(1, 51)]
    path = tmp_path / "data.csv"
    pd.DataFrame(table).to_csv(path, index=False)
    panel, options = follow(path)
    assert (options, len(panel.series)) == ({"id_column": "shop"}, 50)
