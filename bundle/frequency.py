"""Sampling frequencies: names of pandas and of KServe, and calendar arithmetic on them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator

from foretell.bundle.errors import FrequencyError
from foretell.bundle.timestamps import Timestamps, day_of_week

Edge = Literal["start", "end"]

_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


class Unit(StrEnum):
    """The unit of a frequency; the value is its pandas alias."""

    SECOND = "s"
    MINUTE = "min"
    HOUR = "h"
    DAY = "D"
    BUSINESS_DAY = "B"
    WEEK = "W"
    MONTH = "M"
    QUARTER = "Q"
    YEAR = "Y"


# Where it is not the first letter of the alias.
_KSERVE_LETTER = {Unit.MINUTE: "T", Unit.BUSINESS_DAY: "D"}
# In units of a fixed length, the shortest first, and months in the others.
SECONDS_IN = {
    Unit.SECOND: 1,
    Unit.MINUTE: 60,
    Unit.HOUR: 3600,
    Unit.DAY: 86400,
    Unit.WEEK: 7 * 86400,
}
MONTHS_IN = {Unit.MONTH: 1, Unit.QUARTER: 3, Unit.YEAR: 12}

# Names that say nothing of an edge.
_PLAIN = {
    Unit.SECOND: "S s second",
    Unit.MINUTE: "T t min minute",
    Unit.HOUR: "H h hour",
    Unit.DAY: "D d day",
    Unit.BUSINESS_DAY: "B b",
    Unit.WEEK: "W w week",
    Unit.MONTH: "M month",
    Unit.QUARTER: "Q quarter",
    Unit.YEAR: "Y A year",
}
_NAMES: dict[str, tuple[Unit, Edge | None]] = {
    name: (unit, None) for unit, names in _PLAIN.items() for name in names.split()
}
_NAMES |= {f"{unit}S": (unit, "start") for unit in MONTHS_IN} | {"AS": (Unit.YEAR, "start")}
_NAMES |= {f"{unit}E": (unit, "end") for unit in MONTHS_IN}
_PATTERN = re.compile(r"([1-9][0-9]{0,5})?([A-Za-z]{1,7})(?:-([A-Z]{3}))?")


@dataclass(frozen=True)
class Frequency:
    """A fixed spacing of timestamps, such as `h`, `15min`, `W-SUN` or `MS`.

    Attributes:
        unit: The calendar unit.
        multiple: Units per step, at least 1.
        edge: For months, quarters and years: whether steps fall on the first or the last day;
            None keeps the day of the first timestamp, and the last day of a month the last day.
        anchor: The weekday of a week (Monday 0) or the month of a quarter or year (January 1).
    """

    unit: Unit
    multiple: int = 1
    edge: Edge | None = None
    anchor: int | None = None

    @classmethod
    def parse(cls, text: str) -> Frequency:
        """Read a pandas alias (`h`, `15min`, `MS`, `W-SUN`) or a KServe name (`H`, `hour`).

        Raises:
            FrequencyError: the text names no frequency.
        """
        return _parse(text)

    @property
    def kserve(self) -> str:
        """The letter KServe's time-series API has for the unit; business days answer `D`."""
        return _KSERVE_LETTER.get(self.unit, self.unit.upper())

    @property
    def sub_daily(self) -> bool:
        """Whether steps are equal stretches of time: seconds, minutes and hours.

        Days and longer units follow the wall clock: a day is 23 hours where the clock springs.
        """
        return self.unit in (Unit.SECOND, Unit.MINUTE, Unit.HOUR)

    def agrees_with(self, other: Frequency) -> bool:
        """Whether both mean the same spacing; an edge or anchor only one of them names is free."""
        return (
            _spacing(self) == _spacing(other)
            and (self.edge is None or other.edge is None or self.edge == other.edge)
            and _same_anchor(self, other)
        )

    def steps_from(self, start: np.datetime64, steps: int, *, first: int = 0) -> Timestamps:
        """Timestamps `first`, `first + 1`, … of a series that begins at `start`.

        Args:
            start: Step 0; where edge, anchor or weekend forbid it, step 0 is the next that they
                allow.
            steps: How many timestamps to return.
            first: The step of the first one returned; negative steps lie before `start`.

        Returns:
            `[steps]` of datetime64[us].
        """
        return self._at(start, np.arange(first, first + steps, dtype=np.int64))

    def _at(self, start: np.datetime64, counts: NDArray[np.int64]) -> Timestamps:
        """Timestamps `[steps]` so many steps from the first of a series that begins at `start`."""
        origin = start.astype("M8[us]")
        if self.unit in MONTHS_IN:
            return self._month_steps(origin, counts * (self.multiple * MONTHS_IN[self.unit]))
        if self.unit is Unit.BUSINESS_DAY:
            day = origin.astype("M8[D]")
            days = np.busday_offset(day, counts * self.multiple, roll="forward")
            return np.asarray(days.astype("M8[us]") + (origin - day.astype("M8[us]")))
        if self.unit is Unit.WEEK and self.anchor is not None:
            days_ahead = (self.anchor - int(day_of_week(np.array([origin]))[0])) % 7
            origin = origin + np.timedelta64(days_ahead, "D")
        return np.asarray(origin + counts * np.timedelta64(self._seconds, "s"))

    def steps_of(
        self, moments: Timestamps, start: np.datetime64
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Which steps `[time]` of a series that begins at `start` moments are.

        Args:
            moments: `[time]`, in any order.
            start: Step 0.

        Returns:
            The steps, and which moments are one; of those between two, the step is one near.
        """
        if self.unit in MONTHS_IN:
            months = (moments.astype("M8[M]") - start.astype("M8[M]")).astype(np.int64)
            guesses = months // (self.multiple * MONTHS_IN[self.unit])
        elif self.unit is Unit.BUSINESS_DAY:
            days = np.busday_count(start.astype("M8[D]"), moments.astype("M8[D]"))
            guesses = np.asarray(days, np.int64) // self.multiple
        else:
            guesses = (moments - start) // np.timedelta64(self._seconds, "s")
        steps, is_step = guesses, np.zeros(len(moments), np.bool_)
        for near in (guesses - 1, guesses + 1, guesses):
            hit = self._at(start, near) == moments
            steps, is_step = np.where(hit, near, steps), is_step | hit
        return steps, is_step

    @property
    def _seconds(self) -> int:
        return self.multiple * SECONDS_IN[self.unit]

    def _month_steps(self, origin: np.datetime64, months: NDArray[np.int64]) -> Timestamps:
        day, month = origin.astype("M8[D]"), origin.astype("M8[M]")
        offset = day - month.astype("M8[D]")
        if self.edge == "start" and offset:
            month, offset = month + np.timedelta64(1, "M"), np.timedelta64(0, "D")
        if self.anchor is not None:
            # Month 0 of the epoch was a January, month 1 of an anchor.
            months_ahead = (self.anchor - 1 - int(month.astype(np.int64))) % MONTHS_IN[self.unit]
            month = month + np.timedelta64(months_ahead, "M")
        first_of_month = month + months.astype("m8[M]")
        next_month = first_of_month + np.timedelta64(1, "M")
        last_day = next_month.astype("M8[D]") - np.timedelta64(1, "D")
        days = np.minimum(first_of_month.astype("M8[D]") + offset, last_day)
        if self.edge == "end" or (self.edge is None and is_month_end(np.array([origin])).all()):
            days = last_day
        return np.asarray(days.astype("M8[us]") + (origin - day.astype("M8[us]")))

    def __str__(self) -> str:
        count = "" if self.multiple == 1 else str(self.multiple)
        edge = {"start": "S", "end": "E", None: ""}[self.edge]
        anchor = ""
        if self.anchor is not None:
            names = _WEEKDAYS if self.unit is Unit.WEEK else _MONTHS
            anchor = "-" + names[self.anchor - (self.unit is not Unit.WEEK)]
        return f"{count}{self.unit}{edge}{anchor}"


# The text of a frequency, which is checked and written in its usual form.
FrequencyAlias = Annotated[str, AfterValidator(lambda text: str(Frequency.parse(text)))]


def is_month_end(timestamps: Timestamps) -> NDArray[np.bool_]:
    """Whether each timestamp lies on the last day of its month."""
    days = timestamps.astype("M8[D]")
    return np.asarray((days + np.timedelta64(1, "D")).astype("M8[M]") != days.astype("M8[M]"))


@lru_cache(maxsize=256)
def _parse(text: str) -> Frequency:
    match = _PATTERN.fullmatch(text)
    known = _NAMES.get(match[2]) if match else None
    if match is None or known is None:
        raise FrequencyError(
            "expected a frequency such as S, T, H, D, W, M, Q, Y, 15min or W-SUN, "
            f"got {text[:40]!r}"
        )
    unit, edge = known
    return Frequency(unit, int(match[1] or 1), edge, _parse_anchor(unit, match[3], text))


def _parse_anchor(unit: Unit, name: str | None, text: str) -> int | None:
    if name is None:
        return None
    if unit is Unit.WEEK and name in _WEEKDAYS:
        return _WEEKDAYS.index(name)
    if unit in (Unit.QUARTER, Unit.YEAR) and name in _MONTHS:
        return _MONTHS.index(name) + 1
    raise FrequencyError(f"{text!r}: {name!r} is no anchor of {unit.name.lower()}s")


def _spacing(frequency: Frequency) -> tuple[str, int]:
    """A unit and count that equal spacings share (60min and h, 12M and Y)."""
    if frequency.unit in SECONDS_IN:
        return "seconds", frequency.multiple * SECONDS_IN[frequency.unit]
    if frequency.unit in MONTHS_IN:
        return "months", frequency.multiple * MONTHS_IN[frequency.unit]
    return frequency.unit, frequency.multiple


def _same_anchor(one: Frequency, other: Frequency) -> bool:
    """Whether both begin at the same time, as far as both say; quarters begin every third month."""
    if one.anchor is None or other.anchor is None:
        return True
    period = 3 if Unit.QUARTER in (one.unit, other.unit) else 12
    return (one.anchor - other.anchor) % period == 0
