"""Small panels."""

from __future__ import annotations

import numpy as np

from foretell.data.panel import Panel
from foretell.data.table import Table
from foretell.timeaxis.frequency import Frequency

HOUR = Frequency.parse("h")


def table(rows: int, series: str = "", start: str = "2024-01-01", channels: int = 2) -> Table:
    """Rows that no other table has."""
    random = np.random.default_rng([rows, *series.encode()])
    times = HOUR.steps_from(np.datetime64(start), rows)
    names = tuple("abcdefgh"[:channels])
    return Table(times, random.normal(size=(rows, channels)), names, HOUR, series=series)


def panel(**rows: int) -> Panel:
    """Series of so many rows each."""
    return Panel(tuple(table(count, name) for name, count in rows.items()))
