"""The times of a history, on the clocks that requests write them by."""

from __future__ import annotations

import json
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foretell.service.errors import InvalidInputError
from foretell.service.forecast.times import (
    FixedClock,
    ListedClock,
    Timeline,
    check_first,
    check_frequency,
    find_zone,
    read_timeline,
    timeline_from,
    write_labels,
)
from foretell.timeaxis.errors import TimestampError
from foretell.timeaxis.frequency import Frequency

BERLIN = "Europe/Berlin"
ZONES = (BERLIN, "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC")
ENDS = ("", "Z", "+05:45", "-09:30", "+00:53:28")
MOMENTS = st.datetimes(pd.Timestamp("1990-01-01"), pd.Timestamp("2037-01-01")).map(
    lambda moment: moment.replace(second=0, microsecond=0)
)
AN_HOUR = np.timedelta64(1, "h")


def read(
    start: str | None = None,
    listed: list[str] | None = None,
    frequency: str = "h",
    zone: str | None = None,
    rows: int = 3,
) -> Timeline | None:
    found = None if zone is None else find_zone(zone, "z")
    rows = rows if listed is None else len(listed)
    return read_timeline(start, listed, found, Frequency.parse(frequency), rows, "inputs[0]")


def of(start: str, frequency: str = "h", zone: str | None = None, rows: int = 3) -> Timeline:
    timeline = read(start, None, frequency, zone, rows)
    assert timeline is not None
    return timeline


def future(listed: list[str], frequency: str = "h", zone: str | None = None) -> list[str]:
    timeline = read(None, listed, frequency, zone)
    assert timeline is not None
    assert timeline.rows == len(listed)
    return timeline.labels(0, 2)


def dated(day: str, *times: str) -> list[str]:
    return [f"{day}T{time}" for time in times]


def test_steps_count_from_the_first_forecast_one() -> None:
    timeline = of("2024-02-28T22:00:00+02:00")
    assert timeline.labels(-3, 2) == dated("2024-02-28", "22:00:00+02:00", "23:00:00+02:00")
    assert timeline.labels(0, 1) == ["2024-02-29T01:00:00+02:00"]
    assert read() is None


def test_a_list_and_a_start_agree() -> None:
    listed = dated("2024-01-01", "00:00:00Z", "01:00:00Z", "02:00:00+00:00")
    start = "2024-01-01T00:00:00+00:00"
    assert read(listed=listed) == read(start, listed) == read(start)
    with pytest.raises(InvalidInputError, match="is not the first of timestamps") as error:
        read("2024-01-01T00:00:00", listed)
    assert error.value.param == "inputs[0].start_timestamp"


@pytest.mark.parametrize("end", ["", "Z", "+00:00", "-03:30"])
@pytest.mark.parametrize("form", ["{}:00:00", "{}:00", "{}"])
def test_any_form_of_a_regular_list(form: str, end: str) -> None:
    listed = [form.format(f"2024-01-01T{hour:02}") + end for hour in range(3)]
    assert future(listed)[0] == "2024-01-01T03:00:00" + ("+00:00" if end == "Z" else end)


JANUARY, SPRING, AUTUMN = "2024-01-01", "2024-03-31", "2024-10-27"


@pytest.mark.parametrize(
    ("listed", "zone", "place", "message"),
    [
        (
            dated(JANUARY, "00:00", "01:00", "03:00"),
            *(None, "[2]", "expected 2024-01-01T02:00:00 .*missing before it"),
        ),
        (
            dated(JANUARY, "00:00", "01:00", "01:00"),
            *(None, "[2]", "repeats the one before it; where a local clock"),
        ),
        (dated(JANUARY, "00:00", "01:00", "00:30"), None, "[2]", "goes back in time"),
        (dated(JANUARY, "00:00", "01:00", "01:30"), None, "[2]", "lies between two steps"),
        (dated(JANUARY, "00:00", "01:00", "03:30"), None, "[2]", "lies between two steps"),
        (
            dated(JANUARY, "00:00Z", "01:00Z", "02:00"),
            *(None, "[2]", r"offset at every timestamp or at none, got '\S*T00:00Z' and '\S*T02:0"),
        ),
        (
            dated(JANUARY, "00:00Z", "01:00Z", "03:00Z"),
            *(None, "[2]", r"expected 2024-01-01T02:00:00\+00:00 "),
        ),
        (
            dated(JANUARY, "00:00Z", "02:00+01:00", "02:00Z", "02:00Z"),
            *(None, "[3]", r"expected 2024-01-01T03:00:00\+0"),
        ),
        (dated(JANUARY, "00:00", "noon", "02:00"), None, "[1]", "expected an ISO 8601 timestamp"),
        # Local times over a change of the clock.
        (
            dated(SPRING, "01:00", "03:00", "04:00"),
            *(None, "[1]", r"times need their UTC offsets, or `time_zone`$"),
        ),
        (
            dated(SPRING, "02:00", "02:00", "03:00"),
            *(None, "[1]", r"times need their UTC offsets, or `time_zone`$"),
        ),
        (dated(SPRING, "01:00Z", "03:00Z", "04:00Z"), None, "[1]", "before it$"),
        (dated(SPRING, "02:00Z", "02:00Z", "03:00Z"), None, "[1]", "before it$"),
        (
            dated(SPRING, "01:30", "02:30", "03:30"),
            *(BERLIN, "[1]", "the clock of Europe/Berlin skips"),
        ),
        (
            dated(SPRING, "00:00", "01:00", "04:00"),
            *(BERLIN, "[2]", "steps are missing before it"),
        ),
        # The largest timestamp.
        (
            dated("9999-12-31", "22:00", "23:00", "23:30"),
            *(None, "[2]", "expected 10000-01-01T00:00:00"),
        ),
        (
            dated(AUTUMN, "02:00+02:00", "04:00+02:00", "03:00+01:00"),
            *(None, "[1]", r"expected 2024-10-27T03:00:00\+02:00"),
        ),
    ],
)
def test_irregular_list_is_refused(
    listed: list[str], zone: str | None, place: str, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        read(listed=listed, zone=zone)
    assert error.value.param == f"inputs[0].timestamps{place}"


def test_list_of_wrong_length_or_ambiguous_time_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="one for every row of series, got 2") as error:
        read_timeline(None, ["2024-01-01"] * 2, None, Frequency.parse("h"), 3, "inputs[0]")
    assert error.value.param == "inputs[0].timestamps"
    with pytest.raises(InvalidInputError, match="twice: write its UTC offset"):
        read(listed=dated(AUTUMN, "02:00", "02:15"), frequency="15min", zone=BERLIN)


@pytest.mark.parametrize(
    ("listed", "frequency", "zone", "following"),
    [
        (
            ["2024-02-29", "2024-03-30", "2024-04-30"],
            *("M", None, ["2024-05-30T00:00:00", "2024-06-30T00:00:00"]),
        ),
        # Hours are equally spaced in UTC, also when the offset changes.
        (
            dated(AUTUMN, "02:00+02:00", "02:00+01:00", "03:00+01:00"),
            *("h", None, dated(AUTUMN, "04:00:00+01:00", "05:00:00+01:00")),
        ),
        # Days are equally spaced in local time, also when the offset changes.
        (
            ["2024-03-30T00:00+01:00", "2024-03-31T00:00+01:00", "2024-04-01T00:00+02:00"],
            *("D", None, ["2024-04-02T00:00:00+02:00", "2024-04-03T00:00:00+02:00"]),
        ),
        (
            ["2024-03-29T23:00Z", "2024-03-30T23:00Z", "2024-03-31T22:00Z"],
            *("D", BERLIN, ["2024-04-02T00:00:00+02:00", "2024-04-03T00:00:00+02:00"]),
        ),
    ],
)
def test_steps_after_a_list_of_times(
    listed: list[str], frequency: str, zone: str | None, following: list[str]
) -> None:
    assert future(listed, frequency, zone) == following
    if zone is not None:
        with pytest.raises(InvalidInputError, match="between two steps"):
            read(listed=listed, frequency=frequency)


@given(MOMENTS, st.sampled_from(ZONES), st.sampled_from(["15min", "h", "6h"]))
@example(pd.Timestamp("2024-03-28"), BERLIN, "h")
@example(pd.Timestamp("2024-10-25"), BERLIN, "15min")
def test_steps_in_a_zone_equal_pandas(start: object, zone: str, frequency: str) -> None:
    """Times of a zone have the same continuation, however they are written."""
    index = pd.date_range(pd.Timestamp(start, tz="UTC"), periods=200, freq=frequency)
    local = index.tz_convert(zone)
    labels = [moment.isoformat() for moment in local]
    timeline = of(f"{start}Z", frequency, zone, rows=198)
    assert timeline.labels(-198, 200) == labels
    walls, _ = timeline.read(-198, 200)
    np.testing.assert_array_equal(walls, local.tz_localize(None).to_numpy("M8[us]"))
    if frequency == "6h":
        # Local times that occur twice are ambiguous at this step.
        return
    for written in (local.tz_localize(None), local, index):
        listed = [moment.isoformat() for moment in written[:198]]
        assert future(listed, frequency, zone) == labels[198:]


def test_days_of_a_zone_follow_its_clock() -> None:
    for start in ("2024-03-30", "2024-03-29T23:00Z"):
        assert of(start, "D", BERLIN).labels(-3, 4) == [
            "2024-03-30T00:00:00+01:00",
            "2024-03-31T00:00:00+01:00",
            "2024-04-01T00:00:00+02:00",
            "2024-04-02T00:00:00+02:00",
        ]


@pytest.mark.parametrize(
    ("start", "frequency", "zone", "message"),
    [
        ("2024-03-02", "B", None, "the next one is 2024-03-04T00:00:00(; |$)"),
        ("2024-02-10", "ME", None, "the next one is 2024-02-29T00:00:00(; |$)"),
        ("2024-01-01", "W-SUN", None, "the next one is 2024-01-07T00:00:00$"),
        ("2024-03-31T02:30", "h", BERLIN, "the clock of Europe/Berlin skips 2024-03-31T02:30:00"),
        ("2024-10-27T02:30", "h", BERLIN, "shows 2024-10-27T02:30:00 twice: write its UTC offset"),
        ("noon", "h", BERLIN, "expected an ISO 8601 timestamp"),
    ],
)
def test_start_between_steps_is_refused(
    start: str, frequency: str, zone: str | None, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        of(start, frequency, zone)
    assert error.value.param == "inputs[0].start_timestamp"


def test_times_outside_years_1_to_9999_in_a_zone_are_refused() -> None:
    with pytest.raises(TimestampError, match="years 1 to 9999"):
        of("9999-12-31T23:00Z", zone=BERLIN).read(-3, 3)
    for start, listed in (("0001-01-01T00:00Z", None), (None, ["0001-01-01T00:00Z"])):
        with pytest.raises(TimestampError, match="years 1 to 9999"):
            read(start, listed, "D", "America/New_York")


@pytest.mark.parametrize(
    ("frequency", "step", "remedy"),
    [
        ("QS", "2024-03-31", "first day of each quarter, here 2024-01-01"),
        ("QS-FEB", "2024-03-31", "first day of each quarter, here 2024-02-01"),
        ("QE", "2024-01-01", "last day of each quarter, here 2024-03-31"),
        ("QE-NOV", "2024-01-01", "last day of each quarter, here 2024-02-29"),
        ("MS", "2024-02-29", "first day of each month, here 2024-02-01"),
        ("2MS", "2024-02-29", "first day of each month, here 2024-02-01"),
        ("ME", "2024-02-01", "last day of each month, here 2024-02-29"),
        ("YS", "2024-12-31", "first day of each year, here 2024-01-01"),
        ("YE", "2024-01-01", "last day of each year, here 2024-12-31"),
        ("BMS", "2024-06-01", "first business day of each month, here 2024-06-03"),
        ("BMS", "2024-06-28", "first business day of each month, here 2024-06-03"),
        ("BME", "2024-06-30", "last business day of each month, here 2024-06-28"),
        ("BQE-DEC", "2024-06-30", "last business day of each quarter, here 2024-06-28"),
        ("WOM-3FRI", "2024-06-01", "third Fri of each month, here 2024-06-21"),
        ("LWOM-SUN", "2024-06-01", "last Sun of each month, here 2024-06-30"),
    ],
)
def test_other_end_of_a_period_is_refused_with_the_right_day(
    frequency: str, step: str, remedy: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"; send the {remedy}T00:00:00$"):
        check_first(np.datetime64(step, "us"), FixedClock(None), Frequency.parse(frequency), "ds")


def test_last_offset_of_a_list_continues() -> None:
    hours = np.datetime64("2024-03-31T00:00", "us") + np.arange(4) * AN_HOUR
    offsets = np.array([timedelta(hours=1), timedelta(hours=2)], "m8[us]")
    for in_utc, first, expected in ((True, 0, [1, 2, 2, 2]), (False, -2, [1, 1, 1, 2])):
        walls, found = ListedClock(offsets, in_utc=in_utc).read(hours, first)
        assert (np.asarray(found) / AN_HOUR).tolist() == expected
        np.testing.assert_array_equal(walls, hours + found if in_utc else hours)
    for offset in (None, timedelta(hours=1)):
        walls, last_offset = FixedClock(offset).read(hours, 7)
        np.testing.assert_array_equal(walls, hours)
        assert last_offset == offset


@given(st.datetimes(), st.sampled_from(ENDS), st.sampled_from(["s", "15min", "h", "D"]))
def test_written_labels_equal_the_labels(start: object, end: str, frequency: str) -> None:
    timeline = timeline_from(f"{start}{end}", None, Frequency.parse(frequency), 3, "s")
    try:
        labels = timeline.labels(0, 5)
    except ValueError:
        return
    assert json.loads(write_labels(timeline, 5)) == labels
    assert json.loads(write_labels(timeline, 1)) == labels[:1]


def test_labels_with_varying_offsets_and_of_the_last_day() -> None:
    timelines = [of("2024-03-30T23:00Z", zone=BERLIN, rows=1)]
    timelines += [of(f"9999-12-31T20:00{end}", rows=1) for end in ENDS]
    for timeline in timelines:
        assert json.loads(write_labels(timeline, 3)) == timeline.labels(0, 3)


@pytest.mark.parametrize(
    ("text", "frequency"),
    [
        *((text, "h") for text in ("h", "H", "hour", "60min")),
        *(("T", "15min"), ("minute", "15min"), ("15T", "15min"), ("H", "2h"), ("D", "B")),
        *(("day", "B"), ("B", "B"), ("W", "2W-SUN"), ("Q", "QS-FEB"), ("M", "SME-20")),
        *(("month", "WOM-3FRI"), ("Y", "BYE-MAR")),
    ],
)
def test_a_frequency_under_any_of_its_names(text: str, frequency: str) -> None:
    check_frequency(text, Frequency.parse(frequency), "f")


@pytest.mark.parametrize(
    ("text", "frequency"),
    [
        *(("30min", "15min"), ("min", "15min"), ("H", "15min"), ("2D", "B"), ("1H", "2h")),
        *(("D", "W"), ("D", "h")),
    ],
)
def test_another_frequency(text: str, frequency: str) -> None:
    expected = f"expected the model's frequency, {frequency}, got {text!r}"
    with pytest.raises(InvalidInputError, match=expected) as error:
        check_frequency(text, Frequency.parse(frequency), "f")
    assert error.value.param == "f"
    with pytest.raises(InvalidInputError, match="expected a frequency such as"):
        check_frequency("T60", Frequency.parse(frequency), "f")


@given(MOMENTS, st.sampled_from(["", "Z", "+05:30"]), st.sampled_from(["7s", "h", "6h", "D", "2W"]))
def test_spacing_gives_all_moments(start: object, offset: str, frequency: str) -> None:
    timeline = of(f"{start}{offset}", frequency, None, rows=5)
    spacing = timeline.spacing
    assert spacing is not None
    last, distance = spacing
    moments = last + distance * np.arange(-4, 4)
    np.testing.assert_array_equal(timeline.moments(-5, 8), moments)


@pytest.mark.parametrize(
    ("frequency", "zone"),
    [("h", BERLIN), ("D", BERLIN), ("MS", None), ("B", None), ("W-MON", None), ("SMS", None)],
)
def test_uneven_times_have_no_spacing(frequency: str, zone: str | None) -> None:
    assert of("2024-01-01", frequency, zone, rows=3).spacing is None
