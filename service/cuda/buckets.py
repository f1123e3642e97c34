"""Batch sizes that a GPU runs: a CUDA graph has the shapes with which it was captured."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def bucket_sizes(largest: int) -> tuple[int, ...]:
    """The powers of two below the largest batch, and that one."""
    return (*(2**power for power in range((largest - 1).bit_length())), largest)


def bucket_for(windows: int, sizes: tuple[int, ...]) -> int:
    """The smallest bucket that so many windows fit; they must fit the largest."""
    return next(size for size in sizes if windows <= size)


def fill(rows: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Repeat the last of `[windows, …]` up to `[size, …]`: rows that are like real ones."""
    rows = np.ascontiguousarray(rows, np.float32)
    missing = size - len(rows)
    return np.concatenate([rows, rows[-1:].repeat(missing, axis=0)]) if missing else rows
