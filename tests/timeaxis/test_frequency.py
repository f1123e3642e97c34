from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from dateutil.relativedelta import relativedelta
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.timeaxis.errors import FrequencyError
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.regularity import first_irregularity
from foretell.timeaxis.season import season_name, season_of
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
STARTS = (
    datetime(2020, 2, 29, 23, 59, 59),  # a Saturday, the last of February
    datetime(2020, 3, 1),  # a Sunday
    datetime(2023, 12, 31, 12),
    datetime(1900, 1, 31, 6),
)
MOMENTS = st.datetimes(datetime(1800, 1, 1), datetime(2100, 1, 1)).map(
    lambda moment: moment.replace(microsecond=0)
)


def expected(start: str, periods: int, alias: str) -> Timestamps:
    return pd.date_range(start, periods=periods, freq=alias).to_numpy("M8[us]")


def moments(*texts: str) -> Timestamps:
    return np.array(texts, "M8[us]")


def compare(alias: str, multiple: int, start: str, periods: int) -> None:
    """Compare steps with those of pandas, forwards and backwards."""
    text = f"{multiple}{alias}"
    frequency = Frequency.parse(text)
    # pandas rolls a start with the multiple, so both begin on the first step of the alias.
    first = expected(start, 1, alias)[0]
    steps = frequency.steps_from(np.datetime64(start), periods)
    assert steps.dtype == np.dtype("M8[us]")
    np.testing.assert_array_equal(steps, expected(str(first), periods, text))
    assert first_irregularity(frequency, steps) is None
    np.testing.assert_array_equal(
        frequency.steps_from(steps[-1], periods, first=-periods + 1), steps
    )
    order = np.random.default_rng(0).permutation(periods)
    shifted = steps[order] + (order % 3 == 0) * np.timedelta64(1, "us")
    found, is_step = frequency.steps_of(shifted, first)
    assert is_step.tolist() == (order % 3 != 0).tolist()
    np.testing.assert_array_equal(found[is_step], order[is_step])


@pytest.mark.parametrize("alias", ALIASES)
@settings(max_examples=30)
@given(st.integers(1, 40), st.sampled_from(STARTS) | MOMENTS, st.integers(2, 60))
def test_steps_equal_those_of_pandas(
    alias: str, multiple: int, start: datetime, periods: int
) -> None:
    compare(alias, multiple, start.isoformat(), periods)


@settings(max_examples=300)
@given(MOMENTS, st.booleans(), st.sampled_from("MQY"), st.integers(1, 5), st.integers(-15, 0))
def test_a_frequency_without_an_edge_keeps_the_day(
    start: datetime, at_end: bool, unit: str, multiple: int, first: int
) -> None:
    """As in KServe, except for the last day of a month, which stays the last day."""
    if at_end:
        start = start.replace(day=28) + timedelta(days=4)
        start -= timedelta(days=start.day)
    months = multiple * {"M": 1, "Q": 3, "Y": 12}[unit]
    days = {"day": 31} if (start + timedelta(days=1)).day == 1 else {}
    wanted = [start + relativedelta(months=months * step, **days) for step in range(first, 30)]
    found = Frequency.parse(f"{multiple}{unit}").steps_from(
        np.datetime64(start), 30 - first, first=first
    )
    assert found.tolist() == wanted


def test_anchors_without_an_edge() -> None:
    found = Frequency.parse("Q-MAR").steps_from(np.datetime64("2023-05-15"), 3)
    np.testing.assert_array_equal(found, moments("2023-06-15", "2023-09-15", "2023-12-15"))
    found = Frequency.parse("W").steps_from(np.datetime64("2024-01-03"), 2)
    np.testing.assert_array_equal(found, moments("2024-01-03", "2024-01-10"))


SPELLINGS = (
    "H=h hour=h T=min t=min minute=min 30S=30s second=s d=D day=D b=B week=W month=M quarter=Q "
    "year=Y A-JAN=Y-JAN AS=YS SMS=SMS-15 SME=SME-15"
)
NAMES = {
    **dict(pair.split("=") for pair in SPELLINGS.split()),
    **{text: text for text in (*ALIASES, "15min", "2W-MON", "4QS-FEB", "2Q", "999999s", "BYE")},
}


@pytest.mark.parametrize(("text", "alias"), NAMES.items())
def test_names_are_written_as_aliases_of_pandas(text: str, alias: str) -> None:
    assert str(Frequency.parse(text)) == alias
    assert Frequency.parse(alias) == Frequency.parse(text)


REFUSED = {
    "^expected a frequency such as": [
        *("", "x", "m", "0h", "-1h", "1.5h", "15 min", " h", "h ", "1000000s", "hourly", "h\n"),
        *("٣h", "h-", "W-1mon", "h" * 1000),
    ],
    "is no anchor of": [
        *("h-SUN", "W-JAN", "MS-JAN", "QS-SUN", "B-MON", "W-XXX", "BMS-JAN", "BQE-MON", "W-1MON"),
        *("SMS-1", "SMS-28", "SMS-015", "SMS-MON", "SME-0", "SME-28", "h-A-B"),
    ],
    "is no week of the month; expected WOM-1MON … WOM-4SUN": [
        *("WOM", "WOM-MON", "WOM-5MON", "WOM-0MON", "WOM-1JAN", "2WOM-1"),
    ],
    "is no week of the month; expected LWOM-MON … LWOM-SUN": ["LWOM", "LWOM-1MON", "2LWOM-JAN"],
    "calendar of holidays.*; the nearest is B$": ["C", "2C"],
    "calendar of holidays.*; the nearest is BMS$": ["2CBMS"],
    "calendar of holidays.*; the nearest is BME$": ["CBME"],
    "opening hours.*; the nearest is h$": ["bh", "cbh"],
    "microsecond.*; the nearest is us$": ["ns"],
    "52 or 53 weeks.*; the nearest is 12LWOM-SAT": ["RE-L-DEC-SAT"],
    "52 or 53 weeks.*; the nearest is 13W$": ["REQ-N-DEC-MON-1"],
}


@pytest.mark.parametrize(
    ("text", "message"), [(text, message) for message, texts in REFUSED.items() for text in texts]
)
def test_parse_refuses(text: str, message: str) -> None:
    with pytest.raises(FrequencyError, match=message) as raised:
        Frequency.parse(text)
    # A long text is shown in part.
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("letter", "texts"),
    [
        ("S", "us ms s"),
        ("T", "min"),
        ("H", "h"),
        ("D", "D B"),
        ("W", "W-MON"),
        ("M", "MS SMS BME WOM-1MON LWOM-FRI"),
        ("Q", "QE BQS-JAN"),
        ("Y", "Y BYE"),
    ],
)
def test_kserve_letter(letter: str, texts: str) -> None:
    assert {Frequency.parse(text).kserve for text in texts.split()} == {letter}


AGREEING = (
    "h H, 60min h, 1000ms s, 5000us 5ms, 24h D, 7D W-SUN, W W-MON, 12MS YS, 3MS QS-JAN, "
    "QS-JAN QS-OCT, 4QE-DEC YE-DEC, M ME, Q-DEC QE, M BMS, M WOM-1MON, SMS SMS-15, 12BME BYE, "
    "BQS-JAN BQS-APR"
)
DIFFERING = (
    "h min, s ms, us ms, h 2h, D B, MS ME, W-SUN W-MON, QS-JAN QS-FEB, YE-DEC YE-JUN, "
    "YS-JAN YS-APR, ME 30D, MS BMS, BMS BME, SMS SME, SMS SMS-16, SMS-3 SMS-15, 2SMS MS, "
    "WOM-1MON WOM-2MON, WOM-1MON WOM-1TUE, WOM-4FRI LWOM-FRI, LWOM-FRI BME"
)


@pytest.mark.parametrize(
    ("pair", "agree"),
    [(pair, True) for pair in AGREEING.split(", ")]
    + [(pair, False) for pair in DIFFERING.split(", ")],
)
def test_agrees_with(pair: str, agree: bool) -> None:
    one, other = map(Frequency.parse, pair.split())
    assert one.agrees_with(other) == other.agrees_with(one) == agree


@pytest.mark.parametrize(
    ("frequencies", "name"),
    [
        ({"10ms": 100, "1000us": 1000}, "second"),
        ({"s": 60, "10s": 6}, "minute"),
        ({"min": 1440, "15min": 96, "h": 24, "6h": 4, "7min": None, "24h": None}, "day"),
        ({"D": 7, "B": 5, "2D": None}, "week"),
        ({"W-SUN": 52, "MS": 12, "BME": 12, "WOM-3FRI": 12, "SMS": 24, "3SME": 8, "QE": 4}, "year"),
        ({"YS": None}, "season"),
    ],
)
def test_season_of(frequencies: dict[str, int | None], name: str) -> None:
    for frequency, season in frequencies.items():
        assert season_of(Frequency.parse(frequency), context=1440) == season
        assert season_name(Frequency.parse(frequency)) == name


def test_context_shorter_than_the_season_has_no_season() -> None:
    assert season_of(Frequency.parse("h"), 24) == 24
    assert season_of(Frequency.parse("h"), 23) is None


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("60min", "h"),
        ("90min", "90min"),
        ("5400s", "90min"),
        ("24h", "24h"),
        ("14D", "2W"),
        ("10D", "10D"),
        ("2W-SUN", "2W-SUN"),
        ("12M", "Y"),
        ("6MS", "2QS"),
        ("12BME", "BYE"),
        ("QS-OCT", "QS-JAN"),
        ("BQE-DEC", "BQE-MAR"),
        ("4QS-OCT", "4QS-JAN"),
        ("YS-OCT", "YS-OCT"),
        ("12WOM-3FRI", "12WOM-3FRI"),
        ("5B", "5B"),
        ("SMS", "SMS-15"),
    ],
)
def test_canonical_frequency_has_the_same_steps(text: str, canonical: str) -> None:
    frequency = Frequency.parse(text)
    assert str(frequency.canonical) == canonical
    assert frequency.canonical.canonical == frequency.canonical
    for start in STARTS:
        np.testing.assert_array_equal(
            frequency.canonical.steps_from(np.datetime64(start), 20),
            frequency.steps_from(np.datetime64(start), 20),
        )
