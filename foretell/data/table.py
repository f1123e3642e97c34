"""A regular multivariate time series."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.gaps import latest, rows_before
from foretell.timeaxis.timestamps import Offsets, Timestamps


@dataclass(frozen=True, eq=False)
class Table:
    """A time series without gaps, or the rows of one between two of its holes.

    Attributes:
        timestamps: `[time]` datetime64[us], wall-clock time.
        values: `[time, channels]` float64, finite, in the user's units.
        channels: Names of the channels.
        frequency: Spacing of the timestamps.
        utc_offset: Offset the timestamps were written with, if any; `[time]` where it changes.
        series: Which series of its panel it is of; empty where a file has one without a name.
        filled: `[time, channels]`, where a value was missing and was filled in, from the rows
            around it; None where none was.
    """

    timestamps: Timestamps
    values: NDArray[np.float64]
    channels: tuple[str, ...]
    frequency: Frequency
    utc_offset: timedelta | Offsets | None = None
    series: str = ""
    filled: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.timestamps)

    def known(self, start: int = 0, end: int | None = None) -> NDArray[np.float64]:
        """Rows with NaN where a value was filled in."""
        values = self.values[start:end]
        if self.filled is None:
            return values
        return np.where(self.filled[start:end], np.nan, values)

    def history(self, start: int, end: int) -> NDArray[np.float64]:
        """Rows before an origin, filled from what is known before it alone."""
        if self.filled is None or start >= end:
            return self.values[start:end]
        last = latest(~self.filled[:end])[-1]
        read = rows_before(np.arange(start, end), last)
        found: NDArray[np.float64] = self.values[read, np.arange(self.values.shape[1])]
        return found
