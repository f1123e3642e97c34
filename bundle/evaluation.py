"""How good a model was in its test split: errors by step and channel, and its quantiles."""

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
        mae: Likewise.
        levels: `[levels]` of quantiles, increasing; none of a model without any.
        below: `[levels, targets]`, the share of what came that was below each, over all steps of
            the horizon.
        up_to: Likewise, at or below it: more where many values are equal, such as zeros at night.
        counts: `[horizon, targets]`, how many values the means of errors are of, those that were
            missing left out; not written.
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
        """Whether every mean is of some value."""
        return all(np.isfinite(part).all() for part in (self.mse, self.mae, self.below, self.up_to))

    @property
    def reached(self) -> Floats:
        """`[levels, targets]`, the share nearest to each level that equal values leave to it.

        A quantile is right where it is the level itself: where no more lies below it, and no less
        at or below it.
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
        manifest: Its manifest, which says what the file must hold.

    Returns:
        None if the manifest lists no such file.

    Raises:
        BundleError: the file cannot be read, or it does not hold what the manifest says.
    """
    if EVALUATION not in manifest.files:
        return None
    sizes = {"horizon": manifest.horizon, "targets": len(manifest.targets)}
    arrays = archives.read(folder / EVALUATION, _ARRAYS, sizes)
    names = tuple(map(str, arrays.pop("forecasters")))
    return Evaluation(names, **arrays)
