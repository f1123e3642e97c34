"""Batch sizes that a GPU runs: a CUDA graph has the shapes with which it was captured."""

from __future__ import annotations


def bucket_sizes(largest: int) -> tuple[int, ...]:
    """The powers of two below the largest batch, and that one."""
    return (*(2**power for power in range((largest - 1).bit_length())), largest)


def bucket_for(windows: int, sizes: tuple[int, ...]) -> int:
    """The smallest bucket that so many windows fit; they must fit the largest."""
    return next(size for size in sizes if windows <= size)
