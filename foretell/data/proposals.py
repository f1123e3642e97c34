"""Kinds of covariates that the columns of a table look like."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from foretell.data.covariates import Kinds
from foretell.data.files import read_file
from foretell.data.numbers import Mark, read_numbers
from foretell.data.parts import assemble
from foretell.data.reading import Reading, roles_of
from foretell.data.roles import IDS
from foretell.data.texts import Texts
from foretell.data.timestamps import read_timestamps

# Most values of a column of facts, such as days of the month, and of categories.
_FACTS, _CATEGORIES = 31, 50
# Least number of series or weeks that show a rule.
_SEVERAL = 3


class Proposal(NamedTuple):
    """Columns that look like covariates.

    Attributes:
        kinds: Their names, by kind.
        ahead: Future covariates with values after the last one of the target. If they were read as
            channels, the target would have gaps at the end.
    """

    kinds: Kinds = Kinds()
    ahead: tuple[str, ...] = ()


def propose(path: Path, reading: Reading, target: Sequence[str] = ()) -> Proposal:
    """Kinds of the columns that `reading` does not name.

    Columns with one value for each series are static. Facts of the calendar are future covariates:
    few values that depend on the date, or on hour and day of the week. If the target is given,
    columns with values after its last one are too, and all others are past covariates.

    Args:
        path: The file.
        reading: Options that it is read with.
        target: Channels that are forecast.

    Raises:
        DataError: the file is not a table, or has no times.
    """
    ids = frozenset(name.lower() for name in (*IDS, *(reading.id_column or ())))
    cells = read_file(path, reading.decimal, Texts(ids, every=True))
    roles = roles_of(cells, reading)
    frame = cells.frame
    part = frame[list(roles.times)]
    moments = (
        read_timestamps(part[roles.times[0]], reading.date_format)
        if len(roles.times) == 1
        else assemble(part, reading.date_format, None)
    )
    walls = pd.Series(moments.walls, frame.index)
    names = list(roles.ids)
    series = frame.groupby(names, sort=False).ngroup() if names else pd.Series(0, frame.index)
    taken = {*roles.times, *names, *reading.kinds.names, *target}
    columns = {
        name: own
        for name in frame.columns
        if name not in taken and (own := _values(frame[name], cells.decimal)) is not None
    }
    known = [~read_numbers(frame[name], cells.decimal).missing for name in target if name in frame]
    end = walls[np.any(known, axis=0)].max() if known else pd.NaT
    likely = [name for name, own in columns.items() if _may_tell(own)]
    static = [name for name in likely if _is_static(columns[name], series)]
    # Nothing is after a target without values.
    ahead = [
        name
        for name, own in columns.items()
        if name not in static and walls[own.notna()].max() > end
    ]
    others = [name for name in likely if name not in (*static, *ahead)]
    facts = [name for name in others if _is_fact(columns[name], walls, series)]
    future = [name for name in columns if name in (*ahead, *facts)]
    past = [name for name in others if target and name not in facts]
    return Proposal(Kinds(tuple(future), tuple(past), tuple(static)), tuple(ahead))


def _values(column: pd.Series, decimal: Mark) -> pd.Series | None:
    """Numbers or categories of a column; None if it holds times or free texts."""
    if pd.api.types.is_datetime64_any_dtype(column):
        return None
    numbers = read_numbers(column, decimal)
    if numbers.mostly and np.isfinite(numbers.values).any():
        return pd.Series(numbers.values, column.index)
    return column if 1 < column.nunique() <= _CATEGORIES else None


def _may_tell(column: pd.Series) -> bool:
    """Whether a column has several values, and most of its rows have one."""
    return column.nunique() > 1 and 2 * int(column.notna().sum()) > len(column)


def _is_static(column: pd.Series, series: pd.Series) -> bool:
    return series.nunique() >= _SEVERAL and bool((column.groupby(series).nunique() == 1).all())


def _is_fact(column: pd.Series, walls: pd.Series, series: pd.Series) -> bool:
    """Whether few values depend on the date, or on the hour and the day of the week."""
    if column.nunique() > _FACTS:
        return False
    days = walls.dt.normalize()
    of_days = column.groupby([series, days])
    is_repeated = days.nunique() >= 2 * column.nunique() and len(column) >= 2 * of_days.ngroups
    if is_repeated and (of_days.nunique() <= 1).all():
        return True
    of_weeks = column.groupby([walls.dt.day_of_week, walls - days])
    return len(column) >= _SEVERAL * of_weeks.ngroups and bool((of_weeks.nunique() <= 1).all())
