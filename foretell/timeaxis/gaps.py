"""Treatment of missing values, the same in training data and in requests.

A history is filled from the rows before its origin alone. This is cheap for many origins of one
series. `filled` fills the whole series once, which gives the rows up to the latest known value
before an origin. `rows_before` repeats that value in the rows after it.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Filling = Literal["error", "interpolate", "ffill"]
# With `mask`, a model that reads gaps gets missing values unchanged.
Missing = Literal["error", "interpolate", "ffill", "mask"]


def fill(values: NDArray[np.float64], gaps: NDArray[np.intp], method: Filling) -> None:
    """Fill missing values of one channel, in place.

    `interpolate` draws a line from the known value before a gap to the one after it. A gap at the
    start takes the first known value, a gap at the end the last one. `ffill` repeats the known
    value before a gap, which must exist.

    Args:
        values: `[time]`, NaN where a value is missing, with at least one known value.
        gaps: Places of the missing values to fill, ascending.
        method: Method; never `error`.
    """
    known = np.flatnonzero(~np.isnan(values))
    if method == "interpolate":
        values[gaps] = np.interp(gaps, known, values[known])
    else:
        values[gaps] = values[known[np.searchsorted(known, gaps) - 1]]


def filled(values: NDArray[np.float64], method: Filling) -> NDArray[np.float64]:
    """A whole series without gaps, each channel filled from all of its rows.

    Args:
        values: `[time, channels]`, NaN where a value is missing.
        method: As in `fill`; with `ffill`, values before the first known one stay missing.
    """
    whole, last = values.copy(), latest(~np.isnan(values))
    for column in np.flatnonzero(np.isnan(values).any(axis=0) & (last[-1] >= 0)):
        gaps = np.isnan(values[:, column])
        if method == "ffill":
            gaps &= last[:, column] >= 0
        fill(whole[:, column], np.flatnonzero(gaps), method)
    return whole


def latest(is_known: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The row of the latest known value of each channel, at each row.

    Args:
        is_known: `[time, channels]`.

    Returns:
        `[time, channels]`, -1 before the first known value.
    """
    rows = np.where(is_known, np.arange(len(is_known))[:, None], -1)
    return np.maximum.accumulate(rows, axis=0)


def rows_before(rows: Any, last: Any) -> Any:  # noqa: ANN401 - arrays of numpy or of torch
    """The rows of a filled series that make a history, without information after its origin.

    Args:
        rows: `[..., context]`, rows before the origin.
        last: `[..., channels]`, the result of `latest` at the row before the origin.

    Returns:
        `[..., context, channels]`.
    """
    rows, last = rows[..., None], last[..., None, :]
    return rows - (rows - last).clip(min=0) * (last >= 0)
