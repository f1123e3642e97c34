"""Rows of a table, and which of all its rows they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True)
class Rows:
    """Some rows: stretches that follow each other in the whole table.

    A column of numbers would say the same, and is as dear to make as the values are to read.

    Attributes:
        table: `unique_id`, `ds` if there are times, the channels, and `wrong` if it is of texts.
        begins: `[stretches]`, the rows of `table` with which they begin, ascending from 0.
        firsts: `[stretches]`, which of all rows these are.
    """

    table: pa.Table
    begins: NDArray[np.int64]
    firsts: NDArray[np.int64]

    @classmethod
    def of(cls, table: pa.Table, first: int) -> Rows:
        """Rows of one stretch, with which of all it begins."""
        return cls(table, np.zeros(1, np.int64), np.array([first]))

    @classmethod
    def joined(cls, some: Sequence[Rows]) -> Rows:
        """Some after each other, in one piece of memory; texts may be dictionaries."""
        if len(some) == 1:
            return some[0]
        at = np.cumsum([0, *map(len, some)])
        return cls(
            pa.concat_tables([each.table for each in some]).unify_dictionaries().combine_chunks(),
            np.concatenate([each.begins + begin for each, begin in zip(some, at, strict=False)]),
            np.concatenate([each.firsts for each in some]),
        )

    def __len__(self) -> int:
        """How many they are."""
        return len(self.table)

    def number(self, row: int) -> int:
        """Which of all rows one of these is."""
        at = np.searchsorted(self.begins, row, "right") - 1
        return int(self.firsts[at] - self.begins[at]) + row

    def part(self, begin: int, end: int) -> Rows:
        """Those from one to before another."""
        first, last = np.searchsorted(self.begins, [begin, end - 1], "right") - [1, 0]
        begins = np.maximum(self.begins[first:last], begin)
        firsts = self.firsts[first:last] + begins - self.begins[first:last]
        return Rows(self.table.slice(begin, end - begin), begins - begin, firsts)
