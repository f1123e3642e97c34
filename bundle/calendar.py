"""Calendar features: what a model is told about the time of each step.

The scaled encoding is GluonTS's, which Autoformer and the Time-Series-Library use as `timeF`; the
integer encoding is what their learned and fixed calendar embeddings index with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from bundle.frequency import Frequency, Unit
from bundle.timestamps import Timestamps, day_of_week

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


def _since(timestamps: Timestamps, unit: Literal["Y", "M", "D", "h", "m"], step: str) -> Integers:
    """Whole `step`s since the start of the `unit` each timestamp lies in."""
    start = timestamps.astype(f"M8[{unit}]").astype("M8[s]")
    return np.asarray((timestamps.astype("M8[s]") - start).astype(f"m8[{step}]").astype(np.int64))


def _iso_week(timestamps: Timestamps) -> Integers:
    # ISO 8601: a week belongs to the year that holds its Thursday.
    days = timestamps.astype("M8[D]")
    thursday = days + (3 - day_of_week(timestamps)).astype("m8[D]")
    return _since(thursday, "Y", "D") // 7 + 1


def _month(timestamps: Timestamps) -> Integers:
    return np.asarray(timestamps.astype("M8[M]").astype(np.int64) % 12 + 1)


# Per feature: its integer value, and the smallest and largest value that the scaling maps to ±0.5.
_FEATURES: dict[Feature, tuple[Callable[[Timestamps], Integers], int, int]] = {
    "second": (lambda t: _since(t, "m", "s"), 0, 59),
    "minute": (lambda t: _since(t, "h", "m"), 0, 59),
    "quarter_hour": (lambda t: _since(t, "h", "m") // 15, 0, 3),
    "hour": (lambda t: _since(t, "D", "h"), 0, 23),
    "day_of_week": (day_of_week, 0, 6),
    "day_of_month": (lambda t: _since(t, "M", "D") + 1, 1, 31),
    "day_of_year": (lambda t: _since(t, "Y", "D") + 1, 1, 366),
    "week": (_iso_week, 1, 53),
    "month": (_month, 1, 12),
}

_DAILY: tuple[Feature, ...] = ("day_of_week", "day_of_month", "day_of_year")
_SCALED: dict[Unit, tuple[Feature, ...]] = {
    Unit.SECOND: ("second", "minute", "hour", *_DAILY),
    Unit.MINUTE: ("minute", "hour", *_DAILY),
    Unit.HOUR: ("hour", *_DAILY),
    Unit.DAY: _DAILY,
    Unit.BUSINESS_DAY: _DAILY,
    Unit.WEEK: ("day_of_month", "week"),
    Unit.MONTH: ("month",),
    Unit.QUARTER: ("month",),
    Unit.YEAR: (),
}


class Calendar(BaseModel):
    """Which calendar features a model reads, in the order of its last input axis."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoding: Encoding
    features: tuple[Feature, ...]

    @classmethod
    def for_frequency(cls, frequency: Frequency, encoding: Encoding) -> Calendar:
        """The features Autoformer and the Time-Series-Library give a model of this frequency."""
        if encoding == "scaled":
            return cls(encoding=encoding, features=_SCALED[frequency.unit])
        integers: tuple[Feature, ...] = ("month", "day_of_month", "day_of_week", "hour")
        if frequency.unit in (Unit.MINUTE, Unit.SECOND):
            integers = (*integers, "quarter_hour")
        return cls(encoding=encoding, features=integers)

    def encode(self, timestamps: Timestamps) -> NDArray[np.float32]:
        """Features of wall-clock timestamps.

        Args:
            timestamps: `[time]`.

        Returns:
            `[time, features]`: in -0.5 … 0.5 when scaled, whole numbers as floats otherwise.
        """
        encoded = np.empty((len(timestamps), len(self.features)), np.float32)
        for column, name in enumerate(self.features):
            value, low, high = _FEATURES[name]
            integers = value(timestamps)
            if self.encoding == "scaled":
                encoded[:, column] = (integers - low) / (high - low) - 0.5
            else:
                encoded[:, column] = integers
        return encoded
