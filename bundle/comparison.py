"""The one measure by which forecasts are compared: at export, on `verify` and at load."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def relative_error(actual: Floats, expected: Floats, scale: Floats) -> NDArray[np.float64]:
    """Largest error of each window, relative to the size of its channel.

    An error counts relative to the largest expected value of its window and channel, or to the
    channel's standard deviation in training where that is larger: a channel that happens to be
    near zero is not held to a precision below its own noise.

    Args:
        actual: `[batch, horizon, channels]` in the user's units.
        expected: The same shape.
        scale: `[channels]`, standard deviation of each channel in training.

    Returns:
        `[batch]`; infinite where a value is not finite.
    """
    with np.errstate(invalid="ignore"):
        difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64)).max(axis=1)
        size = np.maximum(np.abs(expected.astype(np.float64)).max(axis=1), scale)
        error = (difference / size).max(axis=1)
    return np.where(np.isfinite(error), error, np.inf)
