"""Conversion between ISO 8601 timestamps and numpy arrays of wall-clock times."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from foretell.timeaxis.errors import TimestampError

Timestamps = NDArray[np.datetime64]
Offsets = NDArray[np.timedelta64]

_FIRST = np.datetime64("0001-01-01T00:00:00", "us")
_LAST = np.datetime64("9999-12-31T23:59:59.999999", "us")


@dataclass(frozen=True)
class Timestamp:
    """A wall-clock time with the UTC offset that it was written with, if any.

    Calendar features are those of the wall clock, as in training.
    """

    wall: np.datetime64
    utc_offset: timedelta | None = None


def parse(text: str) -> Timestamp:
    """Read one ISO 8601 date or date-time.

    Raises:
        TimestampError: the text is not an ISO 8601 timestamp.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise TimestampError(
            f"expected an ISO 8601 timestamp such as 2024-03-01T13:00:00, got {text[:60]!r}"
        ) from error
    return Timestamp(np.datetime64(moment.replace(tzinfo=None), "us"), moment.utcoffset())


def render(walls: Timestamps, utc_offset: timedelta | Offsets | None) -> list[str]:
    """Write wall-clock times as ISO 8601, with one UTC offset or one for each of `[time]`.

    Raises:
        TimestampError: a time lies outside the years 1 to 9999, which ISO 8601 writes in 4 digits.
    """
    check_years(walls)
    whole_seconds = np.array_equal(walls, walls.astype("M8[s]"))
    texts: list[str] = walls.astype("M8[s]" if whole_seconds else "M8[us]").astype(str).tolist()
    if utc_offset is None:
        return texts
    if isinstance(utc_offset, timedelta):
        suffix = offset_suffix(utc_offset)
        return [text + suffix for text in texts]
    offsets = utc_offset.astype("m8[us]").tolist()
    suffixes = {offset: offset_suffix(offset) for offset in set(offsets)}
    return [text + suffixes[offset] for text, offset in zip(texts, offsets, strict=True)]


def shown(wall: np.datetime64) -> str:
    """A time for messages, in any year; whole seconds are written without fractions."""
    seconds = wall.astype("M8[s]")
    return str(seconds if seconds == wall else wall.astype("M8[us]"))


def check_years(walls: Timestamps) -> None:
    """Check that times can be written.

    Raises:
        TimestampError: a time lies outside the years 1 to 9999.
    """
    if len(walls) and (walls.min() < _FIRST or walls.max() > _LAST):
        raise TimestampError("the timestamps reach beyond the years 1 to 9999")


def offset_suffix(offset: timedelta) -> str:
    """A UTC offset as the suffix of an ISO 8601 time."""
    seconds = round(offset.total_seconds())
    sign = "-" if seconds < 0 else "+"
    hours, rest = divmod(abs(seconds), 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{sign}{hours:02d}:{minutes:02d}" + (f":{seconds:02d}" if seconds else "")


def day_of_week(walls: Timestamps) -> NDArray[np.int64]:
    """Days of the week, from Monday 0 to Sunday 6."""
    # Day 0 of the epoch, 1970-01-01, was a Thursday.
    return np.asarray((walls.astype("M8[D]").astype(np.int64) + 3) % 7)
