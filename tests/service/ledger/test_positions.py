"""Places of times on a time axis of whole steps."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from numpy.typing import NDArray

from foretell.service.ledger.positions import positions
from foretell.timeaxis.frequency import Frequency


def local(first: datetime, frequency: Frequency, count: int, zone: str) -> NDArray[np.int64]:
    """Times of a series in a zone, in microseconds since 1970 in UTC."""
    days = frequency.steps_from(np.datetime64(first), count).tolist()
    zoned = [day.replace(tzinfo=ZoneInfo(zone)) for day in days]
    return np.array([int(day.timestamp()) * 1_000_000 for day in zoned])


@pytest.mark.parametrize("zone", ["Europe/London", "Pacific/Auckland", "America/New_York"])
@pytest.mark.parametrize(
    "name", ["15min", "h", "6h", "D", "2D", "B", "2B", "W-SUN", "SMS", "MS", "ME", "QS", "YE"]
)
def test_steps_count_one_in_every_zone(name: str, zone: str) -> None:
    frequency = Frequency.parse(name)
    if frequency.sub_daily:
        # Steps of a fixed length are such in UTC.
        steps = frequency.steps_from(np.datetime64("2023-03-01"), 500)
        times = steps.astype("M8[us]").astype(np.int64)
    else:
        times = local(datetime(2023, 3, 1), frequency, 500, zone)
    found = positions(times, frequency)
    assert np.diff(found).tolist() == [1] * 499
    # A series that begins later is on the same axis.
    later = positions(times[301:], frequency, int(times[0]))
    assert later.tolist() == positions(times, frequency, int(times[0]))[301:].tolist()


def test_gaps_are_counted() -> None:
    times = np.array([0, 3, 4, 10]) * 3_600_000_000
    assert positions(times, Frequency.parse("h")).tolist() == [0, 3, 4, 10]


def test_times_between_steps_stay_apart() -> None:
    start = datetime(2024, 1, 1)
    halves = [start + timedelta(minutes=30 * half) for half in range(5)]
    times = np.array(halves, "M8[us]").astype(np.int64)
    assert (np.diff(positions(times, Frequency.parse("h"))) > 0).all()


def test_no_times_have_no_positions() -> None:
    assert positions(np.empty(0, np.int64), Frequency.parse("h")).tolist() == []
