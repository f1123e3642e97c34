"""Split-conformal calibration: finite-sample ranks, and the file that a bundle stores.

A quantile is `forecast + scale(history) * offset[level, step, channel]`. The offsets are order
statistics of the model's errors in the validation split, each divided by its history's scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretell.bundle import archives
from foretell.bundle.archives import Array
from foretell.bundle.errors import BundleError
from foretell.bundle.layout import CALIBRATION
from foretell.bundle.manifest import Manifest

Floats = NDArray[np.floating]

# Share of a standard deviation in training. A flat channel, such as a broken sensor's, may move
# again.
FLOOR = 0.1
# Fewer errors do not support an interval of 90%.
LEAST_WINDOWS = 20
# Common levels are stored exactly. Between them, a line through a tail errs outwards.
_TAIL = (0.001, 0.0025, 0.005, 0.01, 0.025)
_MIDDLE = tuple(step / 20 for step in range(1, 20))
_LEVELS = (*_TAIL, *_MIDDLE, *(1 - level for level in _TAIL))
_ARRAYS = {
    "levels": Array("float64", ("levels",)),
    "offsets": Array("float32", ("levels", "steps", "targets")),
}
# Far below the distance of two ranks, far above the rounding of a product.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Calibration:
    """Offsets of a model's quantiles.

    Attributes:
        levels: `[levels]` float64, increasing.
        offsets: `[levels, steps, channels]` float32, in units of the history's scale; they never
            decrease with the level.
    """

    levels: NDArray[np.float64]
    offsets: NDArray[np.float32]

    def at(self, levels: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
        """Offsets of any levels, interpolated linearly between the stored ones.

        Args:
            levels: `[levels]`, within the stored ones.
            steps: Number of steps, from the first.

        Returns:
            `[levels, steps, channels]`.
        """
        position = np.interp(levels, self.levels, np.arange(len(self.levels)))
        below = np.minimum(position.astype(np.int64), len(self.levels) - 2)
        share = (position - below)[:, None, None]
        lower = self.offsets[below, :steps].astype(np.float64)
        upper = self.offsets[below + 1, :steps].astype(np.float64)
        # Rounding must not carry an offset beyond its upper neighbour.
        return np.minimum(lower + (upper - lower) * share, upper)


def scale(history: Floats, floor: Floats) -> NDArray[np.float64]:
    """The standard deviation of each history, over its known values.

    Args:
        history: `[windows, context, channels]` in the user's units; NaN where a value is missing.
        floor: `[channels]`, the smallest scale.

    Returns:
        `[windows, 1, channels]`.
    """
    values = history.astype(np.float64)
    deviation: NDArray[np.float64] = values.std(axis=1, keepdims=True)
    if (lacking := np.isnan(deviation)).any():
        # A window without gaps gets the same scale whether or not another one has gaps.
        deviation = np.where(lacking, np.nanstd(values, axis=1, keepdims=True), deviation)
    return np.maximum(deviation, floor)


def bounds(windows: int) -> tuple[float, float]:
    """The lowest and the highest level that errors of this many windows support."""
    return 1 / (windows + 1), windows / (windows + 1)


def rank(level: float, windows: int) -> int:
    """The rank, from 1, of the quantile among the sorted errors of the windows.

    Let a new error be exchangeable with these. For levels from 0.5 on, it is at most the error at
    this rank with a probability of at least `level`. For lower levels, it is below that error with
    a probability of at most `level`. Levels beyond `bounds` get the first or the last rank.
    """
    place = level * (windows + 1)
    outward = math.floor(place + _ROUNDING) if level < 0.5 else math.ceil(place - _ROUNDING)
    return min(max(outward, 1), windows)


def stored_levels(windows: Iterable[int]) -> NDArray[np.float64]:
    """Levels to store, by the number of windows of each pass.

    The bounds of every pass are among them, so that interpolation does not go beyond its errors.
    """
    limits = [bounds(count) for count in windows]
    lowest, highest = min(low for low, _ in limits), max(high for _, high in limits)
    within = [level for level in _LEVELS if lowest <= level <= highest]
    return np.unique([*within, *(limit for pair in limits for limit in pair)])


def order_statistics(errors: Floats, levels: Iterable[float]) -> NDArray[np.float32]:
    """Offsets from errors.

    Args:
        errors: `[windows, steps, channels]`, actual minus forecast, in units of the scale; NaN if
            the actual value is missing. Each step and channel has at least one error.
        levels: Levels of the quantiles.

    Returns:
        `[levels, steps, channels]`.
    """
    # NaN sorts last.
    ordered, levels = np.sort(errors, axis=0), [*levels]
    counts = known_errors(errors)
    offsets = np.empty((len(levels), *counts.shape), np.float32)
    for count in np.unique(counts):
        places = [rank(level, int(count)) - 1 for level in levels]
        if (counts == count).all():
            return ordered[places].astype(np.float32)
        offsets[:, counts == count] = ordered[places][:, counts == count]
    return offsets


def known_errors(errors: Floats) -> NDArray[np.int64]:
    """Number of known errors `[steps, channels]` of errors `[windows, steps, channels]`."""
    counts: NDArray[np.int64] = (~np.isnan(errors)).sum(axis=0)
    return counts


def write(folder: Path, calibration: Calibration) -> None:
    """Write a bundle's calibration file."""
    archives.write(folder / CALIBRATION, _ARRAYS, calibration)


def read(
    folder: Path, manifest: Manifest, content: Callable[[str], bytes] | None = None
) -> Calibration | None:
    """Read a bundle's calibration.

    Args:
        folder: The bundle.
        manifest: Its manifest, which defines the contents of the file.
        content: Reads a file of the bundle by its name; from the folder by default.

    Returns:
        None if the manifest has no calibration.

    Raises:
        BundleError: the file cannot be read, or does not match the manifest.
    """
    if manifest.calibration is None:
        return None
    path = folder / CALIBRATION
    sizes = {"steps": manifest.calibration.steps, "targets": len(manifest.targets)}
    arrays = archives.read(path, _ARRAYS, sizes, content and content(CALIBRATION))
    levels, offsets = arrays["levels"], arrays["offsets"]
    if len(levels) < 2 or (np.diff(levels) <= 0).any() or (np.diff(offsets, axis=0) < 0).any():
        raise BundleError(
            f"{path}: levels and offsets must increase, and there must be two levels or more"
        )
    return Calibration(levels, offsets)
