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


ALL: tuple[Feature, ...] = (
    "second",
    "minute",
    "quarter_hour",
    "hour",
    "day_of_week",
    "day_of_month",
    "day_of_year",
    "week",
    "month",
)


def by_pandas(timestamps: Timestamps) -> dict[Feature, np.ndarray]:
    index = pd.DatetimeIndex(timestamps)
    return {
        "second": index.second.to_numpy(),
        "minute": index.minute.to_numpy(),
        "quarter_hour": index.minute.to_numpy() // 15,
        "hour": index.hour.to_numpy(),
        "day_of_week": index.day_of_week.to_numpy(),
        "day_of_month": index.day.to_numpy(),
        "day_of_year": index.day_of_year.to_numpy(),
        "week": index.isocalendar().week.to_numpy(dtype=np.int64),
        "month": index.month.to_numpy(),
    }


def test_integers_are_those_of_pandas() -> None:
    timestamps = moments()
    encoded = Calendar(encoding="integer", features=ALL).encode(timestamps)
    assert encoded.dtype == np.float32
    for column, (name, values) in enumerate(by_pandas(timestamps).items()):
        assert ALL[column] == name
        np.testing.assert_array_equal(encoded[:, column], values)
    weeks = encoded[:, ALL.index("week")]
    assert {1, 52, 53} <= set(weeks.tolist())


def test_scaling_is_that_of_the_published_code() -> None:
    timestamps = moments()
    known = by_pandas(timestamps)
    formulas: dict[Feature, np.ndarray] = {
        "second": known["second"] / 59 - 0.5,
        "minute": known["minute"] / 59 - 0.5,
        "hour": known["hour"] / 23 - 0.5,
        "day_of_week": known["day_of_week"] / 6 - 0.5,
        "day_of_month": (known["day_of_month"] - 1) / 30 - 0.5,
        "day_of_year": (known["day_of_year"] - 1) / 365 - 0.5,
        "week": (known["week"] - 1) / 52 - 0.5,
        "month": (known["month"] - 1) / 11 - 0.5,
    }
    encoded = Calendar(encoding="scaled", features=tuple(formulas)).encode(timestamps)
    np.testing.assert_allclose(encoded, np.column_stack(list(formulas.values())), atol=1e-7)
    assert encoded.min() == -0.5
    assert encoded.max() == 0.5


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
