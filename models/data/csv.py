"""Reading wide CSV files: a timestamp column and one column a channel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.bundle.errors import FrequencyError
from foretell.bundle.frequency import Frequency
from foretell.bundle.regularity import first_irregularity, infer
from foretell.bundle.timestamps import Timestamps
from foretell.models.data.errors import DataError
from foretell.models.data.panel import Panel, Source
from foretell.models.data.table import Table
from foretell.models.data.timestamps import CellError, looks_like_timestamp, read_timestamps

_TIMESTAMP_NAMES = ("date", "datetime", "timestamp", "time", "ds")
_SHORTEST = 3


def read_csv(
    path: Path,
    *,
    timestamp_column: str | None = None,
    channels: Sequence[str] | None = None,
    frequency: Frequency | None = None,
) -> Panel:
    """Read a CSV file with a header, in UTF-8 and separated by commas.

    Args:
        path: The file.
        timestamp_column: Its name; by default a column called date, datetime, timestamp, time or
            ds, or else the first one that holds dates.
        channels: Columns to read, in this order; by default all others.
        frequency: Spacing of the rows; by default the one most rows have.

    Raises:
        DataError: the file does not hold a regular time series; the message names file, line
            (the header is line 1) and column.
    """
    names, rows = _read_cells(path)
    time_column = _find_timestamps(path, names, rows, timestamp_column)
    chosen = _choose_channels(path, names, time_column, channels)
    if len(rows) < _SHORTEST:
        raise DataError(f"{path}: expected at least {_SHORTEST} rows of data, got {len(rows)}")
    place = f"column {names[time_column]!r}"
    try:
        moments = read_timestamps(rows.iloc[:, time_column].tolist())
    except CellError as error:
        raise DataError(f"{path}: line {error.row + 2}, {place}: {error}") from None
    except DataError as error:
        raise DataError(f"{path}: {place}: {error}") from None
    try:
        spacing = frequency or infer(moments.walls)
    except FrequencyError as error:
        raise DataError(f"{path}: {place}: {error}") from None
    _check_spacing(f"{path}: line {{line}}, {place}", moments.walls, spacing)
    values = np.column_stack([_numbers(path, names[i], rows.iloc[:, i]) for i in chosen])
    table = Table(
        timestamps=moments.walls,
        values=values,
        channels=tuple(names[i] for i in chosen),
        frequency=spacing,
        utc_offset=moments.utc_offset,
    )
    return Panel((table,), Source(path, names[time_column]))


def _read_cells(path: Path) -> tuple[list[str], pd.DataFrame]:
    """Column names, and the cells below them as text."""
    try:
        # The header is read as a row: a longer row then is an error, and no name is altered.
        cells = pd.read_csv(
            path,
            header=None,
            dtype="str",
            keep_default_na=False,
            skip_blank_lines=False,
            encoding="utf-8-sig",
        )
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except pd.errors.EmptyDataError:
        raise DataError(f"{path}: the file is empty") from None
    except pd.errors.ParserError as error:
        reason = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise DataError(f"{path}: not a CSV table: {reason}") from None
    names = [name.strip() for name in cells.iloc[0]]
    if len(names) < 2:
        raise DataError(f"{path}: line 1: expected at least two columns separated by commas")
    for i, name in enumerate(names):
        if not name:
            raise DataError(f"{path}: line 1: column {i + 1} has no name")
        if name in names[:i]:
            raise DataError(f"{path}: line 1: two columns are called {name!r}")
    rows = cells.iloc[1:].reset_index(drop=True)
    filled = np.flatnonzero((rows != "").any(axis=1).to_numpy())
    # Blank lines at the end of a file are no rows.
    return names, rows.iloc[: filled[-1] + 1 if len(filled) else 0]


def _find_timestamps(path: Path, names: list[str], rows: pd.DataFrame, wanted: str | None) -> int:
    if wanted is not None:
        if wanted not in names:
            raise DataError(f"{path}: line 1: no column {wanted!r}; there are {', '.join(names)}")
        return names.index(wanted)
    lower = [name.lower() for name in names]
    for name in _TIMESTAMP_NAMES:
        if name in lower:
            return lower.index(name)
    if len(rows):
        for i, cell in enumerate(rows.iloc[0]):
            if looks_like_timestamp(cell):
                return i
    raise DataError(
        f"{path}: line 1: no timestamp column: none is called {', '.join(_TIMESTAMP_NAMES)} and "
        "none holds dates"
    )


def _choose_channels(
    path: Path, names: list[str], time_column: int, wanted: Sequence[str] | None
) -> list[int]:
    if wanted is None:
        return [i for i in range(len(names)) if i != time_column]
    if not wanted:
        raise DataError(f"{path}: no channel chosen")
    chosen: list[int] = []
    for name in wanted:
        if name not in names or names.index(name) == time_column:
            others = ", ".join(other for i, other in enumerate(names) if i != time_column)
            raise DataError(f"{path}: line 1: no channel {name!r}; there are {others}")
        if names.index(name) in chosen:
            raise DataError(f"{path}: channel {name!r} is chosen twice")
        chosen.append(names.index(name))
    return chosen


def _check_spacing(place: str, walls: Timestamps, frequency: Frequency) -> None:
    found = first_irregularity(frequency, walls)
    if found is None:
        return
    problem = {
        "gap": "rows are missing before it",
        "duplicate": "it repeats the row before",
        "order": "it is earlier than the row before",
        "misaligned": "it lies between two steps",
    }[found.kind]
    start = place.format(line=found.index + 2)
    raise DataError(
        f"{start}: {walls[found.index].astype('M8[s]')}: {problem}; at a frequency of {frequency} "
        f"expected {found.expected.astype('M8[s]')}"
    )


def _numbers(path: Path, name: str, cells: pd.Series[str]) -> NDArray[np.float64]:
    numbers = pd.to_numeric(cells, errors="coerce").to_numpy(np.float64)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        row = int(wrong[0])
        cell = cells.iloc[row]
        problem = f"{cell[:60]!r} is no finite number" if cell.strip() else "no value"
        raise DataError(f"{path}: line {row + 2}, column {name!r}: {problem}")
    return numbers
