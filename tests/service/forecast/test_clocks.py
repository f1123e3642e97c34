from __future__ import annotations

from datetime import timedelta

import numpy as np

from foretell.service.forecast.times import FixedClock, ListedClock, ZoneClock, find_zone

HOURS = np.datetime64("2024-03-31T00:00", "us") + np.arange(4) * np.timedelta64(1, "h")
OFFSETS = np.array([timedelta(hours=1), timedelta(hours=2)], "m8[us]")


def hours(offsets: object) -> list[float]:
    return (np.asarray(offsets) / np.timedelta64(1, "h")).tolist()


def test_a_clock_that_never_changes() -> None:
    for offset in (None, timedelta(hours=1)):
        walls, told = FixedClock(offset).read(HOURS, 7)
        np.testing.assert_array_equal(walls, HOURS)
        assert told == offset


def test_the_last_offset_of_a_list_goes_on() -> None:
    walls, offsets = ListedClock(OFFSETS, in_utc=True).read(HOURS, 0)
    assert hours(offsets) == [1, 2, 2, 2]
    np.testing.assert_array_equal(walls, HOURS + offsets)
    walls, offsets = ListedClock(OFFSETS, in_utc=False).read(HOURS, -2)
    assert hours(offsets) == [1, 1, 1, 2]
    np.testing.assert_array_equal(walls, HOURS)


def test_the_clock_of_a_zone() -> None:
    zone = find_zone("Europe/Berlin", "z")
    walls, offsets = ZoneClock(zone, in_utc=True).read(HOURS, 0)
    assert hours(offsets) == [1, 2, 2, 2]
    np.testing.assert_array_equal(walls, HOURS + offsets)
    walls, offsets = ZoneClock(zone, in_utc=False).read(HOURS, 0)
    # The clock skips 2 o'clock.
    assert hours(offsets) == [1, 1, 1, 2]
    np.testing.assert_array_equal(walls, HOURS)
