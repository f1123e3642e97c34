import numpy as np
import pandas as pd
import pytest

from bundle.errors import FrequencyError
from bundle.frequency import Frequency, Unit
from bundle.timestamps import Timestamps

WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
FIXED = ("s", "min", "h", "D")
WEEKLY = tuple(f"W-{day}" for day in WEEKDAYS)
ANCHORED = tuple(f"{unit}-{month}" for unit in ("QS", "QE", "YS", "YE") for month in MONTHS)
ALIASES = (*FIXED, "B", *WEEKLY, "MS", "ME", *ANCHORED)
STARTS = (
    "2019-11-13T07:30:05",  # a Wednesday
    "2020-02-29T23:59:59",  # a Saturday, the last of February
    "2020-03-01T00:00:00",  # a Sunday
    "2023-12-31T12:00:00",
    "1900-01-31T06:00:00",
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
        assert frequency.first_irregularity(steps) is None


@pytest.mark.parametrize("alias", ["15min", "B", "W-SUN", "ME", "QS-FEB", "YE-DEC", "M", "Q"])
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
        ("999999s", Unit.SECOND, 999999, None, None),
    ],
)
def test_parse(text: str, unit: Unit, multiple: int, edge: str | None, anchor: int | None) -> None:
    frequency = Frequency.parse(text)
    assert (frequency.unit, frequency.multiple) == (unit, multiple)
    assert (frequency.edge, frequency.anchor) == (edge, anchor)


@pytest.mark.parametrize("text", [*ALIASES, "15min", "4QS-FEB", "M", "2Q", "Y", "W"])
def test_the_name_is_a_pandas_alias_and_reads_back(text: str) -> None:
    assert str(Frequency.parse(text)) == text
    assert Frequency.parse(str(Frequency.parse(text))) == Frequency.parse(text)


@pytest.mark.parametrize(
    "text",
    ["", "x", "m", "0h", "-1h", "1.5h", "15 min", " h", "h ", "1000000s", "hourly", "h\n", "٣h"],
)
def test_parse_refuses_what_names_no_frequency(text: str) -> None:
    with pytest.raises(FrequencyError, match="expected a frequency such as"):
        Frequency.parse(text)


@pytest.mark.parametrize("text", ["h-SUN", "W-JAN", "MS-JAN", "QS-SUN", "B-MON", "W-XXX"])
def test_parse_refuses_a_foreign_anchor(text: str) -> None:
    with pytest.raises(FrequencyError, match="is no anchor of"):
        Frequency.parse(text)


def test_a_refused_text_is_shown_in_part() -> None:
    with pytest.raises(FrequencyError) as raised:
        Frequency.parse("h" * 10_000)
    assert len(str(raised.value)) < 150


@pytest.mark.parametrize(
    ("text", "letter"),
    [*zip(("s", "min", "h", "D", "B", "W-MON", "MS", "QE", "Y"), "STHDDWMQY", strict=True)],
)
def test_kserve_letter(text: str, letter: str) -> None:
    assert Frequency.parse(text).kserve == letter


@pytest.mark.parametrize(
    "alias", [*FIXED, "15min", "6h", "B", "2D", *WEEKLY, "2W-TUE", "4W-FRI", "MS", "2MS", "ME"]
)
def test_infer(alias: str) -> None:
    timestamps = expected("2019-11-13T07:00", 40, alias)
    inferred = Frequency.infer(timestamps)
    assert inferred.agrees_with(Frequency.parse(alias))
    assert inferred.first_irregularity(timestamps) is None
    assert str(inferred) == alias


@pytest.mark.parametrize("alias", ANCHORED)
def test_infer_quarters_and_years(alias: str) -> None:
    timestamps = expected("2019-11-13", 8, alias)
    inferred = Frequency.infer(timestamps)
    assert inferred.agrees_with(Frequency.parse(alias))
    assert inferred.first_irregularity(timestamps) is None
    # A start in January may be a quarter's or a year's: the edge alone is sure.
    assert str(inferred) == alias.split("-")[0]


def test_infer_months_on_a_day_of_their_own() -> None:
    timestamps = moments("2024-01-15", "2024-02-15", "2024-03-15", "2024-04-15")
    assert str(Frequency.infer(timestamps)) == "M"


@pytest.mark.parametrize(
    "months",
    [("2023-07-01", "2023-08-01", "2023-09-01"), ("2023-11-30", "2023-12-31", "2024-01-31")],
)
def test_infer_prefers_months_to_equal_days(months: tuple[str, ...]) -> None:
    assert Frequency.infer(moments(*months)).unit is Unit.MONTH


@pytest.mark.parametrize(
    ("timestamps", "message"),
    [
        (moments("2024-01-01", "2024-01-02"), "at least three"),
        (moments(*["2024-01-01"] * 3), "no timestamp is later"),
        (moments("2024-01-03", "2024-01-02", "2024-01-01"), "no timestamp is later"),
        (np.arange(5) * np.timedelta64(1_500_000, "us") + moments("2024-01-01"), "1.5 seconds"),
        (np.arange(5) * np.timedelta64(1_000, "us") + moments("2024-01-01"), "0.001 seconds"),
    ],
)
def test_infer_refuses(timestamps: Timestamps, message: str) -> None:
    with pytest.raises(FrequencyError, match=message):
        Frequency.infer(timestamps)


def test_infer_takes_the_spacing_most_steps_have() -> None:
    hourly = expected("2024-01-01", 48, "h")
    holes = np.delete(hourly, [5, 6, 20, 33])
    assert str(Frequency.infer(holes)) == "h"
    twice = np.insert(hourly, 7, hourly[7])
    assert str(Frequency.infer(twice)) == "h"


@pytest.mark.parametrize(
    ("index", "moment", "kind"),
    [
        (5, "2024-01-01T06:00", "gap"),
        (5, "2024-01-01T04:00", "duplicate"),
        (5, "2024-01-01T02:00", "order"),
        (5, "2024-01-01T04:30", "misaligned"),
        (1, "2023-12-31T23:00", "order"),
        (9, "2025-01-01T00:00", "gap"),
    ],
)
def test_first_irregularity(index: int, moment: str, kind: str) -> None:
    hourly = expected("2024-01-01", 10, "h")
    broken = hourly.copy()
    broken[index] = np.datetime64(moment)
    found = Frequency.parse("h").first_irregularity(broken)
    assert found is not None
    assert (found.index, found.kind, found.expected) == (index, kind, hourly[index])


@pytest.mark.parametrize(
    ("text", "first", "allowed"),
    [
        ("B", "2024-01-06", "2024-01-08"),
        ("MS", "2024-01-15", "2024-02-01"),
        ("ME", "2024-01-15", "2024-01-31"),
        ("W-SUN", "2024-01-15", "2024-01-21"),
        ("QS-JAN", "2024-02-01", "2024-04-01"),
    ],
)
def test_a_first_timestamp_the_frequency_does_not_allow(
    text: str, first: str, allowed: str
) -> None:
    frequency = Frequency.parse(text)
    rest = frequency.steps_from(np.datetime64(allowed), 3)
    for timestamps in (moments(first), np.concatenate([moments(first), rest])):
        found = frequency.first_irregularity(timestamps)
        assert found is not None
        assert (found.index, found.kind) == (0, "misaligned")
        assert found.expected == np.datetime64(allowed)


def test_no_timestamps_are_regular() -> None:
    assert Frequency.parse("h").first_irregularity(moments()) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("h", "H"),
        ("60min", "h"),
        ("24h", "D"),
        ("7D", "W-SUN"),
        ("W", "W-MON"),
        ("12MS", "YS"),
        ("3MS", "QS-JAN"),
        ("QS-JAN", "QS-OCT"),
        ("4QE-DEC", "YE-DEC"),
        ("M", "ME"),
        ("Q-DEC", "QE"),
    ],
)
def test_agrees(one: str, other: str) -> None:
    assert Frequency.parse(one).agrees_with(Frequency.parse(other))
    assert Frequency.parse(other).agrees_with(Frequency.parse(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("h", "min"),
        ("h", "2h"),
        ("D", "B"),
        ("MS", "ME"),
        ("W-SUN", "W-MON"),
        ("QS-JAN", "QS-FEB"),
        ("YE-DEC", "YE-JUN"),
        ("YS-JAN", "YS-APR"),
        ("ME", "30D"),
    ],
)
def test_disagrees(one: str, other: str) -> None:
    assert not Frequency.parse(one).agrees_with(Frequency.parse(other))
    assert not Frequency.parse(other).agrees_with(Frequency.parse(one))
