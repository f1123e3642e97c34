"""The columns of a table that hold times, and those that hold names of series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.bundle.nearness import listed
from foretell.data.apart import (
    clocks_of,
    count_repeated,
    flag,
    has_clock,
    holds_times,
    is_sure,
    names_apart,
    repeats,
)
from foretell.data.cells import Cells
from foretell.data.clock import has_clock_form, is_clock
from foretell.data.errors import DataError
from foretell.data.numbers import is_text, read_numbers
from foretell.data.parts import are_dates, beside, find_parts, part_called
from foretell.data.timestamps import read_timestamps

TIMES = (
    *("date", "datetime", "timestamp", "time", "ds", "dates", "datetimes", "timestamps", "times"),
    *("period", "month", "quarter", "week", "year", "epoch"),
)
IDS = ("unique_id", "series_id", "item_id", "ts_id", "series", "symbol", "ticker", "id")
# Names of an index column.
_INDEX = ("index", "id", "no", "no.", "nr", "row", "instant", "step")
# Smallest number that can be a time, and number of cells that are tried.
_EPOCH, _TELLING = 1e5, 1000
# Names that mean a column of times of the day and hardly anything else.
_CLOCKS = (
    *(
        "time",
        "hour",
        "hh",
        "hhmm",
        "hh:mm",
        "hh:mm:ss",
        "clock",
        "time of day",
        "local time",
        "utc",
    ),
    *("zeit", "uhrzeit", "stunde", "heure", "hora", "ora", "tijd", "uur", "time (utc)"),
)
_PARTS = ("year", "quarter", "month")
_COUNTED = ("period", "week", "epoch", "month", "quarter")


class Roles(NamedTuple):
    """Names of columns.

    Attributes:
        times: Columns that make the time of a row.
        ids: Columns that name the series of a row.
    """

    times: tuple[str, ...]
    ids: tuple[str, ...]


def find_roles(
    cells: Cells,
    times: tuple[str, ...] | None,
    ids: tuple[str, ...] | None,
    channels: tuple[str, ...] | None,
) -> Roles:
    """Find the columns of times and of names, and drop a column that only counts rows.

    Args:
        cells: The table, which is changed.
        times: Columns of times; found if not given.
        ids: Columns of names of series; found if not given.
        channels: Columns that are kept, even if they count rows.

    Raises:
        DataError: a column does not exist, or no column holds times.
    """
    names = list(cells.frame.columns)
    for name in (*(times or ()), *(ids or ())):
        if name not in names:
            raise DataError(f"no column {name!r}; there are {listed(names)}")
    if times is None:
        times = _find_times(cells, ids)
    _drop_index(cells, {*times, *(ids or ()), *(channels or ())})
    if ids is None:
        ids = _find_ids(cells.frame, times)
    return Roles(times, ids)


def _find_times(cells: Cells, ids: tuple[str, ...] | None) -> tuple[str, ...]:
    frame, names = cells.frame, list(cells.frame.columns)
    lower = {name.lower(): name for name in reversed(names) if name not in (ids or ())}
    parts = find_parts(frame, [name for name in names if name not in (ids or ())])
    plain = [lower[name] for name in TIMES if name in lower and name not in _PARTS]
    dates = [name for name in plain if holds_times(frame[name], named=True)]
    # A time of the day is not a date.
    if len(dates) > 1:
        dates = [name for name in dates if not is_clock(frame[name])] or dates
    others = (name for name in names if name in lower.values() and name not in dates)
    dates += [name for name in others if holds_times(frame[name], named=False)]
    candidates = [(name,) for name in dates] + ([tuple(parts.values())] if parts else [])
    if candidates:
        return _choose_times(cells, candidates, _find_ids(frame, ()) if ids is None else ids)
    named = [lower[name] for name in TIMES if name in lower]
    named += [name for name in lower.values() if part_called(name) == "year"]
    # Numbers that count weeks or periods are not times.
    named = [name for name in named if name.lower() not in _COUNTED or is_text(frame[name])]
    if named:
        return (named[0],)
    likely = [name for name in lower.values() if _may_hold_times(frame[name])]
    if likely:
        remedy = f"{likely[0]!r} may hold them: {flag('time-column', likely[:1])}"
    else:
        remedy = (
            "--time-column names it; if the table has no times, add some, such as by "
            "frame.insert(0, 'ds', pd.date_range('2024-01-01', periods=len(frame), freq='h')) of "
            "pandas"
        )
    raise DataError(
        f"no timestamp column: none is called {', '.join(TIMES[:5])} and none holds dates; "
        f"{remedy}; there are {listed(names)}"
    )


def _may_hold_times(cells: pd.Series) -> bool:
    """Whether whole numbers are epochs or dates of digits, whatever the name of the column."""
    numbers = cells.dropna()
    if not pd.api.types.is_numeric_dtype(cells) or not len(numbers) or numbers.min() < _EPOCH:
        return False
    return not read_timestamps(numbers.iloc[:_TELLING]).wrong


def _choose_times(
    cells: Cells, candidates: list[tuple[str, ...]], ids: tuple[str, ...]
) -> tuple[str, ...]:
    """The first candidate whose times do not repeat, or repeat only across series."""
    first: tuple[str, ...] = ()
    for dates in candidates:
        names = tuple(each for each in ids if each not in dates)
        times = (*dates, *_find_clock(cells.frame, dates, names))
        first = first or times
        if (
            not repeats(cells.frame, [*times, *names])
            or names_apart(cells.frame, times, names) is not None
        ):
            if times != first:
                cells.notes.append(
                    f"column {first[0]!r} repeats its times; those of {', '.join(dates)!r} are read"
                )
            return times
    return first


def _find_clock(
    frame: pd.DataFrame, dates: tuple[str, ...], ids: tuple[str, ...]
) -> tuple[str, ...]:
    """The column of times of the day, if the dates have none."""
    is_date = (
        are_dates(find_parts(frame, dates)) if len(dates) > 1 else not has_clock(frame[dates[0]])
    )
    if not is_date:
        return ()
    names = list(frame.columns)
    at = max(names.index(name) for name in dates)
    count = count_repeated(frame, [*ids, *dates])
    for after in names[at + 1 : at + 2]:
        first = frame[after].dropna().iloc[:1]
        # In daily rows it may be any other time, such as the sunrise or a duration.
        may_belong = count or after.lower() in _CLOCKS or frame[after].nunique() == 1
        if may_belong and has_clock_form(first) and is_clock(first):
            return (after,)
    if not count:
        return ()
    found = [name for name in clocks_of(frame, (*ids, *dates)) if is_sure(frame, name)]
    for name in sorted(found, key=lambda name: names.index(name) < at):
        left = count_repeated(frame, [*ids, *dates, name])
        if left < count:
            others = [each for each in names if each not in (name, *dates, *ids)]
            return (name, *beside(others, name)) if left else (name,)
    return ()


def _drop_index(cells: Cells, taken: set[str]) -> None:
    """Drop an index that was written as a column, and name a column without a name."""
    for name in cells.frame.columns:
        nameless = not name or name.startswith("Unnamed: ")
        called = name or "unnamed"
        if name not in taken and (nameless or name.lower() in _INDEX):
            numbers = read_numbers(cells.frame[name], cells.decimal).values
            shown = f"column {name!r}" if name else "the column without a name"
            if called not in taken and _counts(numbers, nameless=nameless):
                cells.notes.append(f"{shown} counts the rows and is left out")
                cells.frame = cells.frame.drop(columns=name)
            elif not name:
                cells.frame = cells.frame.rename(columns={name: called})


def _counts(numbers: NDArray[np.float64], *, nameless: bool) -> bool:
    """Whether numbers count rows; without a name, from any number and backwards too."""
    steps = np.diff(numbers)
    if nameless and len(steps):
        return bool((steps == steps[0]).all() and abs(steps[0]) == 1)
    return len(numbers) > 0 and bool((steps == 1).all() and numbers[0] in (0, 1))


def named_ids(names: Sequence[str]) -> tuple[str, ...]:
    """The column of names of series, by its name alone; empty if no name is unmistakable."""
    lower = {name.lower(): name for name in names}
    # An id may count rows.
    return tuple(lower[known] for known in IDS if known in lower and known != "id")[:1]


def _find_ids(frame: pd.DataFrame, times: tuple[str, ...]) -> tuple[str, ...]:
    lower = {name.lower(): name for name in frame.columns if name not in times}
    for known in IDS:
        if known in lower and 0 < frame[lower[known]].nunique() < max(len(frame), 2):
            return (lower[known],)
    return ()
