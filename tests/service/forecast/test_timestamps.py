from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.service.errors import InvalidInputError
from foretell.service.forecast.times import Timeline, find_zone, read_timeline
from foretell.timeaxis.errors import TimestampError
from foretell.timeaxis.frequency import Frequency
from tests.service.forecast.test_timeline import ZONES


def read(
    start: str | None = None,
    listed: list[str] | None = None,
    frequency: str = "h",
    zone: str | None = None,
) -> Timeline | None:
    found = None if zone is None else find_zone(zone, "z")
    rows = 3 if listed is None else len(listed)
    return read_timeline(start, listed, found, Frequency.parse(frequency), rows, "inputs[0]")


def future(listed: list[str], frequency: str = "h", zone: str | None = None) -> list[str]:
    timeline = read(listed=listed, frequency=frequency, zone=zone)
    assert timeline is not None
    assert timeline.rows == len(listed)
    return timeline.labels(0, 2)


def test_no_times_no_timeline() -> None:
    assert read() is None


def test_a_list_and_a_start_agree() -> None:
    listed = ["2024-01-01T00:00:00Z", "2024-01-01T01:00:00Z", "2024-01-01T02:00:00+00:00"]
    assert read(listed=listed) == read("2024-01-01T00:00:00+00:00", listed)
    assert read(listed=listed) == read("2024-01-01T00:00:00+00:00")
    with pytest.raises(InvalidInputError, match="is not the first of timestamps") as error:
        read("2024-01-01T00:00:00", listed)
    assert error.value.param == "inputs[0].start_timestamp"


@pytest.mark.parametrize("end", ["", "Z", "+00:00", "-03:30"])
@pytest.mark.parametrize("form", ["{}:00:00", "{}:00", "{}"])
def test_any_form_of_a_regular_list(form: str, end: str) -> None:
    listed = [form.format(f"2024-01-01T{hour:02}") + end for hour in range(3)]
    following = "2024-01-01T03:00:00" + ("+00:00" if end == "Z" else end)
    assert future(listed)[0] == following


@pytest.mark.parametrize(
    ("listed", "place", "message"),
    [
        (["00:00", "01:00", "03:00"], "[2]", "expected 2024-01-01T02:00:00 .*missing before it"),
        (["00:00", "01:00", "01:00"], "[2]", "repeats the one before it; where a local clock"),
        (["00:00", "01:00", "00:30"], "[2]", "goes back in time"),
        (["00:00", "01:00", "01:30"], "[2]", "lies between two steps"),
        (["00:00", "01:00", "03:30"], "[2]", "lies between two steps"),
        (
            ["00:00Z", "01:00Z", "02:00"],
            "[2]",
            r"a UTC offset at every timestamp or at none, got '\S*T00:00Z' and '\S*T02:00'",
        ),
        (["00:00Z", "01:00Z", "03:00Z"], "[2]", r"expected 2024-01-01T02:00:00\+00:00 "),
        (["00:00Z", "02:00+01:00", "02:00Z", "02:00Z"], "[3]", r"expected 2024-01-01T03:00:00\+0"),
        (["00:00", "noon", "02:00"], "[1]", "expected an ISO 8601 timestamp"),
    ],
)
def test_a_list_that_is_not_regular(listed: list[str], place: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        read(listed=[f"2024-01-01T{text}" for text in listed])
    assert error.value.param == f"inputs[0].timestamps{place}"


@pytest.mark.parametrize("hours", [("01", "03", "04"), ("02", "02", "03")])
def test_local_times_over_a_clock_change_get_advice(hours: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInputError, match=r"times need their UTC offsets, or `time_zone`$"):
        read(listed=[f"2024-03-31T{hour}:00" for hour in hours])
    with pytest.raises(InvalidInputError, match=r"before it$"):
        read(listed=[f"2024-03-31T{hour}:00Z" for hour in hours])


def test_a_list_of_another_length() -> None:
    with pytest.raises(InvalidInputError, match="one for every row of series, got 2") as error:
        read_timeline(None, ["2024-01-01"] * 2, None, Frequency.parse("h"), 3, "inputs[0]")
    assert error.value.param == "inputs[0].timestamps"


def test_a_gap_at_the_end_of_time() -> None:
    with pytest.raises(InvalidInputError, match="expected 10000-01-01T00:00:00"):
        read(listed=["9999-12-31T22:00", "9999-12-31T23:00", "9999-12-31T23:30"])


def test_months_on_the_30th() -> None:
    assert future(["2024-02-29", "2024-03-30", "2024-04-30"], "M") == [
        "2024-05-30T00:00:00",
        "2024-06-30T00:00:00",
    ]


def test_hours_whose_offset_changes_are_an_hour_apart() -> None:
    listed = ["2024-10-27T02:00+02:00", "2024-10-27T02:00+01:00", "2024-10-27T03:00+01:00"]
    assert future(listed) == ["2024-10-27T04:00:00+01:00", "2024-10-27T05:00:00+01:00"]
    with pytest.raises(InvalidInputError, match=r"expected 2024-10-27T03:00:00\+02:00") as error:
        read(listed=[listed[0], "2024-10-27T04:00+02:00", listed[2]])
    assert error.value.param == "inputs[0].timestamps[1]"


def test_days_whose_offset_changes_follow_the_clock() -> None:
    listed = ["2024-03-30T00:00+01:00", "2024-03-31T00:00+01:00", "2024-04-01T00:00+02:00"]
    assert future(listed, "D") == ["2024-04-02T00:00:00+02:00", "2024-04-03T00:00:00+02:00"]
    in_utc = ["2024-03-29T23:00Z", "2024-03-30T23:00Z", "2024-03-31T22:00Z"]
    assert future(in_utc, "D", "Europe/Berlin")[0] == "2024-04-02T00:00:00+02:00"
    with pytest.raises(InvalidInputError, match="between two steps"):
        read(listed=in_utc, frequency="D")


@given(
    st.datetimes(pd.Timestamp("1990-01-01"), pd.Timestamp("2037-01-01")).map(
        lambda moment: moment.replace(second=0, microsecond=0)
    ),
    st.sampled_from(ZONES),
    st.sampled_from(["15min", "h"]),
    st.sampled_from(["local", "offset", "utc"]),
)
def test_a_list_across_a_change_of_the_clock(
    start: object, zone: str, frequency: str, form: str
) -> None:
    """Whatever way the times of a zone are written, the zone tells the same ones to follow."""
    index = pd.date_range(pd.Timestamp(start, tz="UTC"), periods=200, freq=frequency)
    local = index.tz_convert(zone)
    written = {"local": local.tz_localize(None), "offset": local, "utc": index}[form]
    listed = [moment.isoformat() for moment in written[:198]]
    assert future(listed, frequency, zone) == [moment.isoformat() for moment in local[198:]]


@pytest.mark.parametrize(
    ("listed", "place", "message"),
    [
        (["01:30", "02:30", "03:30"], "[1]", "the clock of Europe/Berlin skips"),
        (["00:00", "01:00", "04:00"], "[2]", "steps are missing before it"),
    ],
)
def test_local_times_that_the_zone_does_not_have(
    listed: list[str], place: str, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        read(listed=[f"2024-03-31T{text}" for text in listed], zone="Europe/Berlin")
    assert error.value.param == f"inputs[0].timestamps{place}"


def test_local_times_of_which_nothing_tells_the_moment() -> None:
    with pytest.raises(InvalidInputError, match="twice: write its UTC offset"):
        read(
            listed=["2024-10-27T02:00", "2024-10-27T02:15"], frequency="15min", zone="Europe/Berlin"
        )


def test_the_end_of_time_in_a_zone() -> None:
    for given_as in ({"start": "0001-01-01T00:00Z"}, {"listed": ["0001-01-01T00:00Z"]}):
        with pytest.raises(TimestampError, match="years 1 to 9999"):
            read(**given_as, frequency="D", zone="America/New_York")  # type: ignore[arg-type]
