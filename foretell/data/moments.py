"""The times of a column, with what is wrong about them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.data.counted import times_of_counts
from foretell.timeaxis.timestamps import Offsets, Timestamps


@dataclass
class Moments:
    """The times of a column of timestamps.

    Attributes:
        walls: `[time]` datetime64[us], wall-clock times; NaT where a cell is not a time.
        offsets: `[time]`, the UTC offsets, if the times were written with some.
        zone: Name of the column's time zone, if it has one.
        wrong: Messages on what is wrong, with their rows.
        notes: Notes for the reader on how the times were read.
    """

    walls: Timestamps
    offsets: Offsets | None = None
    zone: str | None = None
    wrong: list[tuple[str, NDArray[np.intp]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def of_rows(self, kept: NDArray[np.bool_]) -> Moments:
        """The times of the kept rows."""
        places = np.cumsum(kept) - 1
        wrong = [(text, places[rows[kept[rows]]]) for text, rows in self.wrong]
        return Moments(
            self.walls[kept],
            None if self.offsets is None else self.offsets[kept],
            self.zone,
            [(text, rows) for text, rows in wrong if len(rows)],
        )

    def counted(
        self, spans: NDArray[np.timedelta64], part: np.timedelta64, zone: ZoneInfo | None
    ) -> Moments:
        """The times of parts that were counted through these days, by `times_of_counts`."""
        found = times_of_counts(self.walls, spans, part, zone)
        return replace(
            self, walls=found.walls, offsets=found.offsets, wrong=[*self.wrong, *found.wrong]
        )

    @classmethod
    def none(cls, count: int) -> Self:
        """Rows without times."""
        return cls(np.full(count, "NaT", "M8[us]"))

    @property
    def missing(self) -> int:
        """Number of rows without a time."""
        return int(np.isnat(self.walls).sum())

    def checked(self, problem: str, texts: pd.Series | None = None) -> Self:
        """Report rows without a time as wrong; the message quotes the first of their texts."""
        known = [rows for _, rows in self.wrong]
        rows = np.setdiff1d(np.flatnonzero(np.isnat(self.walls)), np.concatenate([*known, []]))
        if len(rows):
            cell = "" if texts is None else f"{texts.iloc[rows[0]][:60]!r}: "
            self.wrong.append((cell + problem, rows))
        return self
