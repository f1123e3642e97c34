"""What becomes of missing values: in training data and in requests the same."""

from __future__ import annotations

from typing import Literal

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
