"""Sampling frequencies: names of pandas and of KServe, and calendar arithmetic."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretell.timeaxis.errors import FrequencyError
from foretell.timeaxis.timestamps import Timestamps, day_of_week

Edge = Literal["start", "end"]

# Masks of the weekdays that count, Monday first.
_EVERY_DAY, _BUSINESS = "1111111", "1111100"
_NTH = ("first", "second", "third", "fourth")
WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


class Unit(StrEnum):
    """The unit of a frequency; the value is its pandas alias."""

    MICROSECOND = "us"
    MILLISECOND = "ms"
    SECOND = "s"
    MINUTE = "min"
    HOUR = "h"
    DAY = "D"
    BUSINESS_DAY = "B"
    WEEK = "W"
    SEMI_MONTH = "SM"
    MONTH = "M"
    QUARTER = "Q"
    YEAR = "Y"


# Letters that differ from the first letter of the alias.
_KSERVE_LETTER = {
    Unit.MICROSECOND: "S",
    Unit.MILLISECOND: "S",
    Unit.MINUTE: "T",
    Unit.BUSINESS_DAY: "D",
    Unit.SEMI_MONTH: "M",
}
# Microseconds in units of a fixed length, the shortest first, and months in the others.
MICROSECONDS_IN = {
    Unit.MICROSECOND: 1,
    Unit.MILLISECOND: 10**3,
    Unit.SECOND: 10**6,
    Unit.MINUTE: 60 * 10**6,
    Unit.HOUR: 3600 * 10**6,
    Unit.DAY: 86400 * 10**6,
    Unit.WEEK: 7 * 86400 * 10**6,
}
MONTHS_IN = {Unit.MONTH: 1, Unit.QUARTER: 3, Unit.YEAR: 12}
# Units of which one is a multiple of another. A day of a zone is not always 24 hours.
_FAMILIES: tuple[dict[Unit, int], ...] = (
    {unit: size for unit, size in MICROSECONDS_IN.items() if unit not in (Unit.DAY, Unit.WEEK)},
    {Unit.DAY: 1, Unit.WEEK: 7},
    MONTHS_IN,
)

# Names without an edge.
_PLAIN = {
    Unit.MICROSECOND: "us",
    Unit.MILLISECOND: "ms",
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
_NAMES: dict[str, tuple[Unit, Edge | None, str]] = {
    name: (unit, None, _EVERY_DAY) for unit, names in _PLAIN.items() for name in names.split()
}
for _unit in (Unit.SEMI_MONTH, *MONTHS_IN):
    _NAMES |= {f"{_unit}S": (_unit, "start", _EVERY_DAY), f"{_unit}E": (_unit, "end", _EVERY_DAY)}
for _unit in MONTHS_IN:
    _NAMES |= {f"B{_unit}S": (_unit, "start", _BUSINESS), f"B{_unit}E": (_unit, "end", _BUSINESS)}
_NAMES |= {"AS": _NAMES["YS"], "WOM": _NAMES["MS"], "LWOM": _NAMES["ME"]}
# Largest multiple of a unit in an alias.
MOST_UNITS = 999_999
_PATTERN = re.compile(r"([1-9][0-9]{0,5})?([A-Za-z]{1,7})(?:-([0-9A-Z-]{1,12}))?")
_HOLIDAYS = "it depends on a calendar of holidays, which an alias does not name"
_OPENING = "it depends on opening hours, which an alias does not name"
_RETAIL = "retail years, of 52 or 53 weeks, are not supported"
# Aliases of pandas that are not supported: the reason, and the nearest one.
_REFUSED = {
    "C": (_HOLIDAYS, "B"),
    "CBMS": (_HOLIDAYS, "BMS"),
    "CBME": (_HOLIDAYS, "BME"),
    "bh": (_OPENING, "h"),
    "cbh": (_OPENING, "h"),
    "ns": ("times have microseconds", "us"),
    "RE": (_RETAIL, "12LWOM-SAT, the last Saturday of a month of each year"),
    "REQ": (_RETAIL, "13W"),
}


@dataclass(frozen=True)
class Frequency:
    """A fixed spacing of timestamps, such as `h`, `15min`, `W-SUN`, `MS` or `WOM-3FRI`.

    Attributes:
        unit: The calendar unit.
        multiple: Units per step, at least 1.
        edge: The first or the last day, for months, quarters and years. None keeps the day of the
            first timestamp; the last day of a month stays the last day. Half months have every
            other step there.
        anchor: The weekday of a week (Monday is 0), the month of a quarter or year (January is 1),
            or the day of the other step of half months.
        weekdays: Mask of the weekdays that count for the edge, Monday first; 1111100 for business
            months.
        week: Number of such weekdays in the month before the step.
    """

    unit: Unit
    multiple: int = 1
    edge: Edge | None = None
    anchor: int | None = None
    weekdays: str = _EVERY_DAY
    week: int = 0

    @classmethod
    def parse(cls, text: str) -> Frequency:
        """Read a pandas alias (`h`, `15min`, `MS`, `W-SUN`) or a KServe name (`H`, `hour`).

        Raises:
            FrequencyError: the text is not a frequency, or one that needs more than its name.
        """
        return _parse(text)

    @property
    def kserve(self) -> str:
        """The letter of the unit in KServe's time-series API.

        Business days are `D`, half months `M`, milliseconds and microseconds `S`.
        """
        return _KSERVE_LETTER.get(self.unit, self.unit.upper())

    @cached_property
    def canonical(self) -> Frequency:
        """The frequency of the same steps with the longest unit: `h` of `60min`, `YS` of `12MS`."""
        if self.anchor is not None:
            is_quarter = self.unit is Unit.QUARTER
            return replace(self, anchor=(self.anchor - 1) % 3 + 1) if is_quarter else self
        sizes = next((each for each in _FAMILIES if self.unit in each), None)
        if sizes is None or self.weekdays not in (_EVERY_DAY, _BUSINESS):
            return self
        total = self.multiple * sizes[self.unit]
        longest = [unit for unit, size in sizes.items() if total % size == 0][-1]
        return replace(self, unit=longest, multiple=total // sizes[longest])

    @cached_property
    def sub_daily(self) -> bool:
        """Whether steps have a fixed length: hours, minutes, seconds and parts of them.

        Days and longer units follow the wall clock, so a day may have 23 hours.
        """
        day = MICROSECONDS_IN[Unit.DAY]
        return MICROSECONDS_IN.get(self.unit, day) < day

    def agrees_with(self, other: Frequency) -> bool:
        """Whether both mean the same spacing; an edge or anchor of only one is ignored."""
        return (
            _spacing(self) == _spacing(other)
            and (self.edge is None or other.edge is None or self._day == other._day)
            and _same_anchor(self, other)
        )

    @property
    def day_words(self) -> str:
        """The day of a month, quarter or year with an edge, such as `last business day`."""
        which = "last" if self.edge == "end" else _NTH[self.week]
        kinds = {_EVERY_DAY: "day", _BUSINESS: "business day"}
        return f"{which} {kinds.get(self.weekdays) or self._weekday.title()}"

    def edge_days(self, months: Timestamps) -> Timestamps:
        """The days of the edges in months `[time]` of datetime64[M]."""
        if self.edge == "start":
            first = months.astype("M8[D]")
            days = np.busday_offset(first, self.week, "forward", self.weekdays)
        else:
            days = np.busday_offset(_last_days(months), 0, "backward", self.weekdays)
        return np.asarray(days)

    def steps_from(self, start: np.datetime64, steps: int, *, first: int = 0) -> Timestamps:
        """Timestamps `first`, `first + 1`, … of a series that begins at `start`.

        Args:
            start: Step 0; if edge, anchor or weekend exclude it, step 0 is the next allowed time.
            steps: Number of timestamps.
            first: Step of the first timestamp; negative steps lie before `start`.

        Returns:
            `[steps]` of datetime64[us].
        """
        return self.at(start, np.arange(first, first + steps, dtype=np.int64))

    def at(self, start: np.datetime64, counts: NDArray[np.int64]) -> Timestamps:
        """Timestamps of the steps `counts` of a series that begins at `start`."""
        origin = start.astype("M8[us]")
        if self._has_parts:
            return self._part_steps(origin, counts * self._parts)
        if self.unit is Unit.BUSINESS_DAY:
            day = origin.astype("M8[D]")
            days = np.busday_offset(day, counts * self.multiple, roll="forward")
            return np.asarray(days.astype("M8[us]") + (origin - day.astype("M8[us]")))
        if self.unit is Unit.WEEK and self.anchor is not None:
            days_ahead = (self.anchor - int(day_of_week(np.array([origin]))[0])) % 7
            origin = origin + np.timedelta64(days_ahead, "D")
        return np.asarray(origin + counts * self._length)

    def steps_of(
        self, moments: Timestamps, start: np.datetime64
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The steps of moments in a series that begins at `start`.

        Args:
            moments: `[time]`, in any order.
            start: Step 0.

        Returns:
            `[time]` the steps, and `[time]` whether each moment is exactly on its step; otherwise
            the step is a near one.
        """
        if self._has_parts:
            months = moments.astype("M8[M]").astype(np.int64)
            first = self._first_part(start.astype("M8[D]"))
            guesses = (months * self._parts_a_month - first) // self._parts
        elif self.unit is Unit.BUSINESS_DAY:
            days = np.busday_count(start.astype("M8[D]"), moments.astype("M8[D]"))
            guesses = np.asarray(days, np.int64) // self.multiple
        else:
            guesses = (moments - start) // self._length
        steps, is_step = guesses, np.zeros(len(moments), np.bool_)
        for near in (guesses - 1, guesses + 1, guesses):
            hit = self.at(start, near) == moments
            steps, is_step = np.where(hit, near, steps), is_step | hit
        return steps, is_step

    @cached_property
    def microseconds(self) -> int | None:
        """Length of every step; None if steps follow a calendar."""
        follows = self._has_parts or self.unit is Unit.BUSINESS_DAY or self.anchor is not None
        return None if follows else self.multiple * MICROSECONDS_IN[self.unit]

    @cached_property
    def _length(self) -> np.timedelta64:
        return np.timedelta64(self.multiple * MICROSECONDS_IN[self.unit], "us")

    @property
    def _day(self) -> tuple[Edge | None, str, int]:
        return self.edge, self.weekdays, self.week

    @property
    def _weekday(self) -> str:
        return WEEKDAYS[self.weekdays.index("1")]

    @cached_property
    def _has_parts(self) -> bool:
        """Whether steps count months or half months."""
        return self.unit in MONTHS_IN or self.unit is Unit.SEMI_MONTH

    @property
    def _parts_a_month(self) -> int:
        return 2 if self.unit is Unit.SEMI_MONTH else 1

    @property
    def _parts(self) -> int:
        """Months or half months per step."""
        return self.multiple * MONTHS_IN.get(self.unit, 1)

    def _part_steps(self, origin: np.datetime64, parts: NDArray[np.int64]) -> Timestamps:
        day = origin.astype("M8[D]")
        found = self._first_part(day) + parts
        if self.edge is not None:
            days = self._days_of(found)
        else:
            months = found.astype("M8[M]")
            days = _last_days(months)
            if not is_month_end(np.array([day])).all():
                offset = day - day.astype("M8[M]").astype("M8[D]")
                days = np.minimum(months.astype("M8[D]") + offset, days)
        return np.asarray(days.astype("M8[us]") + (origin - day.astype("M8[us]")))

    def _first_part(self, day: np.datetime64) -> int:
        """The month or half month since 1970 of the first step on or after a day."""
        part = int(day.astype("M8[M]").astype(np.int64)) * self._parts_a_month
        if self.edge is not None:
            part += int((self._days_of(part + np.arange(2)) < day).sum())
        if self.anchor is not None and self.unit in MONTHS_IN:
            # Month 0 of the epoch was January, which is 1 as an anchor.
            part += (self.anchor - 1 - part) % MONTHS_IN[self.unit]
        return part

    def _days_of(self, parts: NDArray[np.int64]) -> Timestamps:
        """The days of the steps in months or half months `[time]` with an edge."""
        months = (parts // self._parts_a_month).astype("M8[M]")
        days = self.edge_days(months)
        if self.unit is Unit.SEMI_MONTH and self.anchor is not None:
            others = months.astype("M8[D]") + np.timedelta64(self.anchor - 1, "D")
            days = np.where(parts % 2 == (self.edge == "end"), days, others)
        return days

    def __str__(self) -> str:
        count = "" if self.multiple == 1 else str(self.multiple)
        if self.weekdays not in (_EVERY_DAY, _BUSINESS):
            which = f"WOM-{self.week + 1}" if self.edge == "start" else "LWOM-"
            return f"{count}{which}{self._weekday}"
        days = "B" if self.weekdays == _BUSINESS else ""
        edge = {"start": "S", "end": "E", None: ""}[self.edge]
        anchor = ""
        if self.anchor is not None:
            names = {Unit.WEEK: WEEKDAYS, Unit.SEMI_MONTH: range(32)}.get(self.unit, _MONTHS)
            anchor = f"-{names[self.anchor - (self.unit in MONTHS_IN)]}"
        return f"{count}{days}{self.unit}{edge}{anchor}"


def is_month_end(timestamps: Timestamps) -> NDArray[np.bool_]:
    """Whether each timestamp lies on the last day of its month."""
    days = timestamps.astype("M8[D]")
    return np.asarray((days + np.timedelta64(1, "D")).astype("M8[M]") != days.astype("M8[M]"))


def _last_days(months: Timestamps) -> Timestamps:
    next_days = (months + np.timedelta64(1, "M")).astype("M8[D]")
    return np.asarray(next_days - np.timedelta64(1, "D"))


@lru_cache(maxsize=256)
def _parse(text: str) -> Frequency:
    match = _PATTERN.fullmatch(text)
    if match and match[2] in _REFUSED:
        why, nearest = _REFUSED[match[2]]
        raise FrequencyError(f"{text!r}: {why}; the nearest is {nearest}")
    known = _NAMES.get(match[2]) if match else None
    if match is None or known is None:
        raise FrequencyError(
            "expected a frequency such as S, T, H, D, W, M, Q, Y, 15min or W-SUN, "
            f"got {text[:40]!r}"
        )
    unit, edge, weekdays = known
    multiple = int(match[1] or 1)
    if match[2].endswith("WOM"):
        week, weekday = _parse_week(match[3] or "", edge, text)
        return Frequency(unit, multiple, edge, weekdays=weekday, week=week)
    return Frequency(unit, multiple, edge, _parse_anchor(unit, edge, match[3], text), weekdays)


def _parse_anchor(unit: Unit, edge: Edge | None, name: str | None, text: str) -> int | None:
    if name is None:
        return 15 if unit is Unit.SEMI_MONTH else None
    if unit is Unit.WEEK and name in WEEKDAYS:
        return WEEKDAYS.index(name)
    if unit in (Unit.QUARTER, Unit.YEAR) and name in _MONTHS:
        return _MONTHS.index(name) + 1
    if unit is Unit.SEMI_MONTH and name in map(str, range(1 + (edge == "start"), 28)):
        return int(name)
    raise FrequencyError(f"{text!r}: {name!r} is no anchor of {unit.name.lower()}s")


def _parse_week(name: str, edge: Edge | None, text: str) -> tuple[int, str]:
    """The week of the month and the mask of its weekday."""
    match = re.fullmatch("([1-4])([A-Z]{3})" if edge == "start" else "()([A-Z]{3})", name)
    if match is None or match[2] not in WEEKDAYS:
        form = "WOM-1MON … WOM-4SUN" if edge == "start" else "LWOM-MON … LWOM-SUN"
        raise FrequencyError(f"{text!r}: {name!r} is no week of the month; expected {form}")
    weekdays = "".join(str(int(day == match[2])) for day in WEEKDAYS)
    return int(match[1] or 1) - 1, weekdays


def _spacing(frequency: Frequency) -> tuple[str, int]:
    """A unit and count that are the same for equal spacings (60min and h, 12M and Y)."""
    if frequency.unit in MICROSECONDS_IN:
        return "microseconds", frequency.multiple * MICROSECONDS_IN[frequency.unit]
    if frequency.unit in MONTHS_IN:
        return "months", frequency.multiple * MONTHS_IN[frequency.unit]
    return frequency.unit, frequency.multiple


def _same_anchor(one: Frequency, other: Frequency) -> bool:
    """Whether the anchors mean the same times; quarters repeat every third month."""
    if one.anchor is None or other.anchor is None:
        return True
    if one.unit not in MONTHS_IN:
        return one.anchor == other.anchor
    period = 3 if Unit.QUARTER in (one.unit, other.unit) else 12
    return (one.anchor - other.anchor) % period == 0
