"""Time zones: UTC offsets of their clocks, and moments of wall-clock times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from foretell.timeaxis.errors import RowError, TimestampError
from foretell.timeaxis.timestamps import Offsets, Timestamps, check_years, shown

# No clock of the database changes before the first. After the last, all follow rules that repeat
# with the calendar.
_FIRST, _END = np.datetime64("1840-01-01", "us"), np.datetime64("2500-01-01", "us")
_CYCLE = 146_097 * 86_400
# Shorter than the time between any two changes (four days, in Freetown in 1939). Its halves are
# whole hours, at which nearly all clocks change.
_PROBE = 64 * 3600
_HOUR = 3600
_EPOCH = datetime(1970, 1, 1)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,31}(/[A-Za-z0-9_+-]{1,31}){0,2}")


def find_zone(name: str) -> ZoneInfo:
    """The time zone of a name.

    Raises:
        TimestampError: the database has no such zone.
    """
    try:
        if _NAME.fullmatch(name):
            return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        # No such zone, or a folder of zones.
        pass
    raise TimestampError(
        f"expected a time zone of the IANA database, such as Europe/Berlin, got {name[:40]!r}"
    )


@dataclass(frozen=True)
class _Changes:
    """The changes of a zone's clock.

    Attributes:
        moments: `[changes]`, seconds in UTC.
        walls: `[2, changes]`, wall-clock seconds from which the next offset applies, by fold.
        offsets: `[changes + 1]`, the UTC offsets before, between and after the changes.
    """

    moments: NDArray[np.int64]
    walls: NDArray[np.int64]
    offsets: Offsets


def offsets_at(moments: Timestamps, zone: ZoneInfo) -> Offsets:
    """UTC offsets `[time]` of a zone at moments `[time]` in UTC.

    Raises:
        TimestampError: the wall clock lies outside the years 1 to 9999.
    """
    check_years(moments)
    changes = _changes_of(zone)
    offsets = changes.offsets[np.searchsorted(changes.moments, _seconds(moments), "right")]
    check_years(moments + offsets)
    return offsets


def offsets_of(walls: Timestamps, zone: ZoneInfo, *, fold: int = 0) -> Offsets:
    """UTC offsets `[time]` of a zone at wall-clock times `[time]`.

    Args:
        walls: Wall-clock times.
        zone: The zone.
        fold: For a time that the clock shows twice, 0 means the first and 1 the second. For a time
            that the clock skips, 0 gives the offset before and 1 the one after.

    Raises:
        TimestampError: a time lies outside the years 1 to 9999.
    """
    check_years(walls)
    changes = _changes_of(zone)
    return changes.offsets[np.searchsorted(changes.walls[fold], _seconds(walls), "right")]


def moments_of(walls: Timestamps, zone: ZoneInfo, step: np.timedelta64) -> Timestamps:
    """Moments in UTC `[time]` of a series' wall-clock times `[time]`.

    For a time that the clock shows twice, the times around it decide: moments only go forward, and
    if possible by one step.

    Args:
        walls: Wall-clock times.
        zone: The zone.
        step: Distance of neighbouring moments in a regular series.

    Raises:
        RowError: the clock skips a time, or shows all times twice.
        TimestampError: a time lies outside the years 1 to 9999.
    """
    early = walls - offsets_of(walls, zone, fold=0)
    late = walls - offsets_of(walls, zone, fold=1)
    if (skipped := early > late).any():
        row = int(np.argmax(skipped))
        raise RowError(row, f"the clock of {zone.key} skips {shown(walls[row])}")
    twice = early < late
    if twice.all():
        raise RowError(
            0,
            f"the clock of {zone.key} shows {shown(walls[0])} twice: write its UTC offset",
        )
    moments = early.copy()
    known = int(np.argmin(twice))
    for row in range(known - 1, -1, -1):
        if late[row] < moments[row + 1] and early[row] != moments[row + 1] - step:
            moments[row] = late[row]
    for row in (np.flatnonzero(twice[known:]) + known).tolist():
        if moments[row] <= moments[row - 1] or late[row] == moments[row - 1] + step:
            moments[row] = late[row]
    return moments


def first_undecided(moments: Timestamps, zone: ZoneInfo, step: np.timedelta64) -> int | None:
    """The first of `moments_of` some times that may as well be the other moment of its time.

    In a series with gaps a time that the clock shows twice is only known if a neighbour is one
    step away from this moment, and none from the other.

    Args:
        moments: `[time]` in UTC, increasing.
        zone: The zone.
        step: Least distance of neighbouring moments.
    """
    walls = moments + offsets_at(moments, zone)
    early = walls - offsets_of(walls, zone, fold=0)
    late = walls - offsets_of(walls, zone, fold=1)

    def is_next_to_one(found: Timestamps) -> NDArray[np.bool_]:
        after, before = moments[:-1] + step == found[1:], moments[1:] - step == found[:-1]
        return np.asarray(np.append(False, after) | np.append(before, False))

    is_known = is_next_to_one(moments) & ~is_next_to_one(early + (late - moments))
    undecided = np.flatnonzero((early < late) & ~is_known)
    return int(undecided[0]) if len(undecided) else None


@cache
def _changes_of(zone: ZoneInfo) -> _Changes:
    """The changes between `_FIRST` and `_END`; the search takes about 15 ms."""
    probes = np.arange(_FIRST, _END, np.timedelta64(_PROBE, "s")).tolist()
    probed = [zone.utcoffset(wall) for wall in probes]
    offsets, moments, folds = [_in_seconds(probed[0])], [], []
    for index, (before, after) in enumerate(pairwise(probed)):
        if after == before:
            continue
        known, changed = 0, _PROBE
        while changed - known > 1:
            half = changed - 1 if changed - known == _HOUR else (known + changed) // 2
            if zone.utcoffset(probes[index] + timedelta(seconds=half)) == before:
                known = half
            else:
                changed = half
        offsets.append(_in_seconds(after))
        # Fold 0 means the first of two equal times, and the offset before a skipped one.
        folds.append((max(offsets[-2:]), min(offsets[-2:])))
        moments.append(_in_seconds(probes[index] - _EPOCH) + changed - folds[-1][0])
    at = np.array(moments, np.int64)
    walls = at + np.array(folds, np.int64).reshape(-1, 2).T
    return _Changes(at, walls, np.array(offsets, "m8[s]"))


def _in_seconds(time: timedelta | None) -> int:
    return (time or timedelta()) // timedelta(seconds=1)


def _seconds(times: Timestamps) -> NDArray[np.int64]:
    """Seconds since 1970, moved by whole calendar cycles into the range of the table."""
    seconds = times.astype("M8[s]").astype(np.int64)
    end = int(_END.astype("M8[s]").astype(np.int64)) - _PROBE
    return np.where(seconds < end, seconds, end - _CYCLE + (seconds - end) % _CYCLE)
