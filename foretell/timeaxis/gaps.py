"""What becomes of missing values: in training data and in requests the same.

A history is filled from the rows before its origin alone, as it would be if nothing else were
known. For many origins of one series that is cheap: rows up to the latest known value before an
origin are those of the whole series filled at once (`filled`), and rows after it repeat that value
(`rows_before`).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Filling = Literal["error", "interpolate", "ffill"]
# What a model that reads gaps can be asked for, too: it is given them as they are.
Missing = Literal["error", "interpolate", "ffill", "mask"]


def fill(values: NDArray[np.float64], gaps: NDArray[np.intp], method: Filling) -> None:
    """Fill missing values of one channel, in place.

    `interpolate` draws a line over the steps from the known value before a gap to the one after it;
    a gap before the first known value takes that one, a gap after the last takes the last. `ffill`
    takes the known value before a gap; there has to be one.

    Args:
        values: `[time]`, NaN where a value is missing; at least one is not.
        gaps: Which of the missing ones to fill, in ascending order.
        method: How; never `error`.
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
        method: As in `fill`; with `ffill`, what comes before the first known value stays missing.
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
        `[time, channels]`, -1 where there is none yet.
    """
    rows = np.where(is_known, np.arange(len(is_known))[:, None], -1)
    return np.maximum.accumulate(rows, axis=0)


def rows_before(rows: Any, last: Any) -> Any:  # noqa: ANN401 - arrays of numpy or of torch
    """Which rows of a filled series a history reads, so that it knows nothing after its origin.

    Args:
        rows: `[..., context]`, rows before the origin.
        last: `[..., channels]`, by `latest`, of the row before the origin.

    Returns:
        `[..., context, channels]`.
    """
    rows, last = rows[..., None], last[..., None, :]
    return rows - (rows - last).clip(min=0) * (last >= 0)
