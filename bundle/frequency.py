"""Sampling frequencies: names of pandas and of KServe, and calendar arithmetic on them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np

from bundle.errors import FrequencyError
from bundle.timestamps import Timestamps, day_of_week

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


_KSERVE_LETTER = {
    Unit.SECOND: "S",
    Unit.MINUTE: "T",
    Unit.HOUR: "H",
    Unit.DAY: "D",
    Unit.BUSINESS_DAY: "D",
    Unit.WEEK: "W",
    Unit.MONTH: "M",
    Unit.QUARTER: "Q",
    Unit.YEAR: "Y",
}
_SECONDS = {
    Unit.SECOND: 1,
    Unit.MINUTE: 60,
    Unit.HOUR: 3600,
    Unit.DAY: 86400,
    Unit.WEEK: 7 * 86400,
}
_MONTHS_IN = {Unit.MONTH: 1, Unit.QUARTER: 3, Unit.YEAR: 12}

_NAMES: dict[str, tuple[Unit, Edge | None]] = {
    "S": (Unit.SECOND, None),
    "s": (Unit.SECOND, None),
    "second": (Unit.SECOND, None),
    "T": (Unit.MINUTE, None),
    "t": (Unit.MINUTE, None),
    "min": (Unit.MINUTE, None),
    "minute": (Unit.MINUTE, None),
    "H": (Unit.HOUR, None),
    "h": (Unit.HOUR, None),
    "hour": (Unit.HOUR, None),
    "D": (Unit.DAY, None),
    "d": (Unit.DAY, None),
    "day": (Unit.DAY, None),
    "B": (Unit.BUSINESS_DAY, None),
    "b": (Unit.BUSINESS_DAY, None),
    "W": (Unit.WEEK, None),
    "w": (Unit.WEEK, None),
    "week": (Unit.WEEK, None),
    "M": (Unit.MONTH, None),
    "month": (Unit.MONTH, None),
    "MS": (Unit.MONTH, "start"),
    "ME": (Unit.MONTH, "end"),
    "Q": (Unit.QUARTER, None),
    "quarter": (Unit.QUARTER, None),
    "QS": (Unit.QUARTER, "start"),
    "QE": (Unit.QUARTER, "end"),
    "Y": (Unit.YEAR, None),
    "A": (Unit.YEAR, None),
    "year": (Unit.YEAR, None),
    "YS": (Unit.YEAR, "start"),
    "AS": (Unit.YEAR, "start"),
    "YE": (Unit.YEAR, "end"),
}
_PATTERN = re.compile(r"([1-9][0-9]{0,5})?([A-Za-z]{1,7})(?:-([A-Z]{3}))?")


@dataclass(frozen=True)
class Irregularity:
    """The first timestamp that breaks a frequency.

    Attributes:
        index: Its position in the series.
        kind: `gap` (steps are missing before it), `duplicate`, `order` (it goes back in time) or
            `misaligned` (it lies between two steps).
        expected: The timestamp that should stand there.
    """

    index: int
    kind: Literal["gap", "duplicate", "order", "misaligned"]
    expected: np.datetime64


@dataclass(frozen=True)
class Frequency:
    """A fixed spacing of timestamps, such as `h`, `15min`, `W-SUN` or `MS`.

    Attributes:
        unit: The calendar unit.
        multiple: Units per step, at least 1.
        edge: For months, quarters and years: whether steps fall on the first or the last day;
            None keeps the day of the first timestamp (its last day stays the last day).
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
        match = _PATTERN.fullmatch(text)
        known = _NAMES.get(match[2]) if match else None
        if match is None or known is None:
            raise FrequencyError(
                "expected a frequency such as S, T, H, D, W, M, Q, Y, 15min or W-SUN, "
                f"got {text[:40]!r}"
            )
        unit, edge = known
        return cls(unit, int(match[1] or 1), edge, _parse_anchor(unit, match[3], text))

    @classmethod
    def infer(cls, timestamps: Timestamps) -> Frequency:
        """Find the spacing most steps have; `first_irregularity` then finds the steps without it.

        Raises:
            FrequencyError: fewer than three timestamps, or a spacing below one second.
        """
        if len(timestamps) < 3:
            raise FrequencyError("a frequency needs at least three timestamps")
        seconds = np.diff(timestamps).astype("m8[us]").astype(np.int64) / 1e6
        spacing, counts = np.unique(seconds[seconds > 0], return_counts=True)
        if not len(spacing):
            raise FrequencyError("no timestamp is later than the one before it")
        step = float(spacing[counts.argmax()])
        if np.median(seconds) >= 28 * 86400 and not _are_equal_days_apart(timestamps):
            return cls._infer_months(timestamps)
        if step < 1 or step != int(step):
            raise FrequencyError(f"a spacing of {step:g} seconds is no whole number of seconds")
        if (
            step == 86400
            and not (day_of_week(timestamps) >= 5).any()
            and (seconds == 3 * 86400).any()
        ):
            return cls(Unit.BUSINESS_DAY)
        unit = next(
            unit
            for unit in (Unit.WEEK, Unit.DAY, Unit.HOUR, Unit.MINUTE, Unit.SECOND)
            if step % _SECONDS[unit] == 0
        )
        anchor = int(day_of_week(timestamps[:1])[0]) if unit is Unit.WEEK else None
        return cls(unit, int(step) // _SECONDS[unit], anchor=anchor)

    @classmethod
    def _infer_months(cls, timestamps: Timestamps) -> Frequency:
        spacing, counts = np.unique(
            np.diff(timestamps.astype("M8[M]")).astype(np.int64), return_counts=True
        )
        months = max(int(spacing[counts.argmax()]), 1)
        unit = next(
            unit for unit in (Unit.YEAR, Unit.QUARTER, Unit.MONTH) if months % _MONTHS_IN[unit] == 0
        )
        edge: Edge | None = None
        if (_day_of_month(timestamps) == 1).all():
            edge = "start"
        elif _is_month_end(timestamps).all():
            edge = "end"
        return cls(unit, months // _MONTHS_IN[unit], edge)

    @property
    def kserve(self) -> str:
        """The letter KServe's time-series API has for the unit; business days answer `D`."""
        return _KSERVE_LETTER[self.unit]

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
        counts = np.arange(first, first + steps, dtype=np.int64) * self.multiple
        origin = start.astype("M8[us]")
        if self.unit in _MONTHS_IN:
            return self._month_steps(origin, counts * _MONTHS_IN[self.unit])
        if self.unit is Unit.WEEK and self.anchor is not None:
            days_ahead = (self.anchor - int(day_of_week(np.array([origin]))[0])) % 7
            origin = origin + np.timedelta64(days_ahead, "D")
        if self.unit is Unit.BUSINESS_DAY:
            day = origin.astype("M8[D]")
            days = np.busday_offset(day, counts, roll="forward")
            return np.asarray(days.astype("M8[us]") + (origin - day.astype("M8[us]")))
        return np.asarray(origin + (counts * _SECONDS[self.unit]).astype("m8[s]"))

    def _month_steps(self, origin: np.datetime64, months: np.ndarray) -> Timestamps:
        day, month = origin.astype("M8[D]"), origin.astype("M8[M]")
        offset = day - month.astype("M8[D]")
        if self.edge == "start" and offset:
            month, offset = month + np.timedelta64(1, "M"), np.timedelta64(0, "D")
        if self.anchor is not None:
            # Month 0 of the epoch was a January, month 1 of an anchor.
            months_ahead = (self.anchor - 1 - int(month.astype(np.int64))) % _MONTHS_IN[self.unit]
            month = month + np.timedelta64(months_ahead, "M")
        first_of_month = month + months.astype("m8[M]")
        next_month = first_of_month + np.timedelta64(1, "M")
        last_day = next_month.astype("M8[D]") - np.timedelta64(1, "D")
        days = np.minimum(first_of_month.astype("M8[D]") + offset, last_day)
        if self.edge == "end" or (self.edge is None and _is_month_end(np.array([origin])).all()):
            days = last_day
        return np.asarray(days.astype("M8[us]") + (origin - day.astype("M8[us]")))

    def first_irregularity(self, timestamps: Timestamps) -> Irregularity | None:
        """The first timestamp that is not one step after the one before it, or None."""
        if not len(timestamps):
            return None
        found = timestamps.astype("M8[us]")
        expected = self.steps_from(found[0], len(found))
        wrong = np.flatnonzero(found != expected)
        if not len(wrong):
            return None
        index = int(wrong[0])
        kind: Literal["gap", "duplicate", "order", "misaligned"]
        if index and found[index] == found[index - 1]:
            kind = "duplicate"
        elif index and found[index] < found[index - 1]:
            kind = "order"
        elif found[index] > expected[index]:
            kind = "gap"
        else:
            kind = "misaligned"
        return Irregularity(index, kind, expected[index])

    def __str__(self) -> str:
        count = "" if self.multiple == 1 else str(self.multiple)
        edge = {"start": "S", "end": "E", None: ""}[self.edge]
        anchor = ""
        if self.anchor is not None:
            names = _WEEKDAYS if self.unit is Unit.WEEK else _MONTHS
            anchor = "-" + names[self.anchor - (self.unit is not Unit.WEEK)]
        return f"{count}{self.unit}{edge}{anchor}"


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
    if frequency.unit in _SECONDS:
        return "seconds", frequency.multiple * _SECONDS[frequency.unit]
    if frequency.unit in _MONTHS_IN:
        return "months", frequency.multiple * _MONTHS_IN[frequency.unit]
    return frequency.unit, frequency.multiple


def _same_anchor(one: Frequency, other: Frequency) -> bool:
    """Whether both begin at the same time, as far as both say; quarters begin every third month."""
    if one.anchor is None or other.anchor is None:
        return True
    period = 3 if Unit.QUARTER in (one.unit, other.unit) else 12
    return (one.anchor - other.anchor) % period == 0


def _are_equal_days_apart(timestamps: Timestamps) -> bool:
    """Whether steps of a month or more are a fixed number of days (four weeks) and no months."""
    aligned = len(set(_day_of_month(timestamps))) == 1 or bool(_is_month_end(timestamps).all())
    return not aligned and len(set(np.diff(timestamps))) == 1


def _day_of_month(timestamps: Timestamps) -> np.ndarray:
    days = timestamps.astype("M8[D]")
    return np.asarray((days - timestamps.astype("M8[M]").astype("M8[D]")).astype(np.int64) + 1)


def _is_month_end(timestamps: Timestamps) -> np.ndarray:
    days = timestamps.astype("M8[D]")
    return np.asarray((days + np.timedelta64(1, "D")).astype("M8[M]") != days.astype("M8[M]"))
