"""A regular multivariate time series."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.frequency import Frequency
from foretell.bundle.timestamps import Timestamps


@dataclass(frozen=True, eq=False)
class Table:
    """A time series without gaps.

    Attributes:
        timestamps: `[time]` datetime64[us], wall-clock time.
        values: `[time, channels]` float64, finite, in the user's units.
        channels: Names of the channels.
        frequency: Spacing of the timestamps.
        utc_offset: Offset the timestamps were written with, if any.
        path: The file it was read from, if any.
        timestamp_column: Name of the timestamp column in that file.
    """

    timestamps: Timestamps
    values: NDArray[np.float64]
    channels: tuple[str, ...]
    frequency: Frequency
    utc_offset: timedelta | None = None
    path: Path | None = None
    timestamp_column: str | None = None

    def __len__(self) -> int:
        return len(self.timestamps)

    def fingerprint(self) -> str:
        """sha256 over timestamps, values, channels and frequency."""
        digest = hashlib.sha256(repr((self.channels, str(self.frequency))).encode())
        digest.update(self.timestamps.astype("M8[us]").tobytes())
        digest.update(np.ascontiguousarray(self.values).tobytes())
        return digest.hexdigest()
