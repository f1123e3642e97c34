"""Parts of a day that are counted from its beginning, where a clock makes it longer or shorter."""

from __future__ import annotations

from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from foretell.timeaxis.timestamps import Offsets, Timestamps
from foretell.timeaxis.zones import offsets_at, offsets_of

# All clocks have changed by then.
_CHANGED = np.timedelta64(4, "h")
_DAY, _NOTHING = np.timedelta64(1, "D"), np.timedelta64(0, "us")


class Counted(NamedTuple):
    """Times of counted parts of days.

    Attributes:
        walls: `[rows]`, what a clock shows.
        offsets: `[rows]`, its UTC offsets; None where each day has 24 hours.
        wrong: What is wrong, and in which rows.
    """

    walls: Timestamps
    offsets: Offsets | None
    wrong: list[tuple[str, NDArray[np.intp]]]


def times_of_counts(
    days: Timestamps, spans: NDArray[np.timedelta64], part: np.timedelta64, zone: ZoneInfo | None
) -> Counted:
    """When counted parts of days are.

    Args:
        days: `[rows]`, midnights.
        spans: `[rows]`, what was counted since.
        part: How long what is counted by one is.
        zone: Whose clock it is, if it is known.
    """
    plain = Counted(days + spans, None, [])
    there = ~np.isnat(plain.walls)
    if not there.any():
        return plain
    first = spans[there].min()
    # What is counted from 0 is told by where it begins.
    ends = spans[there] + (part if first == _NOTHING else _NOTHING)
    if zone is None:
        told = (
            "more is counted than 24 hours; where a local clock changes, --time-zone says whose it "
            "is, such as --time-zone Europe/Berlin"
        )
        return _without(plain, there, ends > _DAY, told)
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
    told = f"more is counted than the day has by the clock of {zone.key}; correct it or --time-zone"
    return _without(Counted(walls, offsets, []), there, begins + ends > nexts, told)


def _are_counted(
    days: Timestamps, spans: NDArray[np.timedelta64], first: np.timedelta64, part: np.timedelta64
) -> bool:
    """Whether short days have all parts in order, none left out as those that a clock skips.

    What begins later than the day, or ends before the clock changes, tells nothing.
    """
    if first not in (_NOTHING, part):
        return False
    for day in np.unique(days):
        found = np.unique(spans[days == day])
        if found[0] != first or not _CHANGED <= found[-1] < _DAY or (np.diff(found) != part).any():
            return False
    return len(days) > 0


def _without(
    found: Counted, there: NDArray[np.bool_], wrong: NDArray[np.bool_], told: str
) -> Counted:
    """Without a time for some of the rows that are there."""
    rows = np.flatnonzero(there)[wrong]
    if not len(rows):
        return found
    walls = found.walls.copy()
    walls[rows] = "NaT"
    return found._replace(walls=walls, wrong=[(told, rows)])
