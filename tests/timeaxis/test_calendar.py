from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import TypeAdapter, ValidationError

from foretell.timeaxis.calendar import Calendar, Feature
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.timestamps import Timestamps


def moments() -> Timestamps:
    """Every day's first and last second around the turns of the years, and random moments."""
    days = np.arange(np.datetime64("1959-12-20"), np.datetime64("2040-01-15"), dtype="M8[D]")
    turns = days[(days.astype("M8[M]").astype(int) % 12 % 11) == 0].astype("M8[us]")
    leap = np.array(["1900-02-28", "1900-03-01", "2000-02-29", "2024-02-29"], "M8[us]")
    last_second = np.timedelta64(86399, "s")
    random = np.random.default_rng(0).integers(-3 * 10**9, 4 * 10**9, 20_000)
    return np.concatenate([turns, turns + last_second, leap, random.astype("M8[s]")])


# The feature in pandas, and the first value and the range by which published code scales.
KNOWN: dict[Feature, tuple[Callable[[pd.DatetimeIndex], Any], int, int]] = {
    "second": (lambda index: index.second, 0, 59),
    "minute": (lambda index: index.minute, 0, 59),
    "hour": (lambda index: index.hour, 0, 23),
    "day_of_week": (lambda index: index.day_of_week, 0, 6),
    "day_of_month": (lambda index: index.day, 1, 30),
    "day_of_year": (lambda index: index.day_of_year, 1, 365),
    "week": (lambda index: index.isocalendar().week, 1, 52),
    "month": (lambda index: index.month, 1, 11),
}


def test_features_equal_those_of_pandas_and_of_the_published_code() -> None:
    timestamps = moments()
    index = pd.DatetimeIndex(timestamps)
    integers = Calendar(encoding="integer", features=(*KNOWN, "quarter_hour")).encode(timestamps)
    scaled = Calendar(encoding="scaled", features=tuple(KNOWN)).encode(timestamps)
    assert integers.dtype == scaled.dtype == np.float32
    for column, (read, first, span) in enumerate(KNOWN.values()):
        values = np.asarray(read(index), np.int64)
        np.testing.assert_array_equal(integers[:, column], values)
        np.testing.assert_allclose(scaled[:, column], (values - first) / span - 0.5, atol=1e-7)
    np.testing.assert_array_equal(integers[:, -1], index.minute // 15)
    assert {1, 52, 53} <= set(integers[:, [*KNOWN].index("week")].tolist())
    assert (scaled.min(), scaled.max()) == (-0.5, 0.5)


@pytest.mark.parametrize(
    ("frequencies", "features"),
    [
        ("us ms s", "second minute hour day_of_week day_of_month day_of_year"),
        ("15min", "minute hour day_of_week day_of_month day_of_year"),
        ("h", "hour day_of_week day_of_month day_of_year"),
        ("D B", "day_of_week day_of_month day_of_year"),
        ("W-SUN", "day_of_month week"),
        ("SMS", "day_of_month month"),
        ("MS BME WOM-3FRI QE", "month"),
        ("YE", ""),
    ],
)
def test_features_of_a_frequency(frequencies: str, features: str) -> None:
    for frequency in frequencies.split():
        calendar = Calendar.for_frequency(Frequency.parse(frequency), "scaled")
        assert calendar.features == tuple(features.split())
        encoded = calendar.encode(np.array(["2024-02-29T13:14:15"] * 3, "M8[us]"))
        assert encoded.shape == (3, len(calendar.features))


def test_integer_features() -> None:
    hourly = Calendar.for_frequency(Frequency.parse("h"), "integer")
    assert hourly.features == ("month", "day_of_month", "day_of_week", "hour")
    minutely = Calendar.for_frequency(Frequency.parse("15min"), "integer")
    encoded = minutely.encode(np.array(["2024-02-29T13:46"], "M8[us]"))
    assert encoded.tolist() == [[2, 29, 3, 13, 3]]


def test_an_unknown_feature_is_refused() -> None:
    with pytest.raises(ValidationError, match="features"):
        TypeAdapter(Calendar).validate_python({"encoding": "scaled", "features": ["moon"]})
