"""The arrays of a run: names, shapes, and the concatenation of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.manifest import Manifest

Arrays = dict[str, NDArray[Any]]
Shapes = dict[str, tuple[int, ...]]
NO_ARRAYS: Arrays = {}

HISTORY = "history"
HISTORY_CALENDAR = "history_calendar"
FUTURE_CALENDAR = "future_calendar"
FORECAST = "forecast"
MARGIN = "margin"
DISTRIBUTION = "distribution"
# Further arrays of forecasts for the ledger.
QUANTILES = "quantiles"
# `[forecasts, rows + steps]`, int64 microseconds since 1970: in UTC if the offset is known.
MOMENTS = "moments"
# Instead of them, where all have one distance: `[forecasts, 2]`, the last row's and the distance.
SPACING = "spacing"
# `[forecasts, context, targets]`, where a value of the history was missing; absent if none was.
HOLES = "holes"


def input_shapes(manifest: Manifest) -> Shapes:
    """Shapes of all inputs by name, without the batch axis."""
    shapes: Shapes = {HISTORY: (manifest.context, len(manifest.channels))}
    if manifest.calendar is not None:
        features = len(manifest.calendar.features)
        shapes[HISTORY_CALENDAR] = (manifest.context, features)
        shapes[FUTURE_CALENDAR] = (manifest.horizon, features)
    if manifest.covariates is not None:
        shapes |= manifest.covariates.shapes(manifest.context, manifest.horizon)
    return shapes


def output_shapes(manifest: Manifest) -> Shapes:
    """Shapes of the outputs of every run by name, without the batch axis."""
    shapes: Shapes = {FORECAST: (manifest.horizon, len(manifest.targets))}
    if manifest.distribution is not None:
        shapes[DISTRIBUTION] = (*shapes[FORECAST], len(manifest.distribution.parameters))
    if manifest.margin_bound is not None:
        shapes[MARGIN] = ()
    return shapes


def joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate arrays of one type; read-only `[rows, …]`."""
    # Up to 1 MiB this keeps the interpreter's lock: see `forecast/values.py`.
    first = parts[0]
    joint = b"".join([np.ascontiguousarray(part).data for part in parts])
    return np.frombuffer(joint, first.dtype).reshape(-1, *first.shape[1:])
