"""The arrays of a bundle's `.npz` files."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.errors import BundleError

Arrays = dict[str, NDArray[Any]]


class Array(NamedTuple):
    """The type and shape of an array in a file.

    Attributes:
        dtype: Type of the elements; `text` for strings.
        axes: Names of the axes; axes of the same name have the same length.
        gaps: Whether values may be missing (NaN).
    """

    dtype: str
    axes: tuple[str, ...] = ()
    gaps: bool = False


def write(path: Path, spec: Mapping[str, Array], values: object) -> None:
    """Write the attributes of `values` that `spec` names, in its types."""
    arrays = {
        name: np.asarray(getattr(values, name), str if array.dtype == "text" else array.dtype)
        for name, array in spec.items()
    }
    np.savez_compressed(path, allow_pickle=False, **arrays)


def load(path: Path, *needed: str, content: bytes | None = None) -> Arrays:
    """All arrays of a file, by name.

    Args:
        path: The file.
        needed: Names of arrays that the file must have.
        content: Bytes of the file, if they were read before.

    Raises:
        BundleError: the file cannot be read, or lacks an array.
    """
    try:
        opened = path.open("rb") if content is None else BytesIO(content)
        with opened as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in file.files}
    # numpy, zipfile and zlib raise a dozen kinds of errors for damaged files.
    except Exception as error:
        raise BundleError(f"{path}: cannot be read: {error}") from error
    if missing := [name for name in needed if name not in arrays]:
        raise BundleError(f"{path}: cannot be read: it lacks {missing[0]}")
    return arrays


def read(
    path: Path,
    spec: Mapping[str, Array],
    sizes: Mapping[str, int],
    content: bytes | None = None,
) -> Arrays:
    """The arrays of `spec` by name, checked, in C order.

    Args:
        path: The file.
        spec: Arrays that the file must have. The first array with an axis that `sizes` lacks
            sets its length.
        sizes: Lengths of axes.
        content: Bytes of the file, if they were read before.

    Raises:
        BundleError: the file cannot be read, or an array is missing or does not match `spec`.
    """
    found, lengths = load(path, *spec, content=content), dict(sizes)
    arrays: Arrays = {}
    for name, array in spec.items():
        values = arrays[name] = np.asarray(found[name], order="C")
        kind = "text" if values.dtype.kind == "U" else str(values.dtype)
        for axis, length in zip(array.axes, values.shape, strict=False):
            lengths.setdefault(axis, length)
        expected = tuple(lengths.get(axis, axis) for axis in array.axes)
        if (kind, values.shape) != (array.dtype, expected):
            raise BundleError(
                f"{path}: {name}: expected {expected} in {array.dtype}, got {values.shape} in "
                f"{kind}"
            )
        if kind != "text" and not (np.isfinite(values) | (array.gaps & np.isnan(values))).all():
            raise BundleError(f"{path}: {name}: must be finite")
    return arrays
