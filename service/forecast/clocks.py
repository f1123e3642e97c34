"""What the clock shows at the steps of a series, and how far it is from UTC.

The steps that a clock reads are its own hands, or moments in UTC where it changes between steps
that are equal stretches of time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

import numpy as np

from foretell.bundle import zones
from foretell.bundle.errors import TimestampError
from foretell.bundle.timestamps import Offsets, Timestamps
from foretell.bundle.zones import offsets_at, offsets_of
from foretell.service.errors import InvalidInputError

Reading = tuple[Timestamps, timedelta | Offsets | None]


class Clock(Protocol):
    """Tells wall-clock times and UTC offsets."""

    def read(self, steps: Timestamps, first: int) -> Reading:
        """Read the clock.

        Args:
            steps: `[time]`, one after another.
            first: The row of the first of them; rows from the history's length on are forecast.

        Returns:
            `[time]` wall-clock times; and their UTC offset, `[time]` if they differ, None if it is
            unknown.
        """


@dataclass(frozen=True)
class FixedClock:
    """A clock that never changes.

    Attributes:
        offset: Its UTC offset, None if it is unknown.
    """

    offset: timedelta | None

    def read(self, steps: Timestamps, first: int) -> Reading:  # noqa: ARG002 - see Clock
        """See `Clock`."""
        return steps, self.offset


@dataclass(frozen=True, eq=False)
class ListedClock:
    """A clock of which only the offsets in the history are known; the last one goes on.

    Attributes:
        offsets: `[rows]`.
        in_utc: Whether the steps are moments in UTC.
    """

    offsets: Offsets
    in_utc: bool

    def read(self, steps: Timestamps, first: int) -> Reading:
        """See `Clock`."""
        rows = np.arange(first, first + len(steps))
        offsets = self.offsets[np.clip(rows, 0, len(self.offsets) - 1)]
        return (steps + offsets if self.in_utc else steps), offsets


@dataclass(frozen=True)
class ZoneClock:
    """The clock of a time zone.

    Attributes:
        zone: The time zone.
        in_utc: Whether the steps are moments in UTC.
    """

    zone: ZoneInfo
    in_utc: bool

    def read(self, steps: Timestamps, first: int) -> Reading:  # noqa: ARG002 - see Clock
        """See `Clock`."""
        if not self.in_utc:
            return steps, offsets_of(steps, self.zone)
        offsets = offsets_at(steps, self.zone)
        return steps + offsets, offsets


def find_zone(name: str, place: str) -> ZoneInfo:
    """The time zone of that name.

    Raises:
        InvalidInputError: the database has none.
    """
    try:
        return zones.find_zone(name)
    except TimestampError as error:
        raise InvalidInputError(str(error), param=place) from None
