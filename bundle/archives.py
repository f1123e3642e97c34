"""The arrays of a bundle's `.npz` files."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.errors import BundleError


def read(path: Path, *needed: str, content: bytes | None = None) -> dict[str, NDArray[Any]]:
    """All arrays of a file, by name.

    Args:
        path: The file.
        needed: Names that it must have.
        content: What it holds, if that was read already.

    Raises:
        BundleError: it cannot be read, or lacks one of them.
    """
    try:
        opened = path.open("rb") if content is None else BytesIO(content)
        with opened as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in file.files}
    # At bytes that are damaged numpy, zipfile and zlib raise a dozen kinds.
    except Exception as error:
        raise BundleError(f"{path}: cannot be read: {error}") from error
    if missing := [name for name in needed if name not in arrays]:
        raise BundleError(f"{path}: cannot be read: it lacks {missing[0]}")
    return arrays
