"""The channels of a table, and the series of each row."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.bundle.nearness import listed
from foretell.data.cells import Cells
from foretell.data.errors import DataError
from foretell.data.moments import are_times_near
from foretell.data.numbers import NAMELESS, Numbers, read_numbers
from foretell.data.parts import repeats_times
from foretell.data.roles import Roles
from foretell.timeaxis.timestamps import Timestamps


def choose_channels(
    cells: Cells, roles: Roles, wanted: Sequence[str] | None, walls: Timestamps
) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.bool_]]:
    """The channels and their values.

    Args:
        cells: The table.
        roles: Columns of times and names of series.
        wanted: The channels, in this order; all columns of numbers if not given.
        walls: `[rows]`, the times.

    Returns:
        Names of the channels; `[rows, channels]` values, NaN where one is missing or wrong;
        `[rows, channels]`, whether a value is missing.

    Raises:
        DataError: a wanted channel does not exist, or no column holds numbers.
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
        found = _read_column(cells, name, walls, named=wanted is not None)
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
        reasons = "; ".join(
            f"columns that {kind}: {listed(these)}" for kind, these in left_out.items()
        )
        raise DataError(f"no column of numbers; {reasons or 'there are no other columns'}")
    values = np.column_stack([numbers.values for numbers in chosen.values()])
    missing = np.column_stack([numbers.missing for numbers in chosen.values()])
    return tuple(chosen), values, missing


def _read_column(cells: Cells, name: str, walls: Timestamps, *, named: bool) -> Numbers | str:
    """The numbers of a column, or why it is not a channel."""
    column = cells.frame[name]
    if not named and repeats_times(column, walls):
        return "are parts of a time"
    if not named and are_times_near(column, walls):
        return "hold times"
    if pd.api.types.is_datetime64_any_dtype(column) or isinstance(column.dtype, pd.PeriodDtype):
        return "hold times"
    numbers = read_numbers(column, cells.decimal)
    if numbers.missing.all() and not named:
        return "have no values"
    if not numbers.mostly:
        shown = str(column.dropna().iloc[0])[:60] if column.notna().any() else ""
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
    """The number of each row's series, and the names of the series in order of appearance."""
    if not ids:
        return np.zeros(len(cells.frame), np.int64), [""]
    columns = [cells.frame[name].map(str, na_action="ignore").astype(object) for name in ids]
    missing = np.any([names.isna() | names.isin(NAMELESS) for names in columns], axis=0)
    if missing.any():
        rows = cells.frame.index[missing].to_numpy()
        cells.problems.add("no name of a series; write one, or take the row out", rows, ids[0])
    if len(columns) > 1:
        # Otherwise a name that contains the separator could equal two names.
        columns = [names.map(_escaped, na_action="ignore").astype(object) for names in columns]
    names = columns[0]
    for more in columns[1:]:
        names = names + "/" + more
    codes, found = pd.factorize(names)
    return codes.astype(np.int64), [str(name) for name in found]


def _escaped(name: str) -> str:
    return re.sub(r"([\\/])", r"\\\1", name)
