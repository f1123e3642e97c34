"""The arrays of a run: their names and shapes in graphs, and of several runs joined."""

from __future__ import annotations

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


def joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Read-only `[rows, …]` of arrays of one type."""
    # Up to 1 MiB this keeps the interpreter's lock: `forecast/values.py` says why.
    first = parts[0]
    joint = b"".join([np.ascontiguousarray(part).data for part in parts])
    return np.frombuffer(joint, first.dtype).reshape(-1, *first.shape[1:])
