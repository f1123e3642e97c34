"""The channels of a table, and the series of each row."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.bundle.covariates import Covariates, channels_of
from foretell.bundle.nearness import listed
from foretell.data.cells import Cells
from foretell.data.covariates import Column, Kinds, read_column, read_past
from foretell.data.errors import DataError
from foretell.data.missing import NAMELESS
from foretell.data.numbers import Numbers, read_numbers
from foretell.data.parts import repeats_times
from foretell.data.roles import Roles
from foretell.data.timestamps import are_times_near
from foretell.timeaxis.timestamps import Timestamps


class Columns(NamedTuple):
    """Values of the channels and, after them, codes of the future covariates.

    Attributes:
        channels: Names of the channels.
        covariates: Future and past covariates.
        values: `[rows, columns]`, NaN where a value is missing or wrong.
        missing: `[rows, columns]`, whether a value is missing.
        sources: `[columns]`, names of the table's columns, for messages.
        held: `[columns]`, whether a gap repeats a value and is not interpolated.
        targets: Places of the channels that are no past covariates.
    """

    channels: tuple[str, ...]
    covariates: Covariates
    values: NDArray[np.float64]
    missing: NDArray[np.bool_]
    sources: tuple[str, ...]
    held: NDArray[np.bool_]
    targets: tuple[int, ...]


def choose_columns(
    cells: Cells, roles: Roles, wanted: Sequence[str] | None, kinds: Kinds, walls: Timestamps
) -> Columns:
    """The channels and covariates, and their values.

    Args:
        cells: The table.
        roles: Columns of times and names of series.
        wanted: The channels, in this order; all columns of numbers if not given. Past covariates
            that it does not name follow.
        kinds: Columns of covariates.
        walls: `[rows]`, the times.

    Raises:
        DataError: a wanted column does not exist, or no column holds numbers.
    """
    past = [read_past(cells, name, wanted, kinds.known.get(name)) for name in kinds.past]
    future = [read_column(cells, name, kinds.known.get(name)) for name in kinds.future]
    named = None if wanted is None else [name for name in wanted if not kinds.is_channel(name)]
    taken = {*roles.times, *roles.ids, *kinds.names}
    found = {
        name: _Read(numbers.values, numbers.missing, name)
        for name, numbers in _choose_channels(cells, taken, named, walls).items()
    }
    targets = {*found}
    for column in past:
        codes_by_channel = channels_of(column.covariate, column.codes).T
        for name, codes in zip(column.covariate.channels, codes_by_channel, strict=True):
            if name in found:
                raise DataError(f"channel {name!r} is a column and a category; rename the column")
            found[name] = _Read(codes, column.missing, *_described(column))
    for name in wanted or ():
        if name not in found and name in kinds.past:
            raise DataError(f"past covariate {name!r}: expected numbers, and it holds categories")
        if name not in found:
            raise DataError(f"no channel {name!r}; there are {listed(list(found))}")
    channels = tuple(dict.fromkeys((*(wanted or ()), *found)))
    columns = [found[name] for name in channels]
    columns += [_Read(column.codes, column.missing, *_described(column)) for column in future]
    return Columns(
        channels,
        Covariates(
            future=tuple(column.covariate for column in future),
            past=tuple(column.covariate for column in past),
        ),
        np.column_stack([column.values for column in columns]),
        np.column_stack([column.missing for column in columns]),
        tuple(column.source for column in columns),
        np.array([column.is_held for column in columns]),
        tuple(place for place, name in enumerate(channels) if name in targets),
    )


class _Read(NamedTuple):
    """One of `Columns`."""

    values: NDArray[np.float64]
    missing: NDArray[np.bool_]
    source: str
    is_held: bool = False


def _described(column: Column) -> tuple[str, bool]:
    return column.covariate.name, column.covariate.type != "number"


def _choose_channels(
    cells: Cells, taken: Collection[str], wanted: Sequence[str] | None, walls: Timestamps
) -> dict[str, Numbers]:
    """The wanted columns, or all columns of numbers that are not taken."""
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
    return chosen


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
    cells.report_wrong(name, numbers)
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
