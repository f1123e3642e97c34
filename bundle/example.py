"""The example of a bundle: one window of real data and the values that followed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretell.bundle import archives
from foretell.bundle.archives import Array
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
    """

    history: NDArray[np.float64]
    timestamps: NDArray[np.str_]
    actual: NDArray[np.float64]
    series: str = ""


_ARRAYS = {
    "timestamps": Array("text", ("rows",)),
    "history": Array("float64", ("rows", "channels")),
    "actual": Array("float64", ("horizon", "targets"), gaps=True),
    "series": Array("text"),
}


def write(folder: Path, example: Example) -> None:
    """Write a bundle's example."""
    archives.write(folder / EXAMPLE, _ARRAYS, example)


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
    arrays = archives.read(path, _ARRAYS, sizes, content and content(EXAMPLE))
    if len(arrays["timestamps"]) < manifest.context:
        raise BundleError(f"{path}: timestamps: expected {manifest.context} rows or more")
    history, timestamps, actual = (arrays[name] for name in ("history", "timestamps", "actual"))
    return Example(history, timestamps, actual, str(arrays["series"]))
