"""Calendar features: the input of a model about the time of each step.

The scaled encoding is GluonTS's, which Autoformer and the Time-Series-Library call `timeF`. The
integer encoding is the index of their learned and fixed calendar embeddings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from foretell.timeaxis.frequency import Frequency, Unit
from foretell.timeaxis.timestamps import Timestamps

Feature = Literal[
    "second",
    "minute",
    "quarter_hour",
    "hour",
    "day_of_week",
    "day_of_month",
    "day_of_year",
    "week",
    "month",
]
Encoding = Literal["scaled", "integer"]
Integers = NDArray[np.int64]


class _Moments:
    """Parts of timestamps `[time]`, computed when a feature needs them."""

    def __init__(self, timestamps: Timestamps) -> None:
        self._dates = timestamps.astype("M8[D]")
        self.seconds: Integers = timestamps.astype("M8[s]").astype(np.int64)

    @cached_property
    def days(self) -> Integers:
        """Days since 1970-01-01, a Thursday."""
        return self._dates.astype(np.int64)

    @cached_property
    def months(self) -> Integers:
        """Months since January 1970."""
        return self._dates.astype("M8[M]").astype(np.int64)

    @property
    def day_of_month(self) -> Integers:
        return self.days - self.months.astype("M8[M]").astype("M8[D]").astype(np.int64) + 1

    @property
    def day_of_year(self) -> Integers:
        return _day_of_year(self.days, self.months // 12)

    @property
    def week(self) -> Integers:
        # ISO 8601: a week belongs to the year that holds its Thursday.
        thursdays = self.days - (self.days + 3) % 7 + 3
        years = thursdays.astype("M8[D]").astype("M8[Y]").astype(np.int64)
        return (_day_of_year(thursdays, years) - 1) // 7 + 1


def _day_of_year(days: Integers, years: Integers) -> Integers:
    """Days of the year; days and years count from 1970."""
    return days - years.astype("M8[Y]").astype("M8[D]").astype(np.int64) + 1


# Integer value of each feature, and the smallest and largest value, which scaling maps to ±0.5.
_FEATURES: dict[Feature, tuple[Callable[[_Moments], Integers], int, int]] = {
    "second": (lambda at: at.seconds % 60, 0, 59),
    "minute": (lambda at: at.seconds // 60 % 60, 0, 59),
    "quarter_hour": (lambda at: at.seconds // 900 % 4, 0, 3),
    "hour": (lambda at: at.seconds // 3600 % 24, 0, 23),
    "day_of_week": (lambda at: (at.days + 3) % 7, 0, 6),
    "day_of_month": (lambda at: at.day_of_month, 1, 31),
    "day_of_year": (lambda at: at.day_of_year, 1, 366),
    "week": (lambda at: at.week, 1, 53),
    "month": (lambda at: at.months % 12 + 1, 1, 12),
}

_SCALES = {
    name: (np.arange(high - low + 1) / (high - low) - 0.5).astype(np.float32)
    for name, (_, low, high) in _FEATURES.items()
}

_DAILY: tuple[Feature, ...] = ("day_of_week", "day_of_month", "day_of_year")
_SCALED: dict[Unit, tuple[Feature, ...]] = {
    Unit.MICROSECOND: ("second", "minute", "hour", *_DAILY),
    Unit.MILLISECOND: ("second", "minute", "hour", *_DAILY),
    Unit.SECOND: ("second", "minute", "hour", *_DAILY),
    Unit.MINUTE: ("minute", "hour", *_DAILY),
    Unit.HOUR: ("hour", *_DAILY),
    Unit.DAY: _DAILY,
    Unit.BUSINESS_DAY: _DAILY,
    Unit.WEEK: ("day_of_month", "week"),
    Unit.SEMI_MONTH: ("day_of_month", "month"),
    Unit.MONTH: ("month",),
    Unit.QUARTER: ("month",),
    Unit.YEAR: (),
}


@dataclass(frozen=True)
class Calendar:
    """The calendar features that a model reads, in the order of its last input axis."""

    # For manifests and checkpoints, which pydantic reads.
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    encoding: Encoding
    features: tuple[Feature, ...]

    @classmethod
    def for_frequency(cls, frequency: Frequency, encoding: Encoding) -> Calendar:
        """The features that Autoformer and the Time-Series-Library use for this frequency."""
        if encoding == "scaled":
            return cls(encoding=encoding, features=_SCALED[frequency.unit])
        integers: tuple[Feature, ...] = ("month", "day_of_month", "day_of_week", "hour")
        if frequency.sub_daily and frequency.unit is not Unit.HOUR:
            integers = (*integers, "quarter_hour")
        return cls(encoding=encoding, features=integers)

    def encode(self, timestamps: Timestamps) -> NDArray[np.float32]:
        """Features of wall-clock timestamps.

        Args:
            timestamps: `[time]`, wall-clock times.

        Returns:
            `[time, features]`, from -0.5 to 0.5 if scaled, otherwise whole numbers as floats.
        """
        encoded = np.empty((len(timestamps), len(self.features)), np.float32)
        moments = _Moments(timestamps)
        for column, name in enumerate(self.features):
            value, low, _ = _FEATURES[name]
            integers = value(moments)
            if self.encoding == "scaled":
                encoded[:, column] = _SCALES[name][integers - low]
            else:
                encoded[:, column] = integers
        return encoded
