"""Places of times on a time axis of whole steps that several series share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foretell.timeaxis.frequency import MICROSECONDS_IN, MONTHS_IN, Frequency, Unit

_DAY = MICROSECONDS_IN[Unit.DAY]
# The mean month of the Gregorian calendar, which repeats after 400 years.
_MONTH = 146_097 * _DAY / 4800


def positions(
    times: NDArray[np.int64], frequency: Frequency, earliest: int = 0
) -> NDArray[np.int64]:
    """Count the steps of times of a series since 1970.

    The stored times of a daily or longer series are in UTC, where days have 23 or 25 hours and
    months different lengths; so steps are counted from the first time, to the nearest one.

    Args:
        times: `[times]` in microseconds, increasing, without repeats.
        frequency: The frequency of the series.
        earliest: The earliest time of all series that share the axis.

    Returns:
        `[times]`, strictly increasing.
    """
    if not len(times):
        return times
    multiple = frequency.multiple
    if frequency.unit is Unit.BUSINESS_DAY:
        days = _business_days(times)
        first, counted = int(days[0]) // multiple, (days - days[0]) // multiple
    else:
        length = _length(frequency.unit) * multiple
        # Steps from 1970 to the earliest time, from that to the first one, and from there on.
        first = round(earliest / length) + round((int(times[0]) - earliest) / length)
        counted = np.rint((times - times[0]) / length).astype(np.int64)
    order = np.arange(len(times))
    return first + np.maximum.accumulate(counted - order) + order


def _length(unit: Unit) -> float:
    """The mean length in microseconds."""
    if unit is Unit.SEMI_MONTH:
        return _MONTH / 2
    return _MONTH * MONTHS_IN[unit] if unit in MONTHS_IN else MICROSECONDS_IN[unit]


def _business_days(times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Business days since 1970; days in UTC may be those before or after the local ones."""
    days = times[0] // _DAY + np.rint((times - times[0]) / _DAY).astype(np.int64)
    dates = [(days + shift).astype("datetime64[D]") for shift in (0, -1, 1)]
    local = max(dates, key=lambda each: np.is_busday(each).sum())
    return np.asarray(np.busday_count(np.datetime64(0, "D"), local), np.int64)
