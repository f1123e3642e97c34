"""Inputs of the graphs, many windows together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class WindowSet:
    """Inputs of the graphs.

    Attributes:
        name: Kind of the windows.
        history: `[batch, context, channels]` in the user's units; NaN where a value is missing.
        history_calendar: `[batch, context, features]`, or None.
        future_calendar: `[batch, horizon, features]`, or None.
    """

    name: str
    history: Floats
    history_calendar: Floats | None
    future_calendar: Floats | None

    def __len__(self) -> int:
        return len(self.history)

    @property
    def inputs(self) -> tuple[Floats, Floats | None, Floats | None]:
        """All inputs, in the graph's order."""
        return self.history, self.history_calendar, self.future_calendar

    def take(self, rows: NDArray[np.int64] | slice) -> WindowSet:
        """Some of the windows."""
        calendars = (self.history_calendar, self.future_calendar)
        taken = (None if part is None else part[rows] for part in calendars)
        return WindowSet(self.name, self.history[rows], *taken)

    def batches(self, size: int) -> Iterator[WindowSet]:
        """All windows in order, `size` at a time; the last batch may be smaller."""
        for start in range(0, len(self), size):
            yield self.take(slice(start, start + size))
