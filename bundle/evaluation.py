"""Evaluation of a model in the test split: errors by step and channel, shares below quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretell.bundle import archives
from foretell.bundle.archives import Array
from foretell.bundle.layout import EVALUATION
from foretell.bundle.manifest import Manifest

Floats = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Means over windows of the test split.

    Attributes:
        forecasters: `[forecasters]`, fields of a `TestResult`: `onnx` and the baselines.
        mse: `[forecasters, horizon, targets]`, in standardised units.
        mae: Mean absolute errors, in the same shape and units.
        levels: `[levels]` of quantiles, increasing; empty for a model without quantiles.
        below: `[levels, targets]`, the share of actual values below each quantile, over all steps
            of the horizon.
        up_to: `[levels, targets]`, the share at or below each. It is larger where many values are
            equal, such as zeros at night.
        counts: `[horizon, targets]`, the number of known values behind each mean error; not
            written to the file.
    """

    forecasters: tuple[str, ...]
    mse: Floats
    mae: Floats
    levels: Floats
    below: Floats
    up_to: Floats
    counts: NDArray[np.integer] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether every mean has at least one value."""
        return all(np.isfinite(part).all() for part in (self.mse, self.mae, self.below, self.up_to))

    @property
    def reached(self) -> Floats:
        """`[levels, targets]`, the share nearest to each level, between `below` and `up_to`.

        A quantile is right where this is the level itself.
        """
        return np.clip(self.levels[:, None], self.below, self.up_to)


_ERRORS, _CURVE = ("forecasters", "horizon", "targets"), ("levels", "targets")
_ARRAYS = {
    "forecasters": Array("text", ("forecasters",)),
    "mse": Array("float32", _ERRORS),
    "mae": Array("float32", _ERRORS),
    "levels": Array("float64", ("levels",)),
    "below": Array("float32", _CURVE),
    "up_to": Array("float32", _CURVE),
}


def write(folder: Path, found: Evaluation) -> None:
    """Write a bundle's evaluation."""
    archives.write(folder / EVALUATION, _ARRAYS, found)


def read(folder: Path, manifest: Manifest) -> Evaluation | None:
    """Read a bundle's evaluation.

    Args:
        folder: The bundle.
        manifest: Its manifest, which defines the contents of the file.

    Returns:
        None if the manifest lists no such file.

    Raises:
        BundleError: the file cannot be read, or does not match the manifest.
    """
    if EVALUATION not in manifest.files:
        return None
    sizes = {"horizon": manifest.horizon, "targets": len(manifest.targets)}
    arrays = archives.read(folder / EVALUATION, _ARRAYS, sizes)
    names = tuple(map(str, arrays.pop("forecasters")))
    return Evaluation(names, **arrays)
