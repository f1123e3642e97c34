"""Counted parts of a day, where clock changes make days longer or shorter."""

from __future__ import annotations

from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from foretell.timeaxis.timestamps import Offsets, Timestamps
from foretell.timeaxis.zones import offsets_at, offsets_of

# Clock changes happen before this time of the day.
_CHANGED = np.timedelta64(4, "h")
_DAY, _NOTHING = np.timedelta64(1, "D"), np.timedelta64(0, "us")


class Counted(NamedTuple):
    """Times of counted parts of days.

    Attributes:
        walls: `[rows]`, wall-clock times.
        offsets: `[rows]`, UTC offsets; None where each day has 24 hours.
        wrong: Messages on what is wrong, with their rows.
    """

    walls: Timestamps
    offsets: Offsets | None
    wrong: list[tuple[str, NDArray[np.intp]]]


def times_of_counts(
    days: Timestamps, spans: NDArray[np.timedelta64], part: np.timedelta64, zone: ZoneInfo | None
) -> Counted:
    """The times of counted parts of days.

    Args:
        days: `[rows]`, midnights.
        spans: `[rows]`, the counted time since midnight.
        part: Length of a part.
        zone: Time zone of the clock, if it is known.
    """
    plain = Counted(days + spans, None, [])
    there = ~np.isnat(plain.walls)
    if not there.any():
        return plain
    first = spans[there].min()
    # Counts from 0 name the start of a part.
    ends = spans[there] + (part if first == _NOTHING else _NOTHING)
    if zone is None:
        message = (
            "more is counted than 24 hours; if a local clock changes, name its zone, such as by "
            "--time-zone Europe/Berlin"
        )
        return _without(plain, there, ends > _DAY, message)
    begins, nexts = (
        midnight - offsets_of(midnight, zone) for midnight in (days[there], days[there] + _DAY)
    )
    is_short = nexts - begins < _DAY
    if (ends <= _DAY).all() and not _are_counted(
        days[there][is_short], spans[there][is_short], first, part
    ):
        return plain
    walls, offsets = plain.walls, np.zeros(len(days), "m8[s]")
    moments = begins + spans[there]
    offsets[there] = offsets_at(moments, zone)
    walls[there] = moments + offsets[there]
    message = f"more is counted than the day has in {zone.key}; correct it or --time-zone"
    return _without(Counted(walls, offsets, []), there, begins + ends > nexts, message)


def _are_counted(
    days: Timestamps, spans: NDArray[np.timedelta64], first: np.timedelta64, part: np.timedelta64
) -> bool:
    """Whether short days count all parts in order, without leaving out those that a clock skips.

    False if a day begins late or ends before the clock changes, since it shows nothing.
    """
    if first not in (_NOTHING, part):
        return False
    for day in np.unique(days):
        found = np.unique(spans[days == day])
        if found[0] != first or not _CHANGED <= found[-1] < _DAY or (np.diff(found) != part).any():
            return False
    return len(days) > 0


def _without(
    found: Counted, there: NDArray[np.bool_], wrong: NDArray[np.bool_], message: str
) -> Counted:
    """Remove the times of wrong rows among those that have one."""
    rows = np.flatnonzero(there)[wrong]
    if not len(rows):
        return found
    walls = found.walls.copy()
    walls[rows] = "NaT"
    return found._replace(walls=walls, wrong=[(message, rows)])
