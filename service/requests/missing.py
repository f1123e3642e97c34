"""Missing values of a history, filled in as the request says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.service.errors import InvalidInputError
from foretell.service.requests.schemas import Missing

Filled = dict[str, int]


def fill(
    values: NDArray[np.float64],
    method: Missing,
    window: int,
    channels: Sequence[str],
    place: Callable[[int, int], str],
) -> Filled:
    """Fill the gaps of a history's window, its last rows, in place.

    `interpolate` draws a line over the steps from the known value before a gap to the one after it;
    a gap before the first known value takes that one, a gap after the last takes the last. `ffill`
    takes the known value before a gap. Rows before the window may help, and stay as they are.

    Args:
        values: `[time, channels]`, NaN where a value is missing.
        method: How; `error` is for histories without gaps.
        window: Rows that are read.
        channels: Names of the columns.
        place: Where the value of a row and column stands in the request.

    Returns:
        How many values of the window were filled, by channel, where there were any.

    Raises:
        InvalidInputError: a channel has no value in the window, or nothing comes before a gap that
            `ffill` is to fill.
    """
    missing = np.isnan(values)
    first = len(values) - window
    filled: Filled = {}
    for column in np.flatnonzero(missing[first:].any(axis=0)).tolist():
        name = channels[column]
        gaps = first + np.flatnonzero(missing[first:, column])
        known = np.flatnonzero(~missing[:, column])
        if len(gaps) == window:
            raise InvalidInputError(
                f"{name!r} has no value in the last {window} rows, the model's context",
                param=place(first, column),
            )
        if method == "interpolate":
            values[gaps, column] = np.interp(gaps, known, values[known, column])
        elif gaps[0] > known[0]:
            values[gaps, column] = values[known[np.searchsorted(known, gaps) - 1], column]
        else:
            raise InvalidInputError(
                f"no value of {name!r} comes before it to be carried on",
                param=place(int(gaps[0]), column),
            )
        filled[name] = len(gaps)
    return filled
