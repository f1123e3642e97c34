"""Time zones of the IANA database: from the wall clock to UTC and back."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np

from foretell.bundle.errors import TimestampError
from foretell.bundle.timestamps import Offsets, Timestamps, check_years
from foretell.service.errors import InvalidInputError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,31}(/[A-Za-z0-9_+-]{1,31}){0,2}")


def find_zone(name: str, place: str) -> ZoneInfo:
    """The time zone of that name.

    Raises:
        InvalidInputError: the database has none.
    """
    try:
        if _NAME.fullmatch(name):
            return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        # No such zone, or a folder of zones.
        pass
    raise InvalidInputError(
        f"expected a time zone of the IANA database, such as Europe/Berlin, got {name[:40]!r}",
        param=place,
    )


def offsets_at(moments: Timestamps, zone: ZoneInfo) -> Offsets:
    """UTC offsets `[time]` of a zone at moments `[time]` in UTC.

    Raises:
        TimestampError: the wall clock lies outside the years 1 to 9999.
    """
    return _offsets(moments, lambda moment: moment.replace(tzinfo=UTC).astimezone(zone))


def offsets_of(walls: Timestamps, zone: ZoneInfo, *, fold: int = 0) -> Offsets:
    """UTC offsets `[time]` that a zone's wall clock `[time]` has.

    Args:
        walls: What the clock shows.
        zone: The zone.
        fold: Which of its two moments a time means that the clock shows twice. Of a time that the
            clock skips, 0 gives the offset before and 1 the one after.

    Raises:
        TimestampError: a time lies outside the years 1 to 9999.
    """
    return _offsets(walls, lambda wall: wall.replace(tzinfo=zone, fold=fold))


def moments_of(
    walls: Timestamps, zone: ZoneInfo, step: np.timedelta64, place: Callable[[int], str]
) -> Timestamps:
    """Moments in UTC `[time]` of a series' wall-clock times `[time]`.

    What the clock shows twice is told apart by the times around it: moments only go forward, and
    by a step where they can.

    Args:
        walls: What the clock shows.
        zone: The zone.
        step: Between the moments of a regular series.
        place: Where a row's time stands in the request.

    Raises:
        InvalidInputError: the clock skips a time, or nothing tells which moment it means.
        TimestampError: a time lies outside the years 1 to 9999.
    """
    early = walls - offsets_of(walls, zone, fold=0)
    late = walls - offsets_of(walls, zone, fold=1)
    if (skipped := early > late).any():
        row = int(np.argmax(skipped))
        raise InvalidInputError(
            f"the clock of {zone.key} skips {walls[row].astype('M8[s]')}", param=place(row)
        )
    twice = early < late
    if twice.all():
        raise InvalidInputError(
            f"the clock of {zone.key} shows {walls[0].astype('M8[s]')} twice: write its UTC offset",
            param=place(0),
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


def _offsets(times: Timestamps, place: Callable[[datetime], datetime]) -> Offsets:
    check_years(times)
    try:
        found = [place(time).utcoffset() or timedelta() for time in times.tolist()]
    except OverflowError:
        raise TimestampError("the timestamps reach beyond the years 1 to 9999") from None
    return np.array(found, "m8[s]")
