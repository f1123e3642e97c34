from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from dateutil.relativedelta import relativedelta
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.timeaxis.errors import FrequencyError
from foretell.timeaxis.frequency import Frequency, Unit
from foretell.timeaxis.regularity import first_irregularity
from foretell.timeaxis.timestamps import Timestamps

WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
FIXED = ("ms", "s", "min", "h", "D")
WEEKLY = tuple(f"W-{day}" for day in WEEKDAYS)
ANCHORED = tuple(
    f"{days}{unit}-{month}"
    for days in ("", "B")
    for unit in ("QS", "QE", "YS", "YE")
    for month in MONTHS
)
SEMI_MONTHLY = ("SMS-2", "SMS-15", "SMS-27", "SME-1", "SME-15", "SME-27")
WEEKS_OF_MONTH = tuple(f"{week}{day}" for week in ("WOM-1", "WOM-4", "LWOM-") for day in WEEKDAYS)
MONTHLY = ("MS", "ME", "BMS", "BME", "WOM-2WED", "WOM-3FRI", *WEEKS_OF_MONTH)
ALIASES = (*FIXED, "B", *WEEKLY, *SEMI_MONTHLY, *MONTHLY, *ANCHORED)
EXPECTED = "expected a frequency such as"
STARTS = (
    "2019-11-13T07:30:05",  # a Wednesday
    "2020-02-29T23:59:59",  # a Saturday, the last of February
    "2020-03-01T00:00:00",  # a Sunday
    "2023-12-31T12:00:00",
    "1900-01-31T06:00:00",
)
SECONDS = st.datetimes(datetime(1800, 1, 1), datetime(2100, 1, 1)).map(
    lambda moment: moment.replace(microsecond=0)
)


def expected(start: str, periods: int, alias: str) -> Timestamps:
    return pd.date_range(start, periods=periods, freq=alias).to_numpy("M8[us]")


def moments(*texts: str) -> Timestamps:
    return np.array(texts, "M8[us]")


@pytest.mark.parametrize("multiple", [1, 2, 3, 15])
@pytest.mark.parametrize("alias", ALIASES)
def test_steps_are_those_of_pandas(alias: str, multiple: int) -> None:
    text = alias if multiple == 1 else f"{multiple}{alias}"
    frequency = Frequency.parse(text)
    for start in STARTS:
        # pandas rolls a start with the multiple, so both begin on the first step of the alias.
        first = expected(start, 1, alias)[0]
        steps = frequency.steps_from(np.datetime64(start), 40)
        assert steps.dtype == np.dtype("M8[us]")
        assert steps[0] == first
        np.testing.assert_array_equal(steps, expected(str(first), 40, text))
        assert first_irregularity(frequency, steps) is None


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from(ALIASES),
    st.integers(1, 40),
    st.datetimes(datetime(1800, 1, 1), datetime(2100, 1, 1)).map(
        lambda t: t.replace(microsecond=0)
    ),
    st.integers(2, 60),
)
def test_any_steps_are_those_of_pandas(
    alias: str, multiple: int, start: datetime, periods: int
) -> None:
    text = f"{multiple}{alias}"
    frequency = Frequency.parse(text)
    first = expected(start.isoformat(), 1, alias)[0]
    steps = frequency.steps_from(np.datetime64(start), periods)
    np.testing.assert_array_equal(steps, expected(str(first), periods, text))
    assert first_irregularity(frequency, steps) is None
    last = periods - 1
    moments = steps[last] + np.array([0, 1], "m8[us]")
    found, is_step = frequency.steps_of(moments, first)
    assert found[0] == last
    assert is_step.tolist() == [True, False]
    found, is_step = frequency.steps_of(steps[:1], steps[last])
    assert (found[0], is_step[0]) == (-last, True)


@settings(deadline=None, max_examples=100)
@given(st.dates(date(1900, 1, 1), date(2100, 1, 1)), st.sampled_from("MQY"), st.integers(1, 5))
def test_days_of_the_month_are_those_of_kserve(start: date, unit: str, multiple: int) -> None:
    """But for the last day of a month, which stays the last."""
    if (start + timedelta(days=1)).day == 1:
        return
    months = multiple * {"M": 1, "Q": 3, "Y": 12}[unit]
    found = Frequency.parse(f"{multiple}{unit}").steps_from(np.datetime64(start), 30)
    by_kserve = [start + relativedelta(months=months * step) for step in range(30)]
    assert found.astype("M8[D]").tolist() == by_kserve


@pytest.mark.parametrize(
    "alias",
    [
        "250us",
        "15min",
        "B",
        "W-SUN",
        "ME",
        "QS-FEB",
        "YE-DEC",
        "M",
        "Q",
        "SMS",
        "SME",
        "BME",
        "WOM-3FRI",
    ],
)
def test_steps_before_the_start_continue_the_series(alias: str) -> None:
    frequency = Frequency.parse(alias)
    start = frequency.steps_from(np.datetime64("2020-08-31"), 1)[0]
    earlier = frequency.steps_from(start, 30, first=-20)
    np.testing.assert_array_equal(earlier[20:], frequency.steps_from(start, 10))
    np.testing.assert_array_equal(frequency.steps_from(start, 3, first=7), earlier[27:])
    assert (np.diff(earlier) > np.timedelta64(0, "us")).all()


@pytest.mark.parametrize(
    ("text", "start", "steps"),
    [
        ("M", "2023-12-31", ["2024-01-31", "2024-02-29", "2024-03-31"]),
        ("M", "2024-02-29", ["2024-03-31", "2024-04-30"]),
        ("M", "2024-01-30", ["2024-02-29", "2024-03-30"]),
        ("M", "2023-01-15T08:00", ["2023-02-15T08:00", "2023-03-15T08:00"]),
        ("Q", "2023-05-31", ["2023-08-31", "2023-11-30", "2024-02-29"]),
        ("Q-MAR", "2023-05-15", ["2023-09-15", "2023-12-15"]),
        ("Y", "2024-02-29", ["2025-02-28", "2026-02-28", "2027-02-28", "2028-02-29"]),
        ("W", "2024-01-03", ["2024-01-10", "2024-01-17"]),
    ],
)
def test_a_frequency_without_an_edge_keeps_the_day(text: str, start: str, steps: list[str]) -> None:
    found = Frequency.parse(text).steps_from(np.datetime64(start), len(steps) + 1)
    np.testing.assert_array_equal(found[1:], moments(*steps))


@pytest.mark.parametrize(
    ("text", "unit", "multiple", "edge", "anchor"),
    [
        ("H", Unit.HOUR, 1, None, None),
        ("hour", Unit.HOUR, 1, None, None),
        ("T", Unit.MINUTE, 1, None, None),
        ("15min", Unit.MINUTE, 15, None, None),
        ("30S", Unit.SECOND, 30, None, None),
        ("day", Unit.DAY, 1, None, None),
        ("b", Unit.BUSINESS_DAY, 1, None, None),
        ("W-SUN", Unit.WEEK, 1, None, 6),
        ("2W-MON", Unit.WEEK, 2, None, 0),
        ("M", Unit.MONTH, 1, None, None),
        ("MS", Unit.MONTH, 1, "start", None),
        ("ME", Unit.MONTH, 1, "end", None),
        ("quarter", Unit.QUARTER, 1, None, None),
        ("QE-DEC", Unit.QUARTER, 1, "end", 12),
        ("A-JAN", Unit.YEAR, 1, None, 1),
        ("AS", Unit.YEAR, 1, "start", None),
        ("YE-JUN", Unit.YEAR, 1, "end", 6),
        ("SMS", Unit.SEMI_MONTH, 1, "start", 15),
        ("2SME-20", Unit.SEMI_MONTH, 2, "end", 20),
        ("BME", Unit.MONTH, 1, "end", None),
        ("BQS-FEB", Unit.QUARTER, 1, "start", 2),
        ("LWOM-FRI", Unit.MONTH, 1, "end", None),
        ("999999s", Unit.SECOND, 999999, None, None),
    ],
)
def test_parse(text: str, unit: Unit, multiple: int, edge: str | None, anchor: int | None) -> None:
    frequency = Frequency.parse(text)
    assert (frequency.unit, frequency.multiple) == (unit, multiple)
    assert (frequency.edge, frequency.anchor) == (edge, anchor)


@pytest.mark.parametrize("text", [*ALIASES, "15min", "4QS-FEB", "M", "2Q", "Y", "W", "BYE"])
def test_the_name_is_a_pandas_alias_and_reads_back(text: str) -> None:
    assert str(Frequency.parse(text)) == text
    assert Frequency.parse(str(Frequency.parse(text))) == Frequency.parse(text)


@pytest.mark.parametrize(
    "text",
    ["", "x", "m", "0h", "-1h", "1.5h", "15 min", " h", "h ", "1000000s", "hourly", "h\n", "٣h"],
)
def test_parse_refuses_what_names_no_frequency(text: str) -> None:
    with pytest.raises(FrequencyError, match=EXPECTED):
        Frequency.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        *("h-SUN", "W-JAN", "MS-JAN", "QS-SUN", "B-MON", "W-XXX", "BMS-JAN", "BQE-MON", "W-1MON"),
        *("SMS-1", "SMS-28", "SMS-015", "SMS-MON", "SME-0", "SME-28", "h-", "h-A-B"),
    ],
)
def test_parse_refuses_a_foreign_anchor(text: str) -> None:
    with pytest.raises(FrequencyError, match=f"is no anchor of|{EXPECTED}"):
        Frequency.parse(text)


@pytest.mark.parametrize("text", ["WOM", "WOM-MON", "WOM-5MON", "WOM-0MON", "WOM-1JAN", "2WOM-1"])
def test_parse_refuses_what_is_no_week_of_the_month(text: str) -> None:
    with pytest.raises(FrequencyError, match="is no week of the month; expected WOM-1MON … WOM-4S"):
        Frequency.parse(text)
    last = text.replace("WOM", "LWOM").replace("-MON", "-1MON")
    with pytest.raises(FrequencyError, match="week of the month; expected LWOM-MON … LWOM-SUN"):
        Frequency.parse(last)


@pytest.mark.parametrize(
    ("text", "why", "nearest"),
    [
        ("C", "calendar of holidays", "B"),
        ("2CBMS", "calendar of holidays", "BMS"),
        ("CBME", "calendar of holidays", "BME"),
        ("bh", "opening hours", "h"),
        ("ns", "microsecond", "us"),
        ("cbh", "opening hours", "h"),
        ("RE-L-DEC-SAT", "52 or 53 weeks", "12LWOM-SAT"),
        ("REQ-N-DEC-MON-1", "52 or 53 weeks", "13W"),
    ],
)
def test_parse_says_why_an_alias_of_pandas_is_refused(text: str, why: str, nearest: str) -> None:
    with pytest.raises(FrequencyError, match=f"^'{text}': .*{why}.*; the nearest is {nearest}"):
        Frequency.parse(text)
    Frequency.parse(nearest)


def test_a_refused_text_is_shown_in_part() -> None:
    with pytest.raises(FrequencyError) as raised:
        Frequency.parse("h" * 10_000)
    assert len(str(raised.value)) < 150


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        *zip(("s", "min", "h", "D", "B", "W-MON", "MS", "QE", "Y"), "STHDDWMQY", strict=True),
        *zip(("ms", "us"), "SS", strict=True),
        *zip(("SMS", "BME", "WOM-1MON", "LWOM-FRI", "BQS-JAN", "BYE"), "MMMMQY", strict=True),
    ],
)
def test_kserve_letter(text: str, letter: str) -> None:
    assert Frequency.parse(text).kserve == letter


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("h", "H"),
        ("60min", "h"),
        ("1000ms", "s"),
        ("5000us", "5ms"),
        ("24h", "D"),
        ("7D", "W-SUN"),
        ("W", "W-MON"),
        ("12MS", "YS"),
        ("3MS", "QS-JAN"),
        ("QS-JAN", "QS-OCT"),
        ("4QE-DEC", "YE-DEC"),
        ("M", "ME"),
        ("Q-DEC", "QE"),
        ("M", "BMS"),
        ("M", "WOM-1MON"),
        ("SMS", "SMS-15"),
        ("12BME", "BYE"),
        ("BQS-JAN", "BQS-APR"),
    ],
)
def test_agrees(one: str, other: str) -> None:
    assert Frequency.parse(one).agrees_with(Frequency.parse(other))
    assert Frequency.parse(other).agrees_with(Frequency.parse(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("h", "min"),
        ("s", "ms"),
        ("us", "ms"),
        ("h", "2h"),
        ("D", "B"),
        ("MS", "ME"),
        ("W-SUN", "W-MON"),
        ("QS-JAN", "QS-FEB"),
        ("YE-DEC", "YE-JUN"),
        ("YS-JAN", "YS-APR"),
        ("ME", "30D"),
        ("MS", "BMS"),
        ("BMS", "BME"),
        ("SMS", "SME"),
        ("SMS", "SMS-16"),
        ("SMS-3", "SMS-15"),
        ("2SMS", "MS"),
        ("WOM-1MON", "WOM-2MON"),
        ("WOM-1MON", "WOM-1TUE"),
        ("WOM-4FRI", "LWOM-FRI"),
        ("LWOM-FRI", "BME"),
    ],
)
def test_disagrees(one: str, other: str) -> None:
    assert not Frequency.parse(one).agrees_with(Frequency.parse(other))
    assert not Frequency.parse(other).agrees_with(Frequency.parse(one))


@pytest.mark.parametrize(
    "text",
    [
        *("15min", "D", "B", "W-WED", "MS", "ME", "QE-NOV", "YS"),
        *("SMS", "2SMS", "3SME-20", "BME", "BQS-FEB", "WOM-3FRI"),
    ],
)
def test_steps_of_moments_in_any_order(text: str) -> None:
    frequency = Frequency.parse(text)
    steps = frequency.steps_from(np.datetime64("2024-01-01", "us"), 30)
    order = np.random.default_rng(0).permutation(30)
    moments = steps[order]
    moments[::3] += np.timedelta64(1, "s")
    found, is_step = frequency.steps_of(moments, steps[0])
    assert is_step.tolist() == [bool(i % 3) for i in range(30)]
    np.testing.assert_array_equal(found[is_step], order[is_step])
