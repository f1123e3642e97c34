"""The times of actual values, which lie on the grid of a frequency and may leave steps out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from foretell.service.errors import InvalidInputError
from foretell.service.forecast.times import (
    IRREGULAR,
    Clock,
    ZoneClock,
    check_first,
    check_listed,
    in_microseconds,
    read_listed,
    read_timeline,
    shown_step,
)
from foretell.timeaxis.frequency import MONTHS_IN, Frequency
from foretell.timeaxis.timestamps import Timestamps, check_years, shown
from foretell.timeaxis.zones import first_undecided

Moments = NDArray[np.int64]


def read_moments(
    start: str | None,
    listed: Sequence[str] | None,
    zone: ZoneInfo | None,
    frequency: Frequency,
    rows: int,
    path: str,
) -> Moments:
    """The times `[rows]` of an input in microseconds since 1970, as `Timeline.moments`.

    InvalidInputError: they are missing, or not on the grid of the frequency. TimestampError: a time
    lies outside the years 1 to 9999.
    """
    if listed is None:
        timeline = read_timeline(start, None, zone, frequency, rows, path)
        if timeline is None:
            raise InvalidInputError(
                "required: send the time of the first row, or timestamps",
                param=f"{path}.start_timestamp",
            )
        walls, offsets = timeline.read(-rows, rows)
        check_years(walls)
        return in_microseconds(walls, offsets)
    check_listed(start, listed, rows, path)

    def path_of(row: int) -> str:
        return f"{path}.timestamps[{row}]"

    steps, clock, written = read_listed(listed, zone, frequency, path_of)
    found = moments_of(steps, clock, frequency, path_of, listed)
    if zone is not None and frequency.sub_daily and written is None:
        _check_decided(steps, zone, frequency, path_of)
    return found


def moments_of(
    steps: Timestamps,
    clock: Clock,
    frequency: Frequency,
    path: Callable[[int], str],
    listed: Sequence[str] | None = None,
) -> Moments:
    """Times of steps `[rows]`, at least one; `listed` has their texts, if any.

    Errors are as of `read_moments`.
    """
    check_first(steps[0], clock, frequency, path(0))
    _check_grid(steps, clock, frequency, path, listed)
    walls, offsets = clock.read(steps, 0)
    check_years(walls)
    return in_microseconds(walls, offsets)


def _check_grid(
    steps: Timestamps,
    clock: Clock,
    frequency: Frequency,
    path: Callable[[int], str],
    listed: Sequence[str] | None,
) -> None:
    """Check that steps go forward, and lie whole steps apart."""
    first, counts, is_step = _grid(steps, frequency)
    goes_on = np.append(True, np.diff(steps) > np.timedelta64(0))
    wrong = np.flatnonzero(~(is_step & goes_on))
    if not len(wrong):
        return
    row = int(wrong[0])

    def show(step: np.datetime64) -> str:
        return shown_step(step, clock, row)

    if goes_on[row]:
        near = frequency.at(first, counts[row] + np.arange(-1, 2))
        after = int(np.searchsorted(near, steps[row]).clip(1, 2))
        kind, expected = "misaligned", f"{show(near[after - 1])} or {show(near[after])}"
    else:
        kind = "duplicate" if steps[row] == steps[row - 1] else "order"
        expected = f"a time after {show(steps[row - 1])}"
    given = repr(listed[row]) if listed else show(steps[row])
    raise InvalidInputError(
        f"expected {expected} (frequency {frequency}), got {given}: {IRREGULAR[kind]}",
        param=path(row),
    )


def _grid(
    steps: Timestamps, frequency: Frequency
) -> tuple[np.datetime64, NDArray[np.int64], NDArray[np.bool_]]:
    """The start of the grid, the number of each step on it, and whether it lies there."""
    found = steps[0], *frequency.steps_of(steps, steps[0])
    if frequency.unit in MONTHS_IN and frequency.edge is None and not found[2].all():
        # The last day of a short month does not show the day of the others.
        for start in steps[~found[2]][:1]:
            other = start, *frequency.steps_of(steps, start)
            if other[2].sum() > found[2].sum():
                return other
    return found


def _check_decided(
    steps: Timestamps, zone: ZoneInfo, frequency: Frequency, path: Callable[[int], str]
) -> None:
    """Check that neighbours decide between the moments of times that a clock shows twice."""
    step = np.diff(frequency.steps_from(steps[0], 2))[0]
    row = first_undecided(steps, zone, step)
    if row is not None:
        walls, _ = ZoneClock(zone, in_utc=True).read(steps[row : row + 1], row)
        raise InvalidInputError(
            f"the clock of {zone.key} shows {shown(walls[0])} twice: write its UTC offset",
            param=path(row),
        )
