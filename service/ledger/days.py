"""Days of series whose sums of errors must be computed anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

DAY_SECONDS = 86_400
# In microseconds.
DAY = DAY_SECONDS * 1_000_000
# Before all days of all series.
NO_DAY = -(10**9)


class Days:
    """Days since 1970, by the id of their series."""

    def __init__(self) -> None:
        self._days: defaultdict[int, set[int]] = defaultdict(set)

    def __bool__(self) -> bool:
        return bool(self._days)

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        """Each series with its days, in order."""
        for series, days in self._days.items():
            yield series, sorted(days)

    def add(self, series: int, times: NDArray[np.int64]) -> None:
        """Add the days of times in microseconds."""
        self._days[series].update(np.unique(times // DAY).tolist())

    def add_times(self, series: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        """Add the days of times `[series, times]` in microseconds, which increase."""
        days = times // DAY
        is_first = np.diff(days, axis=1, prepend=NO_DAY) != 0
        places, _ = np.nonzero(is_first)
        for one, day in zip(series[places].tolist(), days[is_first].tolist(), strict=True):
            self._days[one].add(day)

    def merge(self, other: Days) -> None:
        for series, days in other._days.items():
            self._days[series].update(days)
