"""Times of tables: their forms, their columns, the clocks of time zones, and days of any length."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest

from foretell.data.panel import Panel
from foretell.data.reading import read_frame
from tests.data.panels import read_text, refusal, text, write
from tests.reported.following import follow


@pytest.mark.parametrize(
    ("header", "row", "frequency"),
    [
        ("year,a", lambda i: f"{1959 + i},{i}", "YS"),
        ("date,a", lambda i: f"{1959 + i // 4}Q{i % 4 + 1},{i}", "QS"),
        ("year,quarter,a", lambda i: f"{1959 + i // 4}.0,{i % 4 + 1}.0,{i}", "QS"),
        ("year,month,a", lambda i: f"{1959 + i // 12},{i % 12 + 1},{i}", "MS"),
        ("date,time,a", lambda i: f"2020-01-01,{i:02d}:00,{i}", "h"),
        ("date,a,Hour", lambda i: f"2020-01-0{i // 8 + 1},{i},{i % 8 * 3 + 1}", "3h"),
        (
            "Date (MM/DD/YYYY),Time,a",
            lambda i: f"01/{13 + i // 2}/2020,{i % 2 * 12 + 12}:00,{i}",
            "12h",
        ),
        ("time,a", lambda i: f"{1_577_836_800 + 900 * i},{i}", "15min"),
    ],
)
def test_other_forms_of_times_are_parsed(
    tmp_path: Path, header: str, row: Callable[[int], str], frequency: str
) -> None:
    panel = read_text(tmp_path, text(*map(row, range(16)), header=header))
    assert panel.channels == ("a",)
    assert str(panel.frequency) == frequency
    assert panel.tables[0].values[:, 0].tolist() == list(range(16))


def times_of(panel: Panel) -> list[str]:
    (table,) = panel.tables
    return pd.DatetimeIndex(table.timestamps).strftime("%Y-%m-%dT%H:%M").tolist()


SIXTY = pd.date_range("2024-01-01", periods=60)
MONTHS = pd.date_range("2000-01-01", periods=9, freq="MS")


def sunrise(day: pd.Timestamp) -> str:
    minutes = 420 - (day - SIXTY[0]).days
    return f"{day:%Y-%m-%d},{minutes // 60:02d}:{minutes % 60:02d}"


@pytest.mark.parametrize(
    ("header", "dates", "written", "given"),
    [
        # A year of two digits is no time of the day.
        *(
            ("date", SIXTY, f"{{:{form}}}".format, given)
            for form in ("%d %b %y", "%d %B %y")
            for given in (None, form)
        ),
        ("Year,Month,Day", SIXTY, "{:%y,%m,%d}".format, None),
        ("date", MONTHS, "{:%d%m%Y}".format, "%d%m%Y"),
        # A time of the day in another column is not a part of the row's time.
        *(
            (f"date,{name}", SIXTY, sunrise, None)
            for name in ("sunrise", "Moving Time", "peak_time")
        ),
    ],
)
def test_dates_are_kept_as_written(
    tmp_path: Path,
    header: str,
    dates: pd.DatetimeIndex,
    written: Callable[[pd.Timestamp], str],
    given: str | None,
) -> None:
    rows = [f"{written(date)},{row}" for row, date in enumerate(dates)]
    found = read_text(tmp_path, text(*rows, header=f"{header},y"), date_format=given)
    assert times_of(found) == dates.strftime("%Y-%m-%dT%H:%M").tolist()


def test_an_ordinal_before_a_comma(tmp_path: Path) -> None:
    lines = [
        f'"{day:%B} {day.day}{"st" if day.day in (1, 21, 31) else "th"}, {day:%Y}",{row}'
        for row, day in enumerate(SIXTY)
        if day.day not in (2, 3, 22, 23)
    ]
    found = times_of(read_text(tmp_path, text(*lines, header="date,y"), missing="interpolate"))
    assert found[0] == "2024-01-01T00:00"
    assert len(found) == len(SIXTY)


def test_opening_hours_keep_their_clock(tmp_path: Path) -> None:
    hours = pd.date_range("2024-03-25T06:00", "2024-04-07T22:00", freq="h")
    hours = hours[(hours.hour >= 6) & (hours.hour <= 22)]
    lines = [f"{hour:%Y-%m-%d},{hour.hour},{row}" for row, hour in enumerate(hours)]
    given = {"time_zone": "Europe/Berlin", "missing": "ffill", "max_gap": 8}
    panel = read_text(tmp_path, text(*lines, header="date,hour,y"), **given)
    (table,) = panel.tables
    known = {time: int(y) for time, y in zip(times_of(panel), table.values[:, 0], strict=True)}
    for row, hour in enumerate(hours):
        assert known[f"{hour:%Y-%m-%dT%H:%M}"] == row


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_an_index_made_of_a_column_of_texts(zone: str | None) -> None:
    frame = pd.DataFrame({"date": SIXTY.strftime("%Y-%m-%d"), "y": np.arange(60.0)})
    frame.index = pd.DatetimeIndex(pd.to_datetime(frame["date"]), name="date").tz_localize(zone)
    (table,) = read_frame(frame).tables
    assert table.timestamps.tolist() == SIXTY.to_numpy("M8[us]").tolist()
    assert table.values[:, 0].tolist() == list(range(60))


BERLIN = ZoneInfo("Europe/Berlin")


def hours(start: str, count: int = 40) -> list[datetime]:
    first = datetime.fromisoformat(start).replace(tzinfo=UTC)
    return [(first + timedelta(hours=hour)).astimezone(BERLIN) for hour in range(count)]


@pytest.mark.parametrize("start", ["2024-03-30T10:00", "2024-10-26T10:00"])
@pytest.mark.parametrize("written", ["naive", "offsets", "backwards"])
def test_local_time_over_a_change_of_the_clock(tmp_path: Path, start: str, written: str) -> None:
    moments = hours(start)
    naive = [moment.replace(tzinfo=None) for moment in moments]
    rows = [
        f"{(moment if written == 'offsets' else wall).isoformat()},{i}"
        for i, (moment, wall) in enumerate(zip(moments, naive, strict=True))
    ]
    content = text(*(reversed(rows) if written == "backwards" else rows), header="date,a")
    zone = {} if written == "offsets" else {"time_zone": "Europe/Berlin"}
    (table,) = read_text(tmp_path, content, **zone).tables
    # Calendar features are computed from local times.
    assert table.timestamps.tolist() == naive
    assert table.values[:, 0].tolist() == list(range(40))
    assert str(table.frequency) == "h"
    assert isinstance(table.utc_offset, np.ndarray)
    assert table.utc_offset.tolist() == [moment.utcoffset() for moment in moments]
    if written == "naive":
        assert "--time-zone Europe/Berlin" in refusal(tmp_path, content)


def test_skipped_local_time_is_refused(tmp_path: Path) -> None:
    rows = [f"2024-03-31T0{hour}:00,{hour}" for hour in (0, 1, 2, 4)]
    message = refusal(tmp_path, text(*rows, header="date,a"), time_zone="Europe/Berlin")
    assert "line 4, column 'date': the clock of Europe/Berlin skips 2024-03-31T02:00:00" in message
    assert "leave --time-zone out" in message


def test_moments_are_shown_by_the_clock_of_the_zone(tmp_path: Path) -> None:
    rows = [f"2024-03-30T{hour:02d}:00Z,{hour}" for hour in range(24)]
    panel = read_text(tmp_path, text(*rows, header="date,a"), time_zone="Asia/Kolkata")
    assert panel.tables[0].timestamps[0] == np.datetime64("2024-03-30T05:30")
    daily = [f"2024-03-{day}T{'23' if day < 31 else '22'}:00Z,1" for day in range(25, 32)]
    content = text(*daily, header="date,a")
    (table,) = read_text(tmp_path, content, time_zone="Europe/Berlin").tables
    assert str(table.frequency) == "D"
    assert table.timestamps[-1] == np.datetime64("2024-04-01")


def test_a_column_with_a_zone_has_its_clock() -> None:
    moments = pd.date_range("2024-03-30T10:00Z", periods=40, freq="h").tz_convert("Europe/Berlin")
    frame = pd.DataFrame({"ds": moments, "y": np.arange(40.0)})
    for each in (frame, pl.from_pandas(frame)):
        (table,) = read_frame(each).tables
        np.testing.assert_array_equal(
            table.timestamps, moments.tz_localize(None).to_numpy("M8[us]")
        )


@pytest.mark.parametrize("zone", ["UTC", "+05:30"])
def test_a_clock_that_never_changes_has_one_offset(zone: str) -> None:
    moments = pd.date_range("2024-03-30", periods=40, freq="h", tz="UTC").tz_convert(zone)
    (table,) = read_frame(pd.DataFrame({"ds": moments, "y": np.arange(40.0)})).tables
    assert table.utc_offset == moments[0].utcoffset()
    assert table.timestamps[0] == moments[0].tz_localize(None)


def test_filled_rows_have_the_clock_of_their_series(tmp_path: Path) -> None:
    moments = hours("2024-03-30T10:00")
    rows = [
        f"{moment.isoformat()},{i}" for i, moment in enumerate(moments) if i not in (13, 14, 15)
    ]
    content = text(*rows, header="date,a")
    for zone in ({}, {"time_zone": "Europe/Berlin"}):
        (table,) = read_text(tmp_path, content, missing="interpolate", **zone).tables
        assert len(table) == 40
        assert isinstance(table.utc_offset, np.ndarray)
        known = (table.timestamps - table.utc_offset).tolist()
        assert known == [moment.astimezone(UTC).replace(tzinfo=None) for moment in moments]
        # Only the zone shows that the offset changed in a filled row.
        early = 0 if zone else 1
        offsets = [timedelta(hours=1 + (i >= 15 + early)) for i in range(40)]
        assert table.utc_offset.tolist() == offsets


PERIODS = [("2024-10-20", "2024-11-06"), ("2024-03-05", "2024-04-03"), ("2024-03-05", "2024-11-06")]


def counts(times: pd.DatetimeIndex, first: int) -> pd.Series:
    """Number of each time within its day, counted from `first`."""
    days = times.strftime("%Y-%m-%d")
    return pd.Series(0, days).groupby(level=0).cumcount() + first


def counted(times: pd.DatetimeIndex, first: int, form: str = "{}") -> str:
    """A table with the date, and the number of each time within its day."""
    rows = [f"{day},{form.format(count)}" for day, count in counts(times, first).items()]
    return text(*(f"{row},{y}" for y, row in enumerate(rows)), header="date,hour,y")


def moments(panel: Panel) -> np.ndarray:
    (table,) = panel.tables
    assert table.values[:, 0].tolist() == list(range(len(table)))
    return table.timestamps - np.asarray(table.utc_offset, "m8[us]")


def utc(times: pd.DatetimeIndex) -> np.ndarray:
    return times.tz_convert("UTC").tz_localize(None).to_numpy()


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("frequency", ["h", "30min", "15min"])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(("start", "end"), PERIODS)
def test_parts_are_counted_through_a_day_of_any_length(
    tmp_path: Path, zone: str, frequency: str, first: int, start: str, end: str
) -> None:
    times = pd.date_range(start, end, freq=frequency, tz=zone, inclusive="left")
    panel = read_text(tmp_path, counted(times, first), time_zone=zone)
    assert str(panel.frequency) == frequency
    # Counters from 1 are recognised by their end.
    expected = utc(times) + first * (times[1] - times[0])
    np.testing.assert_array_equal(moments(panel), expected)


@pytest.mark.parametrize("form", ["{}", "HE{:02d}", "Hour {}", "parts"])
@pytest.mark.parametrize(("start", "end"), PERIODS)
def test_the_suggested_option_reads_a_longer_day(
    tmp_path: Path, form: str, start: str, end: str
) -> None:
    times = pd.date_range(start, end, freq="h", tz="Europe/Berlin", inclusive="left")
    content = counted(times, 1, form.replace("parts", "{}"))
    if form == "parts":
        days, (header, *rows) = times.strftime("%Y,%-m,%-d"), content.splitlines()
        lines = [f"{day},{row.partition(',')[2]}" for day, row in zip(days, rows, strict=True)]
        content = text(*lines, header=header.replace("date", "year,month,day"))
    panel, options = follow(write(tmp_path, content))
    assert options["time_zone"] == "Europe/Berlin"
    assert (str(panel.frequency), len(moments(panel))) == ("h", len(times))


def test_hours_of_a_clock_that_changes_are_not_counted(tmp_path: Path) -> None:
    times = pd.date_range(*PERIODS[2], freq="h", tz="Europe/Berlin", inclusive="left")
    rows = [f"{time:%Y-%m-%d},{time.hour},{y}" for y, time in enumerate(times)]
    content = text(*rows, header="date,hour,y")
    panel = read_text(tmp_path, content, time_zone="Europe/Berlin")
    np.testing.assert_array_equal(moments(panel), utc(times))


def test_a_day_that_is_too_long_for_its_zone_is_refused(tmp_path: Path) -> None:
    times = pd.date_range(*PERIODS[0], freq="h", tz="Europe/Berlin", inclusive="left")
    message = refusal(tmp_path, counted(times, 1), time_zone="Asia/Tokyo")
    assert "line 194, column 'date,hour': more is counted than " in message
    assert "Asia/Tokyo" in message


def test_fifty_shops_are_not_half_hours(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=30)
    rows = [f"{day},{shop},1.5" for day in days for shop in range(1, 51)]
    panel, options = follow(write(tmp_path, text(*rows, header="date,shop,y")))
    assert (options, len(panel.series)) == ({"id_column": "shop"}, 50)
