from __future__ import annotations

import pytest

from bundle.frequency import Frequency
from service.errors import InvalidInputError
from service.timeline import Timeline, check_frequency, read_timeline

HOURLY = Frequency.parse("h")


def read(start: str | None = None, listed: list[str] | None = None, frequency: str = "h"):
    return read_timeline(start, listed, Frequency.parse(frequency), 3, "inputs[0]")


def test_steps_count_from_the_first_forecast_one() -> None:
    timeline = read("2024-02-28T22:00:00+02:00")
    assert isinstance(timeline, Timeline)
    assert timeline.labels(-3, 2) == ["2024-02-28T22:00:00+02:00", "2024-02-28T23:00:00+02:00"]
    assert timeline.labels(0, 1) == ["2024-02-29T01:00:00+02:00"]


def test_no_times_no_timeline() -> None:
    assert read() is None


def test_a_list_and_a_start_agree() -> None:
    listed = ["2024-01-01T00:00:00Z", "2024-01-01T01:00:00Z", "2024-01-01T02:00:00+00:00"]
    assert read(listed=listed) == read("2024-01-01T00:00:00+00:00", listed)
    with pytest.raises(InvalidInputError, match="is not the first of timestamps") as error:
        read("2024-01-01T00:00:00", listed)
    assert error.value.param == "inputs[0].start_timestamp"


@pytest.mark.parametrize(
    ("listed", "place", "message"),
    [
        (["00:00", "01:00"], "", "expected 3 timestamps, one for every row of series, got 2"),
        (["00:00", "01:00", "03:00"], "[2]", "expected 2024-01-01T02:00:00 .*missing before it"),
        (["00:00", "01:00", "01:00"], "[2]", "repeats the one before it"),
        (["00:00", "01:00", "00:30"], "[2]", "goes back in time"),
        (["00:00", "01:00", "01:30"], "[2]", "lies between two steps"),
        (["00:00", "01:00Z", "02:00Z"], "[1]", "expected the UTC offset of the first timestamp"),
        (["00:00", "noon", "02:00"], "[1]", "expected an ISO 8601 timestamp"),
    ],
)
def test_a_list_that_is_not_regular(listed: list[str], place: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        read(listed=[f"2024-01-01T{text}" for text in listed])
    assert error.value.param == f"inputs[0].timestamps{place}"


def test_a_gap_at_the_end_of_time() -> None:
    with pytest.raises(InvalidInputError, match="expected 10000-01-01T00:00:00"):
        read(listed=["9999-12-31T22:00", "9999-12-31T23:00", "9999-12-31T23:30"])


@pytest.mark.parametrize(
    ("frequency", "start", "nearest"),
    [("B", "2024-03-02", "2024-03-04"), ("ME", "2024-02-10", "2024-02-29")],
)
def test_a_start_between_steps(frequency: str, start: str, nearest: str) -> None:
    with pytest.raises(InvalidInputError, match=f"the next one is {nearest}"):
        read(start, frequency=frequency)


@pytest.mark.parametrize("text", ["h", "H", "hour", "60min", "T60"])
def test_frequencies(text: str) -> None:
    if text == "T60":
        with pytest.raises(InvalidInputError, match="expected a frequency such as"):
            check_frequency(text, HOURLY, "f")
    else:
        check_frequency(text, HOURLY, "f")


@pytest.mark.parametrize(
    ("text", "frequency"),
    [
        ("T", "15min"),
        ("minute", "15min"),
        ("15T", "15min"),
        ("H", "2h"),
        ("D", "B"),
        ("day", "B"),
        ("B", "B"),
        ("W", "2W-SUN"),
        ("Q", "QS-FEB"),
    ],
)
def test_kserves_names_mean_the_unit(text: str, frequency: str) -> None:
    check_frequency(text, Frequency.parse(frequency), "f")


@pytest.mark.parametrize(
    ("text", "frequency"),
    [("30min", "15min"), ("min", "15min"), ("H", "15min"), ("2D", "B"), ("1H", "2h"), ("D", "W")],
)
def test_another_multiple_or_unit(text: str, frequency: str) -> None:
    with pytest.raises(InvalidInputError, match=f"frequency, {frequency}, got {text!r}") as error:
        check_frequency(text, Frequency.parse(frequency), "f")
    assert error.value.param == "f"


def test_another_frequency() -> None:
    with pytest.raises(InvalidInputError, match="expected the model's frequency, h, got 'D'"):
        check_frequency("D", HOURLY, "f")
