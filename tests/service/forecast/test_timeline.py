from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.service.errors import InvalidInputError
from foretell.service.forecast.times import (
    FixedClock,
    Timeline,
    check_first,
    find_zone,
    timeline_from,
)
from foretell.timeaxis.errors import TimestampError
from foretell.timeaxis.frequency import Frequency

ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC")


def of(start: str, frequency: str = "h", zone: str | None = None, rows: int = 3) -> Timeline:
    found = None if zone is None else find_zone(zone, "z")
    return timeline_from(start, found, Frequency.parse(frequency), rows, "s")


def test_steps_count_from_the_first_forecast_one() -> None:
    timeline = of("2024-02-28T22:00:00+02:00")
    assert timeline.labels(-3, 2) == ["2024-02-28T22:00:00+02:00", "2024-02-28T23:00:00+02:00"]
    assert timeline.labels(0, 1) == ["2024-02-29T01:00:00+02:00"]


@pytest.mark.parametrize(
    ("frequency", "start", "nearest"),
    [("B", "2024-03-02", "2024-03-04"), ("ME", "2024-02-10", "2024-02-29")],
)
def test_a_start_between_steps(frequency: str, start: str, nearest: str) -> None:
    with pytest.raises(
        InvalidInputError, match=f"the next one is {nearest}T00:00:00(; |$)"
    ) as error:
        of(start, frequency)
    assert error.value.param == "s"


def test_a_zone_changes_its_clock_between_hours() -> None:
    spring = of("2024-03-31T00:00", zone="Europe/Berlin")
    assert spring.labels(-3, 5) == [
        "2024-03-31T00:00:00+01:00",
        "2024-03-31T01:00:00+01:00",
        "2024-03-31T03:00:00+02:00",
        "2024-03-31T04:00:00+02:00",
        "2024-03-31T05:00:00+02:00",
    ]
    autumn = of("2024-10-27T00:00:00Z", zone="Europe/Berlin")
    assert autumn.labels(-3, 2) == ["2024-10-27T02:00:00+02:00", "2024-10-27T02:00:00+01:00"]


def test_days_of_a_zone_follow_its_clock() -> None:
    for start in ("2024-03-30", "2024-03-29T23:00Z"):
        timeline = of(start, "D", "Europe/Berlin")
        assert timeline.labels(-3, 4) == [
            "2024-03-30T00:00:00+01:00",
            "2024-03-31T00:00:00+01:00",
            "2024-04-01T00:00:00+02:00",
            "2024-04-02T00:00:00+02:00",
        ]


@given(
    st.datetimes(pd.Timestamp("1990-01-01"), pd.Timestamp("2037-01-01")).map(
        lambda moment: moment.replace(second=0, microsecond=0)
    ),
    st.sampled_from(ZONES),
    st.sampled_from(["15min", "h", "6h"]),
)
def test_steps_in_a_zone_are_those_of_pandas(start: object, zone: str, frequency: str) -> None:
    index = pd.date_range(pd.Timestamp(start, tz="UTC"), periods=40, freq=frequency).tz_convert(
        zone
    )
    timeline = of(f"{start}Z", frequency, zone, rows=30)
    assert timeline.labels(-30, 40) == [moment.isoformat() for moment in index]
    walls, _ = timeline.read(-30, 40)
    np.testing.assert_array_equal(walls, index.tz_localize(None).to_numpy("M8[us]"))


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("2024-03-31T02:30", "the clock of Europe/Berlin skips 2024-03-31T02:30:00"),
        ("2024-10-27T02:30", "shows 2024-10-27T02:30:00 twice: write its UTC offset"),
        ("noon", "expected an ISO 8601 timestamp"),
    ],
)
def test_a_start_that_names_no_moment(start: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        of(start, zone="Europe/Berlin")
    assert error.value.param == "s"


def test_the_end_of_time_in_a_zone() -> None:
    with pytest.raises(TimestampError, match="years 1 to 9999"):
        of("9999-12-31T23:00Z", zone="Europe/Berlin").read(-3, 3)
    with pytest.raises(TimestampError, match="years 1 to 9999"):
        of("0001-01-01T00:00Z", "D", "America/New_York")


@pytest.mark.parametrize(
    ("frequency", "step", "remedy"),
    [
        ("QS", "2024-03-31", "first day of each quarter, here 2024-01-01T00:00:00"),
        ("QS-FEB", "2024-03-31", "first day of each quarter, here 2024-02-01T00:00:00"),
        ("QE", "2024-01-01", "last day of each quarter, here 2024-03-31T00:00:00"),
        ("QE-NOV", "2024-01-01", "last day of each quarter, here 2024-02-29T00:00:00"),
        ("MS", "2024-02-29", "first day of each month, here 2024-02-01T00:00:00"),
        ("2MS", "2024-02-29", "first day of each month, here 2024-02-01T00:00:00"),
        ("ME", "2024-02-01", "last day of each month, here 2024-02-29T00:00:00"),
        ("YS", "2024-12-31", "first day of each year, here 2024-01-01T00:00:00"),
        ("YE", "2024-01-01", "last day of each year, here 2024-12-31T00:00:00"),
        ("BMS", "2024-06-01", "first business day of each month, here 2024-06-03T00:00:00"),
        ("BMS", "2024-06-28", "first business day of each month, here 2024-06-03T00:00:00"),
        ("BME", "2024-06-30", "last business day of each month, here 2024-06-28T00:00:00"),
        ("BQE-DEC", "2024-06-30", "last business day of each quarter, here 2024-06-28T00:00:00"),
        ("WOM-3FRI", "2024-06-01", "third Fri of each month, here 2024-06-21T00:00:00"),
        ("LWOM-SUN", "2024-06-01", "last Sun of each month, here 2024-06-30T00:00:00"),
    ],
)
def test_the_other_end_of_a_period_is_told_which_day_to_send(
    frequency: str, step: str, remedy: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"; send the {remedy}$"):
        check_first(np.datetime64(step, "us"), FixedClock(None), Frequency.parse(frequency), "ds")


def test_a_wrong_weekday_is_told_the_next() -> None:
    with pytest.raises(InvalidInputError, match=r"the next one is 2024-01-07T00:00:00$"):
        check_first(
            np.datetime64("2024-01-01", "us"), FixedClock(None), Frequency.parse("W-SUN"), "ds"
        )
