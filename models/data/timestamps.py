"""Reading a column of timestamps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pandas as pd

from foretell.bundle.errors import TimestampError
from foretell.bundle.timestamps import Timestamps, parse
from foretell.models.data.errors import DataError

_TIMES = ("", " %H:%M", " %H:%M:%S")
_FORMATS = tuple(
    date + time for date in ("%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y") for time in _TIMES
)


class CellError(DataError):
    """A cell that is no timestamp; `row` counts from the first cell of the column."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True)
class Moments:
    """Wall-clock times `[time]` datetime64[us] and the UTC offset all of them share, if any."""

    walls: Timestamps
    utc_offset: timedelta | None = None


def looks_like_timestamp(cell: str) -> bool:
    """Whether a cell can be read as a timestamp and is not just a number."""
    if cell.strip().replace(".", "", 1).isdigit():
        return False
    try:
        read_timestamps([cell])
    except CellError:
        return False
    except DataError:  # a date, if one of two readings
        return True
    return True


def read_timestamps(cells: list[str]) -> Moments:
    """Read ISO 8601 timestamps, or dates such as `2024/3/1 0:00`, `3/31/2024` or `31.3.2024`.

    Raises:
        CellError: a cell is no timestamp, or its UTC offset differs from the cells before it.
        DataError: day and month of the whole column can be told apart in no cell.
    """
    formats = [text for text in _FORMATS if not np.isnat(_read(cells[:1], text)[0])]
    if not formats:
        return _read_iso(cells)
    readings = {text: _read(cells, text) for text in formats}
    complete = {text: walls for text, walls in readings.items() if not np.isnat(walls).any()}
    if not complete:
        text, walls = max(readings.items(), key=lambda item: _first_missing(item[1]))
        row = _first_missing(walls)
        raise CellError(row, f"{cells[row][:60]!r} is no timestamp of the form {text}")
    first, *others = complete.values()
    if any(not np.array_equal(first, other) for other in others):
        raise DataError(
            f"dates such as {cells[0][:60]!r} can be read as {' and as '.join(complete)}; "
            "write them as ISO 8601 (2024-03-01T13:00:00)"
        )
    return Moments(first)


def _read_iso(cells: list[str]) -> Moments:
    walls = np.empty(len(cells), "M8[us]")
    offset: timedelta | None = None
    for row, cell in enumerate(cells):
        try:
            timestamp = parse(cell.strip())
        except TimestampError as error:
            raise CellError(row, str(error)) from None
        if row and timestamp.utc_offset != offset:
            raise CellError(
                row, f"{cell!r}: its UTC offset differs from that of the rows before; use one"
            )
        offset = timestamp.utc_offset
        walls[row] = timestamp.wall
    return Moments(walls, offset)


def _read(cells: list[str], text: str) -> Timestamps:
    parsed = pd.to_datetime(pd.Series(cells, dtype="str"), format=text, errors="coerce")
    return parsed.to_numpy("M8[us]")


def _first_missing(walls: Timestamps) -> int:
    return int(np.isnat(walls).argmax())
