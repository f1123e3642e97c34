"""Rows of one time: of several series, of several times of a day, or of another time."""

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
from foretell.data.clock import counts_a_day, is_called_so, is_clock, is_written_so
from foretell.data.errors import DataError
from foretell.data.moments import looks_like_timestamp, read_timestamps
from foretell.data.numbers import is_text, read_numbers
from foretell.data.parts import are_dates, beside, find_parts, is_part

# Rows of which one in so many has the time of another are those of several series.
_REPEATED = 4
# Columns of which any two may tell series apart.
_NAMES = 8
# Cells that tell whether a column holds times.
_TELLING = 1000
# Whole numbers that name series are there at most of the times between their first and last.
_THERE = 0.5


def flag(option: str, names: Sequence[str]) -> str:
    """An option that names columns, as a shell takes it."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return f"--{option} {shlex.quote(line.getvalue())}"


def holds_times(cells: pd.Series, *, named: bool) -> bool:
    """Whether the first cell is a time, or a number in a column whose name says so."""
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
    called = str(cells.name).lower().replace("_", " ")
    says = any(word in called for word in ("time", "date", "epoch", "unix", "stamp"))
    return (
        (says or called in ("ts", "at"))
        and bool(there.min() >= 1e6)
        and not read_timestamps(there.iloc[:_TELLING]).wrong
    )


def has_clock(cells: pd.Series) -> bool:
    """Whether times are more than dates."""
    try:
        walls = read_timestamps(cells.dropna().iloc[:_TELLING]).walls
    except DataError:
        return ":" in str(cells.dropna().iloc[0])
    return bool((walls != walls.astype("M8[D]")).any())


def repeats(frame: pd.DataFrame, names: Sequence[str]) -> bool:
    """Whether many rows have in some columns what others have."""
    return are_many(frame.duplicated(list(names)).to_numpy(), frame)


def are_many(repeated: NDArray[np.bool_], frame: pd.DataFrame) -> bool:
    """Whether rows that repeat others are too many for mistakes; rows that are equal are one."""
    if repeated.sum() * _REPEATED > len(frame):
        repeated = repeated & ~frame.duplicated().to_numpy()
    return bool(repeated.sum() * _REPEATED > len(frame))


def clocks_of(frame: pd.DataFrame, taken: Sequence[str]) -> list[str]:
    """Columns that hold times of the day, those that may be something else last."""
    names = [name for name in frame.columns if name not in taken]
    found = [name for name in names if is_clock(frame[name])]
    sure = [name for name in found if is_sure(frame, name)]
    numbers = _numbers_of(frame, names)
    # The only numbers of a table are its channel.
    return sure + [
        name
        for name in found
        if name not in sure and counts_a_day(frame[name]) and numbers != [name]
    ]


def is_sure(frame: pd.DataFrame, name: str) -> bool:
    """Whether a column of times of the day can hardly be something else."""
    return is_written_so(frame[name]) or is_called_so(name)


def names_apart(
    frame: pd.DataFrame, times: Sequence[str], ids: Sequence[str], *, of_texts: bool = False
) -> tuple[str, ...] | None:
    """The one or two columns that tell rows of the same time apart, with those that are known."""
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
        and not (is_called_so(name) and _are_numbered(frame[name]))
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
    """Whether all texts have digits, as times of the day have in forms that are not known."""
    return is_text(cells) and bool(cells.dropna().map(str).str.contains(r"\d").all())


def _are_there(frame: pd.DataFrame, times: Sequence[str], ids: Sequence[str]) -> bool:
    """Whether series have rows at most times between their first and last, as values hardly do."""
    places = frame.groupby(list(times), dropna=False).ngroup()
    ranges = places.groupby([frame[name] for name in ids], dropna=False).agg(["min", "max"])
    return len(frame) >= _THERE * float((ranges["max"] - ranges["min"] + 1).sum())


def tell_apart(frame: pd.DataFrame, times: tuple[str, ...], ids: tuple[str, ...]) -> str:
    """What tells rows of the same time and series apart, or what to do instead."""
    found = names_apart(frame, times, ids, of_texts=True)
    told = None
    for find in (_other_parts, _other_times, _clock):
        told = told or (None if found else find(frame, times, ids))
    if told is not None:
        return told
    found = found or names_apart(frame, times, ids)
    if found is not None:
        told = " and ".join(map(repr, found))
        return f"several series, told apart by {told}: {flag('id-column', found)}"
    return (
        "no one or two columns tell their series apart; --id-column takes those that do, and rows "
        "of the same series are to be added up or averaged first, such as by "
        f"frame.groupby({[*ids, *times]!r}).mean(numeric_only=True) of pandas"
    )


def _other_times(frame: pd.DataFrame, times: tuple[str, ...], ids: tuple[str, ...]) -> str | None:
    for name in frame.columns:
        is_other = name not in (*times, *ids) and holds_times(frame[name], named=False)
        if is_other and not repeats(frame, [*ids, name]):
            return f"the times of column {name!r} do not: {flag('time-column', [name])}"
    return None


def _other_parts(frame: pd.DataFrame, times: tuple[str, ...], ids: tuple[str, ...]) -> str | None:
    """The columns that are one time together with those that are read."""
    others = [name for name in frame.columns if name not in (*times, *ids)]
    found = tuple(find_parts(frame, [*times, *others]).values())
    if set(times) < set(found):
        told = _told(frame, found, ids, f"parts of the times are in columns {listed(found)}")
        return told or _clock(frame, found, ids)
    more = beside(others, times[-1]) if len(times) == 2 else ()
    return _told(frame, (*times, *more), ids, "minutes are beside the hours") if more else None


def _clock(frame: pd.DataFrame, times: tuple[str, ...], ids: tuple[str, ...]) -> str | None:
    parts = find_parts(frame, times)
    if not are_dates(parts) if len(times) > 1 else has_clock(frame[times[0]]):
        return None
    others = [name for name in frame.columns if name not in (*times, *ids)]
    for name in clocks_of(frame, (*times, *ids)):
        for more in ((), beside(others, name)):
            place = f"times of the day are in column {name!r}"
            told = _told(frame, (*times, name, *more), ids, place)
            if told is not None:
                if not is_sure(frame, name):
                    told += f" (where {name!r} names series, it is an id column instead)"
                return told
    for name in others:
        if is_called_so(name) and _are_numbered(frame[name]) and not is_clock(frame[name]):
            return f"column {name!r} may hold times of the day: write them as 13:00"
    return None


def _told(
    frame: pd.DataFrame, times: tuple[str, ...], ids: tuple[str, ...], place: str
) -> str | None:
    """How to read times of some columns, if those and names tell all rows apart."""
    names = names_apart(frame, times, ids) if repeats(frame, [*times, *ids]) else ids
    if names is None:
        return None
    told = f"{place}: {flag('time-column', times)}"
    return told if names == ids else f"{told} {flag('id-column', names)}"


def count_repeated(frame: pd.DataFrame, names: Sequence[str]) -> int:
    """How many rows have in some columns what an earlier one has."""
    return int(np.count_nonzero(frame.duplicated(list(names))))
