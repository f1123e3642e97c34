from datetime import date, datetime

import numpy as np
import pytest
from dateutil.relativedelta import relativedelta
from hypothesis import given
from hypothesis import strategies as st

from foretell.timeaxis.errors import FrequencyError
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.regularity import first_irregularity, infer, origin
from foretell.timeaxis.timestamps import Timestamps
from tests.timeaxis.test_frequency import (
    ALIASES,
    ANCHORED,
    FIXED,
    MOMENTS,
    MONTHLY,
    SEMI_MONTHLY,
    WEEKLY,
    expected,
    moments,
)

OTHERS = (
    "1500ms 250us 15min 6h B 2B 3B 2D 2W-TUE 4W-FRI 2MS 2BMS 2WOM-3FRI 3LWOM-FRI 3SMS-15 5SME-20"
)
INFERRED = {
    alias: alias
    for alias in (*FIXED, *WEEKLY, *MONTHLY, *SEMI_MONTHLY, *OTHERS.split())
    # A start in January fits quarters and years; only start or end is certain.
} | {alias: alias.split("-")[0] for alias in ANCHORED}


@pytest.mark.parametrize(("alias", "inferred"), INFERRED.items())
def test_infer(alias: str, inferred: str) -> None:
    timestamps = expected("2019-11-13T07:00", 40, alias)
    found = infer(timestamps)
    assert str(found) == inferred
    assert found.agrees_with(Frequency.parse(alias))
    assert first_irregularity(found, timestamps) is None
    if alias == "4W-FRI":
        # Spaced like months where rows are missing.
        return
    holes = np.delete(timestamps, [3, 4, 9, 20, 21, 22, 31])
    assert str(infer(holes)) == inferred
    gap = first_irregularity(found, holes)
    assert gap is not None
    assert (gap.index, gap.kind) == (3, "gap")


@pytest.mark.parametrize("months", range(12))
def test_months_on_a_day_that_some_do_not_have(months: int) -> None:
    """The last day of a short month leaves open whether others follow on the 30th or 31st."""
    days = [date(2023, 1, 30) + relativedelta(months=months + n) for n in range(23)]
    timestamps = np.array(days[:20], "M8[us]")
    frequency = infer(timestamps)
    assert str(frequency) == "M"
    assert first_irregularity(frequency, timestamps) is None
    index = origin(frequency, timestamps)
    following = frequency.steps_from(timestamps[index], 3, first=20 - index)
    assert following.astype("M8[D]").tolist() == days[20:]
    found = first_irregularity(frequency, np.delete(timestamps, 5))
    assert found is not None
    assert (found.index, found.kind) == (5, "gap")


@given(
    st.sampled_from(ALIASES),
    st.integers(1, 4),
    MOMENTS,
    st.integers(12, 40),
    st.data(),
)
def test_every_irregularity_of_a_series_is_found(
    alias: str, multiple: int, start: datetime, periods: int, data: st.DataObject
) -> None:
    timestamps = expected(start.isoformat(), periods, f"{multiple}{alias}")
    inferred = infer(timestamps)
    assert first_irregularity(inferred, timestamps) is None
    frequency = Frequency.parse(f"{multiple}{alias}")
    index = data.draw(st.integers(1, periods - 2))
    late = timestamps.copy()
    late[index] += (timestamps[index + 1] - timestamps[index]) / 2 + np.timedelta64(1, "us")
    early = timestamps.copy()
    early[index] -= np.timedelta64(1, "us")
    broken = {
        "gap": np.delete(timestamps, index),
        "duplicate": np.insert(timestamps, index, timestamps[index - 1]),
        "order": np.insert(timestamps, index, timestamps[index - 1] - np.timedelta64(1, "s")),
        "misaligned": data.draw(st.sampled_from([late, early])),
    }
    for kind, moved in broken.items():
        found = first_irregularity(frequency, moved)
        assert found is not None
        assert (found.index, found.kind, found.expected) == (index, kind, timestamps[index])


NEW_YEAR = np.datetime64("2024-01-01", "us")


@pytest.mark.parametrize(
    ("timestamps", "message"),
    [
        (moments("2024-01-01", "2024-01-02"), "at least three"),
        (moments(*["2024-01-01"] * 3), "no timestamp is later"),
        (moments("2024-01-03", "2024-01-02", "2024-01-01"), "no timestamp is later"),
        *(
            # No alias has this number of microseconds or milliseconds.
            (
                NEW_YEAR + np.arange(9) * np.timedelta64(microseconds, "us"),
                r"\d+[mu]s apart, and .* 999999",
            )
            for microseconds in (1_000_500, 1_234_567, 1_000_500_000)
        ),
    ],
)
def test_infer_refuses(timestamps: Timestamps, message: str) -> None:
    with pytest.raises(FrequencyError, match=message):
        infer(timestamps)


# A few months may fit several rules; business months only fit their own.
@pytest.mark.parametrize(
    ("days", "inferred"),
    [
        ("2024-01-15 2024-02-15 2024-03-15 2024-04-15", "M"),
        ("2023-07-01 2023-08-01 2023-09-01", "MS"),
        ("2023-11-30 2023-12-31 2024-01-31", "ME"),
        ("2024-02-01 2024-03-01 2024-04-01", "MS"),
        ("2024-01-31 2024-04-30 2024-07-31", "QE"),
        ("2024-01-16 2024-04-16 2024-07-16", "Q"),
        ("2023-04-03 2023-07-03 2024-06-03", "Q"),
        ("2023-02-01 2023-02-15 2023-03-01", "2W-WED"),
        ("2023-02-01 2023-03-01 2023-03-15 2023-04-01", "SMS-15"),
        # One irregular day does not turn months into half months.
        ("2024-01-31 2024-02-29 2024-03-31 2024-04-15 2024-04-30 2024-05-31 2024-06-30", "M"),
        (" ".join([*(f"2024-{month:02}-01" for month in range(1, 10)), "2024-09-15"]), "M"),
    ],
)
def test_infer_prefers_the_days_of_a_calendar(days: str, inferred: str) -> None:
    assert str(infer(moments(*days.split()))) == inferred


def test_infer_of_times_that_go_back_or_come_twice() -> None:
    backward = (f"2024-{month:02}-{day}" for month in (1, 4, 7, 10) for day in (15, "01"))
    assert infer(moments(*backward)).multiple > 0
    hourly = expected("2024-01-01", 48, "h")
    assert str(infer(np.insert(hourly, 7, hourly[7]))) == "h"


@pytest.mark.parametrize(
    ("index", "moment", "kind"),
    [
        (5, "2024-01-01T06:00", "gap"),
        (1, "2023-12-31T23:00", "order"),
        (9, "2025-01-01T00:00", "gap"),
        (9, "2025-01-01T00:30", "misaligned"),
    ],
)
def test_first_irregularity(index: int, moment: str, kind: str) -> None:
    hourly = expected("2024-01-01", 10, "h")
    broken = hourly.copy()
    broken[index] = np.datetime64(moment)
    found = first_irregularity(Frequency.parse("h"), broken)
    assert found is not None
    assert (found.index, found.kind, found.expected) == (index, kind, hourly[index])
    assert first_irregularity(Frequency.parse("h"), hourly[:0]) is None


@pytest.mark.parametrize(
    ("text", "first", "allowed"),
    [
        ("B", "2024-01-06", "2024-01-08"),
        ("MS", "2024-01-15", "2024-02-01"),
        ("ME", "2024-01-15", "2024-01-31"),
        ("W-SUN", "2024-01-15", "2024-01-21"),
        ("QS-JAN", "2024-02-01", "2024-04-01"),
        ("BMS", "2024-06-01", "2024-06-03"),
        ("BME", "2024-06-29", "2024-07-31"),
        ("BQS-JAN", "2024-02-01", "2024-04-01"),
        ("SMS", "2024-02-02", "2024-02-15"),
        ("SME-20", "2024-02-21", "2024-02-29"),
        ("WOM-3FRI", "2024-02-01", "2024-02-16"),
        ("LWOM-FRI", "2024-02-24", "2024-03-29"),
    ],
)
def test_a_first_timestamp_the_frequency_does_not_allow(
    text: str, first: str, allowed: str
) -> None:
    frequency = Frequency.parse(text)
    rest = frequency.steps_from(np.datetime64(allowed), 3)
    for timestamps in (moments(first), np.concatenate([moments(first), rest])):
        found = first_irregularity(frequency, timestamps)
        assert found is not None
        assert (found.index, found.kind) == (0, "misaligned")
        assert found.expected == np.datetime64(allowed)
