"""A regular multivariate time series."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.frequency import Frequency
from foretell.bundle.timestamps import Offsets, Timestamps


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
    """

    timestamps: Timestamps
    values: NDArray[np.float64]
    channels: tuple[str, ...]
    frequency: Frequency
    utc_offset: timedelta | Offsets | None = None
    series: str = ""

    def __len__(self) -> int:
        return len(self.timestamps)
