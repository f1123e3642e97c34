"""When the steps of a history and of its forecast are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from zoneinfo import ZoneInfo

import numpy as np

from foretell.bundle import timestamps
from foretell.bundle.errors import TimestampError
from foretell.bundle.frequency import Frequency
from foretell.bundle.timestamps import Offsets, Timestamp, Timestamps, offset_suffix
from foretell.service.errors import InvalidInputError
from foretell.service.times.clocks import Clock, FixedClock, Reading, ZoneClock
from foretell.service.times.zones import moments_of, offsets_at


@dataclass(frozen=True)
class Timeline:
    """The times of a history and what follows it.

    Attributes:
        frequency: The spacing of the steps.
        start: The step of one row of the history, as the clock takes it.
        row: That row.
        rows: Rows of the history; the first forecast step follows them.
        clock: Tells the wall-clock times of steps.
    """

    frequency: Frequency
    start: np.datetime64
    row: int
    rows: int
    clock: Clock

    def read(self, first: int, count: int) -> Reading:
        """Wall-clock times `[count]` from step `first` on, and their UTC offsets (see `Clock`).

        Step 0 is the first forecast one.

        Raises:
            TimestampError: a time lies beyond the year 9999 (of a time zone's clock alone).
        """
        row = self.rows + first
        steps = self.frequency.steps_from(self.start, count, first=row - self.row)
        return self.clock.read(steps, row)

    @property
    def varies(self) -> bool:
        """Whether its UTC offset may change."""
        return not isinstance(self.clock, FixedClock)

    def labels(self, first: int, count: int) -> list[str]:
        """The same as ISO 8601 texts.

        Raises:
            TimestampError: a time lies beyond the year 9999.
        """
        return timestamps.render(*self.read(first, count))


def timeline_from(
    text: str, zone: ZoneInfo | None, frequency: Frequency, rows: int, place: str
) -> Timeline:
    """The times of a history, from that of its first row.

    Args:
        text: The time.
        zone: Whose clock it is about, if the request says so.
        frequency: The model's.
        rows: Rows of the history.
        place: Where the text stands in the request.

    Raises:
        InvalidInputError: the text is no timestamp, or no step falls on it.
        TimestampError: the zone's clock lies outside the years 1 to 9999.
    """
    stamp = parse_timestamp(text, place)
    if zone is None:
        clock: Clock = FixedClock(stamp.utc_offset)
        step = stamp.wall
    else:
        clock = ZoneClock(zone, in_utc=frequency.sub_daily)
        walls = np.array([stamp.wall])
        offsets = None if stamp.utc_offset is None else np.array([stamp.utc_offset], "m8[us]")
        step = steps_in_zone(walls, offsets, clock, frequency, lambda _: place)[0]
    check_first(step, clock, frequency, place)
    return Timeline(frequency, step, 0, rows, clock)


def steps_in_zone(
    walls: Timestamps,
    offsets: Offsets | None,
    clock: ZoneClock,
    frequency: Frequency,
    place: Callable[[int], str],
) -> Timestamps:
    """Steps `[time]`, as the clock takes them, of timestamps in any form.

    Args:
        walls: `[time]`, as they were written.
        offsets: `[time]`, the UTC offsets they were written with; without any, they are what the
            zone's clock shows.
        clock: The clock of their zone.
        frequency: The spacing that they should have.
        place: Where each stands in the request.

    Raises:
        InvalidInputError: the clock never shows a time, or twice.
        TimestampError: a time lies outside the years 1 to 9999.
    """
    if offsets is None:
        if not clock.in_utc:
            return walls
        step = np.diff(frequency.steps_from(walls[0], 2))[0]
        return moments_of(walls, clock.zone, step, place)
    moments = walls - offsets
    return moments if clock.in_utc else moments + offsets_at(moments, clock.zone)


def check_first(step: np.datetime64, clock: Clock, frequency: Frequency, place: str) -> None:
    """Make sure that a history may begin there.

    Raises:
        InvalidInputError: the frequency's edge or anchor, or a weekend, forbids it.
    """
    if frequency.sub_daily:
        return
    nearest = frequency.steps_from(step, 1)[0]
    if nearest != step:
        raise InvalidInputError(
            f"no step of frequency {frequency} falls on it; the next one is "
            f"{shown_step(nearest, clock, 0)}",
            param=place,
        )


def parse_timestamp(text: str, place: str) -> Timestamp:
    """Read a timestamp.

    Raises:
        InvalidInputError: the text is none.
    """
    try:
        return timestamps.parse(text)
    except TimestampError as error:
        raise InvalidInputError(str(error), param=place) from None


def shown_step(step: np.datetime64, clock: Clock, row: int) -> str:
    """A step in an error message."""
    walls, offset = clock.read(np.array([step]), row)
    if isinstance(offset, np.ndarray):
        offset = timedelta(microseconds=int(offset.astype("m8[us]")[0].astype(np.int64)))
    return str(walls[0].astype("M8[s]")) + ("" if offset is None else offset_suffix(offset))
