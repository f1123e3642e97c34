"""Kinds of covariates that the columns of a table look like."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from foretell.data.covariates import Kinds
from foretell.data.files import read_file
from foretell.data.moments import read_timestamps
from foretell.data.numbers import Mark, is_text, read_numbers
from foretell.data.parts import assemble
from foretell.data.reading import Reading
from foretell.data.texts import Texts

# Most values of a column of facts, such as days of the month, and of categories.
_FACTS, _CATEGORIES = 31, 50
# Least number of series or weeks that show a rule.
_SEVERAL = 3


def propose(path: Path, reading: Reading, target: Sequence[str] = ()) -> Kinds:
    """Kinds of the columns that `reading` does not name.

    Columns with one value for each series are static. Columns with values after the last ones of a
    channel are future covariates, as are facts of the calendar: few values that depend on the date,
    or on hour and day of the week. All others but the target are past covariates, if it is given.

    Args:
        path: The file.
        reading: Options that it was read with, with the columns of times and names.
        target: Channels that are forecast.
    """
    times, ids = list(reading.time_column or ()), list(reading.id_column or ())
    texts = Texts(frozenset(name.lower() for name in ids))
    cells = read_file(path, reading.decimal, texts)
    frame = cells.frame
    part = frame[times]
    moments = (
        read_timestamps(part[times[0]], reading.date_format)
        if len(times) == 1
        else assemble(part, reading.date_format, None)
    )
    walls = pd.Series(moments.walls, frame.index)
    series = frame.groupby(ids, sort=False).ngroup() if ids else pd.Series(0, frame.index)
    taken = {*times, *ids, *reading.kinds.names, *target}
    columns = {
        name: own
        for name in frame.columns
        if name not in taken and (own := _values(frame[name], cells.decimal)) is not None
    }
    numbers = [name for name, own in columns.items() if not is_text(own)]
    ends = {name: walls[frame[name].notna()].max() for name in (*numbers, *target)}
    end = min(ends.values(), default=pd.Timestamp.max)
    static = [name for name, own in columns.items() if _is_static(own, series)]
    future = [
        name
        for name, own in columns.items()
        if name not in static and (walls[own.notna()].max() > end or _is_fact(own, walls, series))
    ]
    past = [name for name in columns if target and name not in (*static, *future)]
    return Kinds(tuple(future), tuple(past), tuple(static))


def _values(column: pd.Series, decimal: Mark) -> pd.Series | None:
    """Numbers or categories of a column; None if it holds times, free texts or one value."""
    if pd.api.types.is_datetime64_any_dtype(column) or column.nunique() < 2:
        return None
    numbers = read_numbers(column, decimal)
    if numbers.mostly and np.isfinite(numbers.values).any():
        return pd.Series(numbers.values, column.index)
    return column if column.nunique() <= _CATEGORIES else None


def _is_static(column: pd.Series, series: pd.Series) -> bool:
    return series.nunique() >= _SEVERAL and bool((column.groupby(series).nunique() <= 1).all())


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
