"""Days of series whose sums of errors must be computed anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

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
        # Ids and times of forecasts. Few of them have actual values yet, and need their days.
        self._forecasts: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []

    @property
    def series(self) -> list[int]:
        """Ids of all series."""
        return sorted({*self._days}.union(*(ids.tolist() for ids, _ in self._forecasts)))

    def of(self, series: Collection[int]) -> dict[int, list[int]]:
        """The days of each of these series, in order."""
        found = {one: {*self._days.get(one, ())} for one in series}
        for ids, times in self._forecasts:
            is_wanted = np.isin(ids, [*found])
            days = times[is_wanted] // DAY
            is_first = np.diff(days, axis=1, prepend=NO_DAY) != 0
            places, _ = np.nonzero(is_first)
            own = ids[is_wanted][places].tolist()
            for one, day in zip(own, days[is_first].tolist(), strict=True):
                found[one].add(day)
        return {one: sorted(days) for one, days in found.items()}

    def add(self, series: int, times: NDArray[np.int64]) -> None:
        """Add the days of times in microseconds."""
        self._days[series].update(np.unique(times // DAY).tolist())

    def add_times(self, series: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        """Add the days of times `[series, times]` in microseconds, which increase."""
        self._forecasts.append((series, times))

    def merge(self, other: Days) -> None:
        for series, days in other._days.items():
            self._days[series].update(days)
        self._forecasts += other._forecasts
