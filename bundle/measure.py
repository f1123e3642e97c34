"""The one measure by which forecasts are compared: at export, on `verify` and at load."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.manifest import Precision, Scaler, Verification

Floats = NDArray[np.floating]

# Standard deviations of the training rows, by which forecasts of a graph and its model may differ
# without a word: a relative error within the tolerance is as much where the level is large.
LARGEST_DEVIATION = 1e-3


def deviations(
    scaler: Scaler, history: Floats, targets: Sequence[int] | None
) -> NDArray[np.float64]:
    """What errors of forecasts count relative to, where these are smaller: `[targets]`.

    The standard deviations of the training rows, or where nothing tells them those of the windows
    that are compared. A channel that is constant in both has none; its level stands for it.

    Args:
        scaler: Of all channels.
        history: `[batch, context, channels]`, the windows; NaN where a value is missing.
        targets: Places of the channels that are forecast; all of them if None.
    """
    at = slice(None) if targets is None else [*targets]
    own = history[..., at].astype(np.float64)
    lowest, highest = np.nanmin(own, axis=(0, 1)), np.nanmax(own, axis=(0, 1))
    is_constant = lowest == highest
    if scaler.training.is_identity:
        std = np.nanstd(own, axis=(0, 1))
    else:
        known = scaler.of(targets)
        std, is_constant = np.array(known.training.std), is_constant & known.constant
    # A channel without values is not compared; 1 avoids a division by zero.
    std = np.where(std > 0, std, 1.0)
    sizes: NDArray[np.float64] = np.where(is_constant, np.maximum(np.abs(lowest), 1.0), std)
    return sizes


def relative_error(actual: Floats, expected: Floats, scale: Floats) -> NDArray[np.float64]:
    """Largest error of each window, relative to the size of its channel.

    An error counts relative to the largest expected value of its window and channel, or to the
    channel's standard deviation in training where that is larger: a channel that happens to be
    near zero is not held to a precision below its own noise.

    Args:
        actual: `[batch, horizon, channels]` in the user's units.
        expected: The same shape.
        scale: `[channels]`, their `deviations`.

    Returns:
        `[batch]`; infinite where a value is not finite.
    """
    with np.errstate(invalid="ignore"):
        difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64)).max(axis=1)
        size = np.maximum(np.abs(expected.astype(np.float64)).max(axis=1), scale)
        error = (difference / size).max(axis=1)
    return np.where(np.isfinite(error), error, np.inf)


def deviation_warning(
    verification: Verification, targets: Sequence[str], precision: Precision
) -> str | None:
    """Names the targets of which graph and model differ by much of what they deviate, if any do."""
    found = [
        f"{name} by {error:.1g}"
        for name, error in zip(targets, verification.deviations, strict=False)
        if error >= LARGEST_DEVIATION
    ]
    if not found:
        return None
    reason = (
        "The values are large next to what they deviate, and float32 keeps seven digits: subtract "
        "a constant from the data, train on the rest and export that"
    )
    if precision != "float32":
        reason = f"Few digits are left in {precision}: export it in float32"
    return (
        "forecasts of the graph and of the model differ, in standard deviations of the channel in "
        f"training: {', '.join(found)}. {reason}"
    )
