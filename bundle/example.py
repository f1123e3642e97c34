"""One real window that a bundle carries, with what followed: something to try its model with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretell.bundle import archives
from foretell.bundle.errors import BundleError
from foretell.bundle.layout import EXAMPLE
from foretell.bundle.manifest import Manifest


@dataclass(frozen=True, eq=False)
class Example:
    """A window of the data that a model was tested on.

    Attributes:
        history: `[rows, channels]` float64, in the user's units; at least the context.
        timestamps: `[rows]` ISO 8601 times of the history.
        actual: `[horizon, targets]` float64: what followed; NaN where that is not known.
        series: Which series of a panel it is of; empty where there is but one.
    """

    history: NDArray[np.float64]
    timestamps: NDArray[np.str_]
    actual: NDArray[np.float64]
    series: str = ""


def write(folder: Path, example: Example) -> None:
    """Write a bundle's example."""
    np.savez_compressed(
        folder / EXAMPLE,
        allow_pickle=False,
        history=example.history,
        timestamps=example.timestamps,
        actual=example.actual,
        series=np.array(example.series),
    )


def read(
    folder: Path, manifest: Manifest, content: Callable[[str], bytes] | None = None
) -> Example | None:
    """Read a bundle's example.

    Args:
        folder: The bundle.
        manifest: Its manifest, which says what the file must hold.
        content: Reads a file of the bundle by its name; from the folder by default.

    Returns:
        None if the manifest lists no such file.

    Raises:
        BundleError: the file cannot be read, or it does not hold what the manifest says.
    """
    if EXAMPLE not in manifest.files:
        return None
    path = folder / EXAMPLE
    found = None if content is None else content(EXAMPLE)
    arrays = archives.read(path, "history", "timestamps", "actual", "series", content=found)
    # As rows, whatever wrote them: JSON is written of nothing else.
    history, actual = (np.ascontiguousarray(arrays[name]) for name in ("history", "actual"))
    timestamps = arrays["timestamps"]
    rows, targets = timestamps.size, len(manifest.targets)
    if timestamps.shape != (rows,) or timestamps.dtype.kind != "U" or rows < manifest.context:
        raise BundleError(f"{path}: timestamps: expected text of {manifest.context} rows or more")
    for name, values, expected in (
        ("history", history, (rows, len(manifest.channels))),
        ("actual", actual, (manifest.horizon, targets)),
    ):
        if values.dtype != np.float64 or values.shape != expected:
            raise BundleError(
                f"{path}: {name}: expected {expected} in float64, got {values.shape} in "
                f"{values.dtype}"
            )
        if not np.isfinite(values).all() and (name == "history" or np.isinf(values).any()):
            raise BundleError(f"{path}: {name}: must be finite")
    return Example(history, timestamps, actual, str(arrays["series"]))
