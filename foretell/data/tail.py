"""The end of each series: all that a forecast reads of a file."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.data.cells import Cells
from foretell.data.columns import choose_channels
from foretell.data.errors import DataError
from foretell.data.moments import Moments
from foretell.data.roles import Roles


def cut(
    cells: Cells, moments: Moments, roles: Roles, channels: tuple[str, ...] | None, last: int
) -> Moments:
    """Leave out all rows but those of the last times of their series; a note tells what was wrong.

    Args:
        cells: The table; loses the rows.
        moments: Their times.
        roles: Of its columns.
        channels: Columns that are read; all of numbers if not given.
        last: How many times of each series stay.

    Returns:
        The times of the rows that are left.
    """
    kept = _at_the_end(moments, cells.frame, roles.ids, last)
    earlier = Cells(cells.frame[~kept], cells.decimal, cells.problems.of_the_same_file())
    labels = cells.frame.index.to_numpy(np.int64)
    for problem, wrong in moments.wrong:
        if len(before := wrong[~kept[wrong]]):
            earlier.problems.add(problem, labels[before], ",".join(roles.times))
    try:
        if len(earlier.frame):
            choose_channels(earlier, roles, channels, moments.walls[~kept])
    except DataError as error:
        earlier.problems.add(str(error))
    cells.notes += [f"before the rows that are read: {one}" for one in earlier.problems.found]
    cells.frame = cells.frame[kept]
    return moments.of_rows(kept)


def _at_the_end(
    moments: Moments, frame: pd.DataFrame, ids: tuple[str, ...], last: int
) -> NDArray[np.bool_]:
    """Which rows stay; one without a time is as late as its neighbour."""
    offsets = np.timedelta64(0) if moments.offsets is None else moments.offsets
    times = pd.Series(moments.walls - offsets)
    series = (
        frame.groupby(list(ids), dropna=False, sort=False).ngroup().to_numpy()
        if ids
        else np.zeros(len(frame), np.int64)
    )
    times = times.groupby(series).ffill().groupby(series).bfill()
    ranks = times.groupby(series).rank(method="dense", ascending=False)
    return np.asarray(~(ranks > last))
