"""The measure that compares forecasts at export, in `verify` and when a server loads a bundle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.results import Precision, Verification
from foretell.bundle.scaler import Scaler

Floats = NDArray[np.floating]

# Difference between graph and model that needs no warning, in standard deviations of the training
# rows. Where the level of a channel is large, a small relative error can exceed it.
LARGEST_DEVIATION = 1e-3


def deviations(
    scaler: Scaler, history: Floats, targets: Sequence[int] | None
) -> NDArray[np.float64]:
    """The least size `[targets]` that errors of forecasts are relative to.

    These are standard deviations of the training rows, or of the compared windows where the scaler
    has none. A channel that is constant in both counts with its level.

    Args:
        scaler: Scaler of all channels.
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

    The size is the largest expected value of the window and channel, or the channel's standard
    deviation in training if that is larger. So a channel near zero is not held to a precision below
    its own noise.

    Args:
        actual: `[batch, horizon, channels]` in the user's units.
        expected: `[batch, horizon, channels]`, the reference.
        scale: `[channels]`, from `deviations`.

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
    """A warning that names the targets where graph and model differ too much, if any do."""
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
