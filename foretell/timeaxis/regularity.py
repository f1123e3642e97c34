"""Checks of timestamps against a frequency, and inference of frequencies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretell.timeaxis.errors import FrequencyError
from foretell.timeaxis.frequency import (
    MICROSECONDS_IN,
    MONTHS_IN,
    MOST_UNITS,
    WEEKDAYS,
    Edge,
    Frequency,
    Unit,
    is_month_end,
)
from foretell.timeaxis.timestamps import Timestamps, day_of_week

# Edges of months, quarters and years; the first one that fits is chosen.
_EDGES = ("MS", "ME", "M", "BMS", "BME")


@dataclass(frozen=True)
class Irregularity:
    """The first timestamp that breaks a frequency.

    Attributes:
        index: Position of the timestamp in the series.
        kind: `gap` (steps are missing before it), `duplicate`, `order` (it goes back in time) or
            `misaligned` (it lies between two steps).
        expected: The expected timestamp.
    """

    index: int
    kind: Literal["gap", "duplicate", "order", "misaligned"]
    expected: np.datetime64


def origin(frequency: Frequency, timestamps: Timestamps) -> int:
    """Index of the timestamp from which the steps of a series are counted.

    It is the first one, except for months on the 29th or 30th: the last day of a short month does
    not show the day of the others.
    """
    if frequency.unit not in MONTHS_IN or frequency.edge is not None:
        return 0
    inside = np.flatnonzero(~is_month_end(timestamps))
    if not len(inside) or not inside[0]:
        return 0
    index, length = int(inside[0]), len(timestamps)
    from_first = frequency.steps_from(timestamps[0], length)
    from_inside = frequency.steps_from(timestamps[index], length, first=-index)
    better = (from_inside == timestamps).sum() > (from_first == timestamps).sum()
    return index if better else 0


def first_irregularity(frequency: Frequency, timestamps: Timestamps) -> Irregularity | None:
    """The first timestamp that is not one step after the one before it, or None."""
    if not len(timestamps):
        return None
    found = timestamps.astype("M8[us]")
    first = origin(frequency, found)
    expected = frequency.steps_from(found[first], len(found), first=-first)
    wrong = np.flatnonzero(found != expected)
    if not len(wrong):
        return None
    index = int(wrong[0])
    (step,), (is_step,) = frequency.steps_of(found[index : index + 1], found[first])
    kind: Literal["gap", "duplicate", "order", "misaligned"]
    if index and found[index] == found[index - 1]:
        kind = "duplicate"
    elif index and found[index] < found[index - 1]:
        kind = "order"
    elif is_step and step > index - first:
        kind = "gap"
    else:
        kind = "misaligned"
    return Irregularity(index, kind, expected[index])


def infer(timestamps: Timestamps) -> Frequency:
    """The spacing of most steps; `first_irregularity` finds the steps without it.

    Raises:
        FrequencyError: there are fewer than three timestamps, no timestamp is later than the one
            before it, or no alias has the spacing, such as 1.0005 s.
    """
    if len(timestamps) < 3:
        raise FrequencyError("a frequency needs at least three timestamps")
    apart = np.diff(timestamps).astype("m8[us]").astype(np.int64)
    if not (apart > 0).any():
        raise FrequencyError("no timestamp is later than the one before it")
    step, count = _most_common(apart[apart > 0])
    day = MICROSECONDS_IN[Unit.DAY]
    if apart.mean() >= 13 * day and not _are_equal_days_apart(timestamps):
        if (half_months := _infer_half_months(timestamps)) is not None:
            return half_months
        if np.median(apart) >= 28 * day:
            return _infer_months(timestamps)
    business_days, business_count = _most_common_business_days(timestamps)
    if business_count > count:
        return Frequency(Unit.BUSINESS_DAY, business_days)
    unit = next(unit for unit, length in reversed(MICROSECONDS_IN.items()) if step % length == 0)
    anchor = int(day_of_week(timestamps[:1])[0]) if unit is Unit.WEEK else None
    units = int(step) // MICROSECONDS_IN[unit]
    if units > MOST_UNITS:
        raise FrequencyError(
            f"most timestamps are {units}{unit} apart, and a frequency has at most {MOST_UNITS}"
        )
    return Frequency(unit, units, anchor=anchor)


def _infer_months(timestamps: Timestamps) -> Frequency:
    spacing, _ = _most_common(np.diff(timestamps.astype("M8[M]")).astype(np.int64))
    months = max(int(spacing), 1)
    found = _infer_edge(timestamps)
    if str(found) not in _EDGES:
        return replace(found, multiple=months)
    unit = next(unit for unit in reversed(MONTHS_IN) if months % MONTHS_IN[unit] == 0)
    return replace(found, unit=unit, multiple=months // MONTHS_IN[unit])


def _infer_edge(timestamps: Timestamps) -> Frequency:
    """The months whose edge all timestamps are on; otherwise months that keep the day."""
    days, months = timestamps.astype("M8[D]"), timestamps.astype("M8[M]")
    weekday, week = WEEKDAYS[day_of_week(days)[0]], min((_day_of_month(days)[0] + 6) // 7, 4)
    is_one_day = len(set(_day_of_month(days))) == 1
    for name in (*_EDGES, f"WOM-{week}{weekday}", f"LWOM-{weekday}"):
        found = Frequency.parse(name)
        if is_one_day if found.edge is None else np.array_equal(found.edge_days(months), days):
            return found
    return Frequency(Unit.MONTH)


def _infer_half_months(timestamps: Timestamps) -> Frequency | None:
    """Half months, if every other step is on the edge of a month and the others share a day."""
    days, months = _day_of_month(timestamps), timestamps.astype("M8[M]").astype(np.int64)
    edges: tuple[tuple[Edge, NDArray[np.bool_]], ...]
    edges = (("start", days == 1), ("end", is_month_end(timestamps)))
    for edge, is_edge in edges:
        others = set(days[~is_edge].tolist())
        halves = 2 * months + (is_edge == (edge == "end"))
        spacing, count = _most_common(np.diff(halves))
        # Months with one stray day are not half months.
        is_usual = 2 * count > len(halves) - 1
        if len(others) == 1 and is_usual and spacing > 0 and spacing % 2 and max(others) < 28:
            return Frequency(Unit.SEMI_MONTH, int(spacing), edge, others.pop())
    return None


def _most_common_business_days(timestamps: Timestamps) -> tuple[int, int]:
    """Business days between most steps, and the number of such steps; (0, 0) with weekends."""
    days = timestamps.astype("M8[D]")
    if (day_of_week(days) >= 5).any() or len(np.unique(timestamps - days)) > 1:
        return 0, 0
    steps = np.busday_count(days[:-1], days[1:])
    spacing, count = _most_common(steps[steps > 0]) if (steps > 0).any() else (0, 0)
    return int(spacing), count


def _most_common(values: NDArray[np.floating] | NDArray[np.integer]) -> tuple[float, int]:
    found, counts = np.unique(values, return_counts=True)
    best = int(counts.argmax())
    return float(found[best]), int(counts[best])


def _are_equal_days_apart(timestamps: Timestamps) -> bool:
    """Whether long steps are a fixed number of days, such as four weeks, and not months."""
    aligned = len(set(_day_of_month(timestamps))) == 1 or bool(is_month_end(timestamps).all())
    return not aligned and len(set(np.diff(timestamps))) == 1


def _day_of_month(timestamps: Timestamps) -> NDArray[np.int64]:
    days = timestamps.astype("M8[D]")
    return np.asarray((days - timestamps.astype("M8[M]").astype("M8[D]")).astype(np.int64) + 1)
