"""Small panels, and files of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read
from foretell.data.table import Table
from foretell.timeaxis.frequency import Frequency

HOUR, DAY = Frequency.parse("h"), Frequency.parse("D")
DAYS = [f"2020-01-{day:02d}" for day in range(1, 11)]
PLAIN = [f"{day},{i},{i / 4}" for i, day in enumerate(DAYS)]


def table(
    rows: int,
    series: str = "",
    start: str = "2024-01-01",
    channels: int = 2,
    frequency: Frequency = HOUR,
) -> Table:
    """Rows that no other table has."""
    random = np.random.default_rng([rows, *series.encode()])
    times = frequency.steps_from(np.datetime64(start), rows)
    names = tuple("abcdefgh"[:channels])
    return Table(times, random.normal(size=(rows, channels)), names, frequency, series=series)


def panel(**rows: int) -> Panel:
    """Series of these numbers of rows."""
    return Panel(tuple(table(count, name) for name, count in rows.items()))


def text(*rows: str, header: str = "date,a,b") -> str:
    return "\n".join([header, *rows]) + "\n"


def write(folder: Path, content: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read_text(folder: Path, content: str | bytes, **options: Any) -> Panel:
    return read(write(folder, content), Reading(**options))


def refusal(folder: Path, content: str | bytes, **options: Any) -> str:
    """The error of a refused file, which begins with its name."""
    with pytest.raises(DataError) as raised:
        read_text(folder, content, **options)
    message = str(raised.value)
    assert message.startswith(f"{folder / 'data.csv'}: ")
    return message
