"""Work on the few thousand numbers of a request that keeps the interpreter's lock.

numpy gives the lock away for every loop over more than 500 values. On the event loop, while workers
wait for it, each such moment wakes one of them, mostly in vain, which takes longer than the loop.
Where there are many values the lock is given away, so that nobody waits for long.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# `NPY_BEGIN_THREADS_THRESHOLDED` in numpy's ndarraytypes.h.
_KEPT = 500
# Values; with more, others would wait for it.
_MOST = 16 * 1024
# Of a float64: sign and seven bits of the exponent.
_TOP = 7 if sys.byteorder == "little" else 0
_EXPONENT = 0x7F
# Below 2 ** 113, and so far within float32.
_ORDINARY = bytes(top for top in range(256) if top & _EXPONENT < 0x47)


def assign(target: NDArray[Any], values: NDArray[Any]) -> None:
    """Assign `[rows, columns]` to as many."""
    size = len(target)
    if target.size <= _MOST:
        size = max(1, _KEPT // target.shape[1])
    for start in range(0, len(target), size):
        target[start : start + size] = values[start : start + size]


def joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """`[rows, …]` of one type one after another, to be read; up to 1 MiB with the lock."""
    first = parts[0]
    joint = b"".join([np.ascontiguousarray(part).data for part in parts])
    return np.frombuffer(joint, first.dtype).reshape(-1, *first.shape[1:])


def ordinary(values: NDArray[np.float64]) -> bool:
    """Whether all are surely finite in float32; others than few may be so as well."""
    if values.size > _MOST:
        return False
    return not values.tobytes()[_TOP::8].translate(None, _ORDINARY)
