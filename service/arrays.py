"""The arrays of a run: their names and shapes in graphs, and quick work on small ones.

numpy releases the interpreter's lock for every loop over more than 500 values. On the event loop,
while inference threads wait for the lock, each release wakes one of them, mostly in vain, and that
takes longer than the loop. `assign`, `joined` and `ordinary` keep the lock for the few thousand
numbers of a request, and release it where there are many.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.manifest import Manifest

Arrays = dict[str, NDArray[Any]]
Shapes = dict[str, tuple[int, ...]]

HISTORY = "history"
HISTORY_CALENDAR = "history_calendar"
FUTURE_CALENDAR = "future_calendar"
FORECAST = "forecast"
MARGIN = "margin"
DISTRIBUTION = "distribution"

# Values for which numpy keeps the lock: `NPY_BEGIN_THREADS_THRESHOLDED` in its ndarraytypes.h.
_KEPT = 500
# With more values, other threads would wait too long for the lock.
_MOST = 16 * 1024
# The byte of a float64 that holds its sign and seven bits of the exponent.
_TOP = 7 if sys.byteorder == "little" else 0
_EXPONENT = 0x7F
# Such bytes of values below 2 ** 113, well within float32.
_ORDINARY = bytes(top for top in range(256) if top & _EXPONENT < 0x47)


def input_shapes(manifest: Manifest) -> Shapes:
    """Shape of every input of a window, by name: the batch axis is left out."""
    shapes: Shapes = {HISTORY: (manifest.context, len(manifest.channels))}
    if manifest.calendar is not None:
        features = len(manifest.calendar.features)
        shapes[HISTORY_CALENDAR] = (manifest.context, features)
        shapes[FUTURE_CALENDAR] = (manifest.horizon, features)
    return shapes


def output_shapes(manifest: Manifest) -> Shapes:
    """Likewise of the outputs that every run has."""
    shapes: Shapes = {FORECAST: (manifest.horizon, len(manifest.targets))}
    if manifest.distribution is not None:
        shapes[DISTRIBUTION] = (*shapes[FORECAST], len(manifest.distribution.parameters))
    if manifest.margin_bound is not None:
        shapes[MARGIN] = ()
    return shapes


def assign(target: NDArray[Any], values: NDArray[Any]) -> None:
    """Assign `[rows, columns]` to an array of the same shape."""
    size = len(target)
    if target.size <= _MOST:
        size = max(1, _KEPT // target.shape[1])
    for start in range(0, len(target), size):
        target[start : start + size] = values[start : start + size]


def joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Read-only `[rows, …]` of arrays of one type; up to 1 MiB it keeps the lock."""
    first = parts[0]
    joint = b"".join([np.ascontiguousarray(part).data for part in parts])
    return np.frombuffer(joint, first.dtype).reshape(-1, *first.shape[1:])


def ordinary(values: NDArray[np.float64]) -> bool:
    """Whether all values are surely finite in float32; False where a closer look is needed."""
    if values.size > _MOST:
        return False
    return not values.tobytes()[_TOP::8].translate(None, _ORDINARY)
