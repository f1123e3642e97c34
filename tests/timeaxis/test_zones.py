from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.timeaxis.errors import TimestampError
from foretell.timeaxis.timestamps import Timestamps
from foretell.timeaxis.zones import find_zone, moments_of, offsets_at, offsets_of

# Zones, each with a year of unusual changes.
ZONES = [
    ("Africa/Casablanca", 2026),  # back for Ramadan
    ("Africa/Freetown", 1939),  # four days of something else
    ("Africa/Monrovia", 1972),  # 44 minutes and 30 seconds
    ("America/Noronha", 2000),  # a week of summer
    ("America/St_Johns", 1988),  # two hours, at a minute past midnight
    ("Antarctica/Troll", 2024),
    ("Asia/Gaza", 2040),  # four changes
    ("Asia/Manila", 1945),
    ("Australia/Lord_Howe", 2024),  # half an hour
    ("Europe/Berlin", 1947),  # summer within summer
    ("Europe/Dublin", 2024),  # winter is what differs
    ("Pacific/Apia", 2011),  # a day is left out
    ("UTC", 2024),
]


def expected_offsets(times: Timestamps, zone: ZoneInfo, fold: int | None) -> list[timedelta]:
    """Offsets of the standard library: of local time, or of UTC if there is no fold."""
    moments: list[datetime] = times.tolist()
    if fold is None:
        found = [moment.replace(tzinfo=UTC).astimezone(zone) for moment in moments]
    else:
        found = [moment.replace(tzinfo=zone, fold=fold) for moment in moments]
    return [moment.utcoffset() or timedelta() for moment in found]


def compare(times: Timestamps, zone: ZoneInfo) -> None:
    assert offsets_at(times, zone).tolist() == expected_offsets(times, zone, None)
    for fold in (0, 1):
        assert offsets_of(times, zone, fold=fold).tolist() == expected_offsets(times, zone, fold)


@given(
    name=st.sampled_from([name for name, _ in ZONES]),
    moment=st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 28)),
    spread=st.sampled_from([1, 60, 3600, 86400, 86400 * 365 * 100]),
)
def test_offsets_at_any_time(name: str, moment: datetime, spread: int) -> None:
    times = np.datetime64(moment) + np.arange(-2, 3) * np.timedelta64(spread, "s")
    if times[0] > np.datetime64("0001-01-02") and times[-1] < np.datetime64("9999-12-30"):
        compare(times, ZoneInfo(name))


@pytest.mark.parametrize(("name", "year"), ZONES)
def test_offsets_of_every_hour_and_around_changes(name: str, year: int) -> None:
    """Hours of a year, and seconds around every change of a decade."""
    zone = ZoneInfo(name)
    hours = np.datetime64(f"{year}-01-01", "us") + np.arange(87660) * np.timedelta64(1, "h")
    changes = hours[1:][np.diff(offsets_at(hours, zone)) != np.timedelta64(0)]
    around = [np.timedelta64(second, "s") for second in (-3601, -3600, -1, 0, 1, 3599, 3600)]
    compare(np.append(hours[:8784], np.add.outer(changes, around)), zone)


@pytest.mark.parametrize("year", ["0001-01-01", "9999-12-31"])
def test_times_outside_years_1_to_9999_are_refused(year: str) -> None:
    times = np.array([f"{year}T11:00" if year < "2000" else f"{year}T13:00"], "M8[us]")
    assert hours(offsets_of(times, ZoneInfo("UTC"))) == [0]
    with pytest.raises(TimestampError, match="years 1 to 9999"):
        offsets_at(times, ZoneInfo("Etc/GMT+12" if year < "2000" else "Etc/GMT-14"))


def hours(offsets: object) -> list[float]:
    return (np.asarray(offsets) / np.timedelta64(1, "h")).tolist()


@pytest.mark.parametrize(
    "name", ["Europe/Berlin", "UTC", "Etc/GMT+5", "America/Argentina/Buenos_Aires", "EST5EDT"]
)
def test_finds_a_zone(name: str) -> None:
    assert find_zone(name).key == name


@pytest.mark.parametrize(
    "name",
    [
        *("", "Mars", "Europe", "Europe/", "/Europe/Berlin", "../etc/passwd", "/etc/passwd"),
        *("Europe/../UTC", "Europe/Berlin\x00", "\ud800", "x" * 100_000, "zone.tab", "leapseconds"),
    ],
)
def test_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(TimestampError, match="expected a time zone of the IANA") as error:
        find_zone(name)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("minutes", [15, 30, 60, 120, 180, 360])
@pytest.mark.parametrize("month", ["2024-10-26", "2024-03-30"])
@pytest.mark.parametrize("phase", range(0, 360, 15))
def test_a_regular_series_across_a_change_of_the_clock(
    minutes: int, month: str, phase: int
) -> None:
    zone, step = find_zone("Europe/Berlin"), np.timedelta64(minutes, "m").astype("m8[us]")
    first = np.datetime64(month, "us") + np.timedelta64(phase, "m")
    moments = first + np.arange(36 * 60 // minutes) * step
    walls = moments + offsets_at(moments, zone)
    np.testing.assert_array_equal(moments_of(walls, zone, step), moments)
