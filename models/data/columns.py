"""Which columns of a table are what: times, names of series, channels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.bundle.nearness import listed
from foretell.models.data.cells import Cells
from foretell.models.data.errors import DataError
from foretell.models.data.numbers import MISSING, Numbers, is_text, read_numbers
from foretell.models.data.timestamps import PARTS, looks_like_timestamp

TIMES = (
    *("date", "datetime", "timestamp", "time", "ds", "dates", "datetimes", "timestamps", "times"),
    *("period", "month", "quarter", "week", "year", "epoch"),
)
IDS = ("unique_id", "series_id", "item_id", "ts_id", "series", "symbol", "ticker", "id")
# What an index is called, if anything.
_INDEX = ("index", "id", "no", "no.", "nr", "row", "instant", "step")
# Columns of which any two may tell series apart.
_NAMES = 8


class Roles(NamedTuple):
    """Names of columns.

    Attributes:
        times: Those that tell when a row is.
        ids: Those that tell which series it is of.
    """

    times: tuple[str, ...]
    ids: tuple[str, ...]


def find_roles(
    cells: Cells,
    times: tuple[str, ...] | None,
    ids: tuple[str, ...] | None,
    channels: tuple[str, ...] | None,
) -> Roles:
    """Find the columns of times and of names; drop an index that is none of them.

    Args:
        cells: The table; loses the index.
        times: Those named; found if not given.
        ids: Likewise.
        channels: Columns that are no index.

    Raises:
        DataError: a column is not there, or nothing holds times.
    """
    names = list(cells.frame.columns)
    for name in (*(times or ()), *(ids or ())):
        if name not in names:
            raise DataError(f"no column {name!r}; there are {listed(names)}")
    if times is None:
        times = _find_times(cells.frame, ids or ())
    _drop_index(cells, {*times, *(ids or ()), *(channels or ())})
    if ids is None:
        ids = _find_ids(cells.frame, times)
    return Roles(times, ids)


def _find_times(frame: pd.DataFrame, ids: tuple[str, ...]) -> tuple[str, ...]:
    lower = {name.lower(): name for name in reversed(list(frame.columns)) if name not in ids}
    parts = tuple(lower[part] for part in PARTS if part in lower)
    plain = [lower[name] for name in TIMES if name in lower and name not in PARTS]
    names = list(frame.columns)
    dates = [name for name in plain if _holds_times(frame[name], named=True)]
    dates += sorted(
        (name for name in lower.values() if _holds_times(frame[name], named=False)), key=names.index
    )
    if dates:
        return (dates[0], *_find_clock(frame, dates[0], lower.get("hour")))
    if "year" in lower and len(parts) > 1:
        return parts
    named = [lower[name] for name in TIMES if name in lower]
    if named:
        return (named[0],)
    raise DataError(
        f"no timestamp column: none is called {', '.join(TIMES[:5])} and none holds dates; "
        f"--timestamp-column names it; there are {listed(list(frame.columns))}"
    )


def _first(cells: pd.Series) -> object:
    there = cells.dropna()
    return there.iloc[0] if len(there) else None


def _holds_times(cells: pd.Series, *, named: bool) -> bool:
    """Whether the first cell is a time, or a number in a column whose name says so."""
    if pd.api.types.is_datetime64_any_dtype(cells) or isinstance(cells.dtype, pd.PeriodDtype):
        return True
    first = _first(cells)
    if not is_text(cells):
        return named and first is not None
    return looks_like_timestamp(str(first)) or (named and str(first).isdigit())


def _find_clock(frame: pd.DataFrame, dates: str, hours: str | None) -> tuple[str, ...]:
    """The column of the times of the day, where those of the dates have none."""
    if ":" in str(_first(frame[dates])).removesuffix(" 00:00:00"):
        return ()
    names = list(frame.columns)
    for after in names[names.index(dates) + 1 :][:1]:
        if is_text(frame[after]) and re.match(r" ?\d?\d:\d\d", str(_first(frame[after]))):
            return (after,)
    return (hours,) if hours is not None and frame[dates].duplicated().any() else ()


def _drop_index(cells: Cells, taken: set[str]) -> None:
    """An index that was written next to the columns says nothing."""
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
    """Whether numbers count rows; of a column without a name, those of a part or backwards too."""
    steps = np.diff(numbers)
    if nameless and len(steps):
        return bool((steps == steps[0]).all() and abs(steps[0]) == 1)
    return len(numbers) > 0 and bool((steps == 1).all() and numbers[0] in (0, 1))


def _find_ids(frame: pd.DataFrame, times: tuple[str, ...]) -> tuple[str, ...]:
    lower = {name.lower(): name for name in frame.columns if name not in times}
    for known in IDS:
        if known in lower and 0 < frame[lower[known]].nunique() < max(len(frame), 2):
            return (lower[known],)
    return ()


def tell_apart(frame: pd.DataFrame, roles: Roles) -> str:
    """Which columns would tell rows of the same time and series apart, or what to do instead."""
    others = [name for name in frame.columns if name not in (*roles.times, *roles.ids)]
    # A name occurs more than once.
    texts = {name: is_text(frame[name]) for name in others}
    names = [
        name
        for name in sorted(others, key=lambda name: not texts[name])
        if (texts[name] or frame[name].dtype.kind == "i")
        and frame[name].nunique() * 2 <= len(frame)
    ]
    for found in chain(combinations(names[:_NAMES], 1), combinations(names[:_NAMES], 2)):
        ids = (*roles.ids, *found)
        if not frame.duplicated([*roles.times, *ids]).any():
            told = " and ".join(map(repr, ids))
            return f"several series, told apart by {told}: --id-column {','.join(ids)}"
    return (
        "no one or two columns tell their series apart; --id-column takes those that do, and rows "
        "of the same series are to be added up or averaged first"
    )


def choose_channels(
    cells: Cells, roles: Roles, wanted: Sequence[str] | None
) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.bool_]]:
    """The channels, their values and which of them are missing.

    Args:
        cells: The table.
        roles: Its columns that are no channels.
        wanted: The channels, in this order; all columns of numbers if not given.

    Returns:
        Names; `[rows, channels]` values, NaN where one is missing or wrong; where it is missing.

    Raises:
        DataError: a channel is not there, or there is none.
    """
    taken = {*roles.times, *roles.ids}
    others = [name for name in cells.frame.columns if name not in taken]
    names = others if wanted is None else list(wanted)
    for i, name in enumerate(names):
        if name not in others:
            raise DataError(f"no channel {name!r}; there are {listed(others)}")
        if name in names[:i]:
            raise DataError(f"channel {name!r} is chosen twice")
    chosen: dict[str, Numbers] = {}
    left_out: dict[str, list[str]] = {}
    for name in names:
        found = _read_column(cells, name, named=wanted is not None)
        if isinstance(found, Numbers):
            chosen[name] = found
        else:
            left_out.setdefault(found, []).append(name)
    for kind, these in left_out.items():
        if wanted is None:
            cells.notes.append(f"columns that {kind} are left out: {listed(these)}")
        else:
            cells.problems.add(f"columns that {kind} are no channels: {listed(these)}")
    if not chosen:
        told = "; ".join(
            f"columns that {kind}: {listed(these)}" for kind, these in left_out.items()
        )
        raise DataError(f"no column of numbers; {told or 'there are no others'}")
    values = np.column_stack([numbers.values for numbers in chosen.values()])
    missing = np.column_stack([numbers.missing for numbers in chosen.values()])
    return tuple(chosen), values, missing


def _read_column(cells: Cells, name: str, *, named: bool) -> Numbers | str:
    """A channel, or why a column is none."""
    column = cells.frame[name]
    if not named and name.lower() in PARTS:
        return "are parts of a time"
    if pd.api.types.is_datetime64_any_dtype(column) or isinstance(column.dtype, pd.PeriodDtype):
        return "hold times"
    numbers = read_numbers(column, cells.decimal)
    if numbers.missing.all() and not named:
        return "have no values"
    if not numbers.mostly:
        shown = str(_first(column))[:60]
        may_be_number = named or any(each.isdigit() for each in shown)
        return f"hold texts such as {shown!r}" if may_be_number else "hold texts"
    wrong = np.flatnonzero(numbers.wrong)
    if len(wrong):
        cells.problems.add(
            f"{str(column.iloc[wrong[0]])[:60]!r} is no finite number; correct it, or leave the "
            "cell empty with --missing interpolate",
            column.index[wrong].to_numpy(),
            name,
        )
    return numbers


def read_ids(cells: Cells, ids: tuple[str, ...]) -> tuple[NDArray[np.int64], list[str]]:
    """Which series each row is of, and the names of the series in order of appearance."""
    if not ids:
        return np.zeros(len(cells.frame), np.int64), [""]
    columns = cells.frame[list(ids)].astype(object)
    names = columns[ids[0]].map(str, na_action="ignore")
    missing = columns.isna().any(axis=1) | names.isin(MISSING - {"NA"})
    for name in ids[1:]:
        names = names + "/" + columns[name].map(str)
    if missing.any():
        rows = cells.frame.index[missing].to_numpy()
        cells.problems.add("no name of a series; write one, or take the row out", rows, ids[0])
    codes, found = pd.factorize(names)
    return codes.astype(np.int64), [str(name) for name in found]
