"""Rows with equal times: several series, a missing time of the day, or another time column."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Sequence
from itertools import chain, combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.bundle.nearness import listed
from foretell.data.clock import counts_a_day, has_clock_form, has_clock_name, is_clock
from foretell.data.errors import DataError
from foretell.data.numbers import is_text, read_numbers
from foretell.data.parts import are_dates, beside, find_parts, is_part
from foretell.data.timestamps import looks_like_timestamp, read_timestamps

# If more than one row in four repeats the time of another, the table has several series.
_REPEATED = 4
# Most columns that are tried as names of series.
_NAMES = 8
# Number of cells that show whether a column holds times.
_TELLING = 1000
# Whole numbers that name series occur at this share of the times from their first to their last.
_THERE = 0.5


def join_names(names: Sequence[str]) -> str:
    """Names separated by commas; double quotes protect a comma in a name."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return line.getvalue()


def flag(option: str, names: Sequence[str]) -> str:
    """An option with column names, quoted for a shell."""
    return f"--{option} {shlex.quote(join_names(names))}"


def holds_times(cells: pd.Series, *, named: bool) -> bool:
    """Whether a column holds times.

    Args:
        cells: The column.
        named: Whether its name is one of a time column; then digits count as times.
    """
    if pd.api.types.is_datetime64_any_dtype(cells) or isinstance(cells.dtype, pd.PeriodDtype):
        return True
    there = cells.dropna()
    if not len(there):
        return False
    if is_text(cells):
        first = str(there.iloc[0])
        return looks_like_timestamp(first) or (named and first.isdigit())
    if named:
        return not read_timestamps(there.iloc[:1]).wrong
    # Epochs, and dates of digits.
    name = str(cells.name).lower().replace("_", " ")
    suggests = any(word in name for word in ("time", "date", "epoch", "unix", "stamp"))
    return (
        (suggests or name in ("ts", "at"))
        and bool(there.min() >= 1e6)
        and not read_timestamps(there.iloc[:_TELLING]).wrong
    )


def has_clock(cells: pd.Series) -> bool:
    """Whether a column of times has times of the day."""
    try:
        walls = read_timestamps(cells.dropna().iloc[:_TELLING]).walls
    except DataError:
        return ":" in str(cells.dropna().iloc[0])
    return bool((walls != walls.astype("M8[D]")).any())


def repeats(frame: pd.DataFrame, names: Sequence[str]) -> bool:
    """Whether many rows repeat others in these columns."""
    return are_many(frame.duplicated(list(names)).to_numpy(), frame)


def are_many(repeated: NDArray[np.bool_], frame: pd.DataFrame) -> bool:
    """Whether too many rows repeat others for a mistake; fully equal rows count as one."""
    if repeated.sum() * _REPEATED > len(frame):
        repeated = repeated & ~frame.duplicated().to_numpy()
    return bool(repeated.sum() * _REPEATED > len(frame))


def clocks_of(frame: pd.DataFrame, taken: Sequence[str]) -> list[str]:
    """Columns that hold times of the day, the doubtful ones last."""
    names = [name for name in frame.columns if name not in taken]
    found = [name for name in names if is_clock(frame[name])]
    sure = [name for name in found if is_sure(frame, name)]
    numbers = _numbers_of(frame, names)
    # The only column of numbers is the channel.
    return sure + [
        name
        for name in found
        if name not in sure and counts_a_day(frame[name]) and numbers != [name]
    ]


def is_sure(frame: pd.DataFrame, name: str) -> bool:
    """Whether the form or the name of a column shows that it holds times of the day."""
    return has_clock_form(frame[name]) or has_clock_name(name)


def names_apart(
    frame: pd.DataFrame, times: Sequence[str], ids: Sequence[str], *, of_texts: bool = False
) -> tuple[str, ...] | None:
    """`ids` and one or two more columns, which distinguish rows of the same time; None without."""
    others = [name for name in frame.columns if name not in (*times, *ids)]
    numbers = _numbers_of(frame, others)
    names = [
        name
        for name in sorted(others, key=lambda name: name in numbers)
        # A name occurs more than once.
        if frame[name].nunique() * 2 <= len(frame)
        and (name not in numbers or (not of_texts and frame[name].dtype.kind in "iu"))
        and not holds_times(frame[name], named=False)
        and not (is_sure(frame, name) and is_clock(frame[name]))
        and not is_part(frame[name])
        and not (has_clock_name(name) and _are_numbered(frame[name]))
    ]
    for found in chain(combinations(names[:_NAMES], 1), combinations(names[:_NAMES], 2)):
        apart = (*ids, *found)
        if frame.duplicated([*times, *apart]).any() or not set(numbers) - {*found}:
            continue
        if any(name in numbers for name in found) and not _are_there(frame, times, apart):
            continue
        return apart
    return None


def _numbers_of(frame: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Columns of numbers, which may be channels."""
    return [
        name
        for name in names
        if not is_text(frame[name]) or read_numbers(frame[name].iloc[:_TELLING], ".").mostly
    ]


def _are_numbered(cells: pd.Series) -> bool:
    """Whether all texts have digits, like times of the day in unknown forms."""
    return is_text(cells) and bool(cells.dropna().map(str).str.contains(r"\d").all())


def _are_there(frame: pd.DataFrame, times: Sequence[str], ids: Sequence[str]) -> bool:
    """Whether series have rows at most times from their first to their last, unlike values."""
    places = frame.groupby(list(times), dropna=False).ngroup()
    ranges = places.groupby([frame[name] for name in ids], dropna=False).agg(["min", "max"])
    return len(frame) >= _THERE * float((ranges["max"] - ranges["min"] + 1).sum())


def remedy_for_repeats(frame: pd.DataFrame, times: tuple[str, ...], ids: tuple[str, ...]) -> str:
    """A remedy for rows of the same time and series: columns that distinguish them, or others."""
    found = names_apart(frame, times, ids, of_texts=True)
    remedy = None
    for find in (_other_parts, _other_times, _clock):
        remedy = remedy or (None if found else find(frame, times, ids))
    if remedy is not None:
        return remedy
    found = found or names_apart(frame, times, ids)
    if found is not None:
        names = " and ".join(map(repr, found))
        return f"several series, named by {names}: {flag('id-column', found)}"
    return (
        "no one or two columns name their series; --id-column takes those that do; rows "
        "of the same series must be added up or averaged first, such as by "
        f"frame.groupby({[*ids, *times]!r}).mean(numeric_only=True) of pandas"
    )


def _other_times(frame: pd.DataFrame, times: tuple[str, ...], ids: tuple[str, ...]) -> str | None:
    for name in frame.columns:
        is_other = name not in (*times, *ids) and holds_times(frame[name], named=False)
        if is_other and not repeats(frame, [*ids, name]):
            return f"the times of column {name!r} do not: {flag('time-column', [name])}"
    return None


def _other_parts(frame: pd.DataFrame, times: tuple[str, ...], ids: tuple[str, ...]) -> str | None:
    """Further columns that form one time together with `times`."""
    others = [name for name in frame.columns if name not in (*times, *ids)]
    found = tuple(find_parts(frame, [*times, *others]).values())
    if set(times) < set(found):
        remedy = _options(frame, found, ids, f"parts of the times are in columns {listed(found)}")
        return remedy or _clock(frame, found, ids)
    more = beside(others, times[-1]) if len(times) == 2 else ()
    place = "the minutes are in a column of their own"
    return _options(frame, (*times, *more), ids, place) if more else None


def _clock(frame: pd.DataFrame, times: tuple[str, ...], ids: tuple[str, ...]) -> str | None:
    parts = find_parts(frame, times)
    if not are_dates(parts) if len(times) > 1 else has_clock(frame[times[0]]):
        return None
    others = [name for name in frame.columns if name not in (*times, *ids)]
    for name in clocks_of(frame, (*times, *ids)):
        for more in ((), beside(others, name)):
            place = f"times of the day are in column {name!r}"
            remedy = _options(frame, (*times, name, *more), ids, place)
            if remedy is not None:
                if not is_sure(frame, name):
                    remedy += f" (if {name!r} names series, it is an id column instead)"
                return remedy
    for name in others:
        if has_clock_name(name) and _are_numbered(frame[name]) and not is_clock(frame[name]):
            return f"column {name!r} may hold times of the day: write them as 13:00"
    return None


def _options(
    frame: pd.DataFrame, times: tuple[str, ...], ids: tuple[str, ...], place: str
) -> str | None:
    """The options that read `times`, if these and names of series distinguish all rows."""
    names = names_apart(frame, times, ids) if repeats(frame, [*times, *ids]) else ids
    if names is None:
        return None
    remedy = f"{place}: {flag('time-column', times)}"
    return remedy if names == ids else f"{remedy} {flag('id-column', names)}"


def count_repeated(frame: pd.DataFrame, names: Sequence[str]) -> int:
    """The number of rows that repeat an earlier one in these columns."""
    return int(np.count_nonzero(frame.duplicated(list(names))))
