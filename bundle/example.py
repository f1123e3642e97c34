"""The example of a bundle: one window of real data and the values that followed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretell.bundle import archives
from foretell.bundle.archives import Array
from foretell.bundle.covariates import (
    FUTURE_COVARIATES,
    NO_COVARIATES,
    STATIC_COVARIATES,
)
from foretell.bundle.errors import BundleError
from foretell.bundle.layout import EXAMPLE
from foretell.bundle.manifest import Manifest


@dataclass(frozen=True, eq=False)
class Example:
    """A window of the data that a model was tested on.

    Attributes:
        history: `[rows, channels]` float64, in the user's units; at least the context.
        timestamps: `[rows]` ISO 8601 times of the history.
        actual: `[horizon, targets]` float64, the values that followed; NaN where missing.
        series: Name of the series in a panel; empty for a single series.
        future_covariates: `[rows + horizon, future]` float64, codes of the future covariates of the
            history and of the horizon; None for a model that reads none.
        static_covariates: `[static]` float64, likewise.
    """

    history: NDArray[np.float64]
    timestamps: NDArray[np.str_]
    actual: NDArray[np.float64]
    series: str = ""
    future_covariates: NDArray[np.float64] | None = None
    static_covariates: NDArray[np.float64] | None = None


_ARRAYS = {
    "timestamps": Array("text", ("rows",)),
    "history": Array("float64", ("rows", "channels")),
    "actual": Array("float64", ("horizon", "targets"), gaps=True),
    "series": Array("text"),
}
_COVARIATES = {
    FUTURE_COVARIATES: Array("float64", ("steps", "future")),
    STATIC_COVARIATES: Array("float64", ("static",)),
}


def write(folder: Path, example: Example) -> None:
    """Write a bundle's example."""
    covariates = {
        name: array for name, array in _COVARIATES.items() if getattr(example, name) is not None
    }
    archives.write(folder / EXAMPLE, _ARRAYS | covariates, example)


def read(
    folder: Path, manifest: Manifest, content: Callable[[str], bytes] | None = None
) -> Example | None:
    """Read a bundle's example.

    Args:
        folder: The bundle.
        manifest: Its manifest, which defines the contents of the file.
        content: Reads a file of the bundle by its name; from the folder by default.

    Returns:
        None if the manifest lists no such file.

    Raises:
        BundleError: the file cannot be read, or does not match the manifest.
    """
    if EXAMPLE not in manifest.files:
        return None
    path = folder / EXAMPLE
    targets = len(manifest.targets)
    sizes = {"channels": len(manifest.channels), "horizon": manifest.horizon, "targets": targets}
    known = manifest.covariates or NO_COVARIATES
    sizes |= {"future": len(known.future), "static": len(known.static)}
    names = [name for name in _COVARIATES if name in known.shapes(1, 1)]
    spec = _ARRAYS | {name: _COVARIATES[name] for name in names}
    arrays = archives.read(path, spec, sizes, content and content(EXAMPLE))
    rows = len(arrays["timestamps"])
    if rows < manifest.context:
        raise BundleError(f"{path}: timestamps: expected {manifest.context} rows or more")
    future = arrays.get(FUTURE_COVARIATES)
    if future is not None and len(future) != rows + manifest.horizon:
        raise BundleError(f"{path}: {FUTURE_COVARIATES}: expected {rows + manifest.horizon} steps")
    return Example(
        arrays["history"],
        arrays["timestamps"],
        arrays["actual"],
        str(arrays["series"]),
        future,
        arrays.get(STATIC_COVARIATES),
    )
