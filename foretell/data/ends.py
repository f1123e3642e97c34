"""The last rows of each series."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.data.cells import Cells
from foretell.data.columns import choose_columns
from foretell.data.covariates import Kinds
from foretell.data.errors import DataError
from foretell.data.moments import Moments
from foretell.data.numbers import is_text
from foretell.data.roles import Roles


def keep_last(
    cells: Cells,
    moments: Moments,
    roles: Roles,
    channels: Sequence[str] | None,
    kinds: Kinds,
    last: int,
) -> Moments:
    """Keep the last rows of each series; problems of other rows become notes.

    Args:
        cells: The table, which is changed.
        moments: Times of its rows.
        roles: Columns of times and names of series.
        channels: Columns that are read; all columns of numbers if not given.
        kinds: Columns of covariates.
        last: Number of times that are kept. Later rows, in which future covariates are known and
            values are not, are kept too.

    Returns:
        Times of the rows that are kept.
    """
    kept = _are_last(cells, moments, roles, channels, kinds, last)
    earlier = Cells(cells.frame[~kept], cells.decimal, cells.problems.of_the_same_file())
    labels = cells.frame.index.to_numpy(np.int64)
    for problem, wrong in moments.wrong:
        if len(before := wrong[~kept[wrong]]):
            earlier.problems.add(problem, labels[before], ",".join(roles.times))
    try:
        if len(earlier.frame):
            choose_columns(earlier, roles, channels, kinds, moments.walls[~kept])
    except DataError as error:
        earlier.problems.add(str(error))
    cells.notes += [f"before the rows that are read: {one}" for one in earlier.problems.found]
    cells.frame = cells.frame[kept]
    return moments.of_rows(kept)


def _are_last(
    cells: Cells,
    moments: Moments,
    roles: Roles,
    channels: Sequence[str] | None,
    kinds: Kinds,
    last: int,
) -> NDArray[np.bool_]:
    """Whether each row is kept; a row without a time takes its neighbour's."""
    frame, ids = cells.frame, list(roles.ids)
    offsets = np.timedelta64(0) if moments.offsets is None else moments.offsets
    times = pd.Series(moments.walls - offsets)
    series = (
        frame.groupby(ids, dropna=False, sort=False).ngroup().to_numpy()
        if ids
        else np.zeros(len(frame), np.int64)
    )
    times = times.groupby(series).ffill().groupby(series).bfill()
    if kinds.future:
        taken = {*roles.times, *ids, *kinds.names}
        named = channels or [str(name) for name in frame if not is_text(frame[name])]
        names = [name for name in named if name in frame and name not in taken]
        has_values = frame[names].notna().any(axis=1).to_numpy()
        latest = times.where(has_values).groupby(series).transform("max")
        times = times.mask(times > latest)
    ranks = times.groupby(series).rank(method="dense", ascending=False)
    return np.asarray(~(ranks > last))
