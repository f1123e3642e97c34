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
    """A time series without gaps, or its rows between two holes.

    Attributes:
        timestamps: `[time]` datetime64[us], wall-clock times.
        values: `[time, channels]` float64, finite, in the user's units.
        channels: Names of the channels.
        frequency: Spacing of the timestamps.
        utc_offset: UTC offset that the timestamps were written with; `[time]` if it changes, None
            without one.
        series: Name of the series in its panel; empty for a single series without a name.
        filled: `[time, channels]`, whether a value was missing and was filled from rows around it;
            None if no value was missing.
        covariates: `[time, future]` float64, finite codes of the future covariates of the panel;
            None without any.
        covariates_filled: `[time, future]`, whether a code was missing and was filled; None if none
            was missing.
        static: `[static]` float64, finite codes of its static covariates; None without any.
        ahead: `[steps, future]` float64, finite codes of the future covariates in the rows that
            follow and have no values yet; None without such rows.
    """

    timestamps: Timestamps
    values: NDArray[np.float64]
    channels: tuple[str, ...]
    frequency: Frequency
    utc_offset: timedelta | Offsets | None = None
    series: str = ""
    filled: NDArray[np.bool_] | None = None
    covariates: NDArray[np.float64] | None = None
    covariates_filled: NDArray[np.bool_] | None = None
    static: NDArray[np.float64] | None = None
    ahead: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.timestamps)

    def known(self, start: int = 0, end: int | None = None) -> NDArray[np.float64]:
        """Rows with NaN for values that were filled in."""
        values = self.values[start:end]
        if self.filled is None:
            return values
        return np.where(self.filled[start:end], np.nan, values)

    def known_covariates(
        self, start: int = 0, end: int | None = None
    ) -> NDArray[np.float64] | None:
        """Rows of covariates with NaN for codes that were filled in; None without covariates."""
        if self.covariates is None:
            return None
        codes = self.covariates[start:end]
        if self.covariates_filled is None:
            return codes
        return np.where(self.covariates_filled[start:end], np.nan, codes)

    def history(self, start: int, end: int) -> NDArray[np.float64]:
        """Rows before an origin, with gaps filled from values before it alone."""
        if self.filled is None or start >= end:
            return self.values[start:end]
        last = latest(~self.filled[:end])[-1]
        read = rows_before(np.arange(start, end), last)
        found: NDArray[np.float64] = self.values[read, np.arange(self.values.shape[1])]
        return found
