"""The example window of a bundle, to try its model with."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import torch

from foretell.bundle.example import Example
from foretell.data.panel import Panel
from foretell.export.data_windows import windows_of
from foretell.export.runtime import Graph
from foretell.models.checkpoint import CheckpointInfo
from foretell.timeaxis.timestamps import render
from foretell.training.accuracy import known_targets
from foretell.training.windows import Windows

# Number of windows that are compared, evenly spaced.
_WINDOWS = 128
# Rows before the context are for backtests, for quantiles by the history, and for other models that
# read more. Their number is the larger of these contexts and rows, but at most these values.
_CONTEXTS, _ROWS, _VALUES = 4, 512, 65_536


def example_of(graph: Graph, info: CheckpointInfo, panel: Panel, batch: int) -> Example:
    """A typical window of the test split, or of all rows if no split is known.

    Its error is the median: neither the model's best nor its worst.

    Args:
        graph: Graph of the bundle.
        info: Metadata of the checkpoint.
        panel: Data of the checkpoint, with its codes of covariates.
        batch: Most windows run together.

    Raises:
        DataError: the data hold no window.
    """
    windows = windows_of(info, panel)
    table, first, end = windows.span(_median(graph, info, windows, batch))
    begin, rows = first + info.config.context, panel.tables[table]
    most = max(_CONTEXTS * info.config.context, _ROWS)
    kept = max(info.config.context, min(most, _VALUES // len(info.channels)))
    history = slice(max(0, begin - kept), begin)
    offset = rows.utc_offset
    return Example(
        rows.history(history.start, begin),
        # A constant offset is left out: models read the wall clock.
        np.array(
            render(
                rows.timestamps[history],
                None if offset is None or isinstance(offset, timedelta) else offset[history],
            )
        ),
        rows.known(begin, end)[:, windows.targets],
        rows.series,
        None if rows.covariates is None else rows.covariates[history.start : end],
        rows.static,
    )


def _median(graph: Graph, info: CheckpointInfo, windows: Windows, batch: int) -> int:
    """The window with the median error."""
    count = min(_WINDOWS, len(windows))
    chosen = np.linspace(0, len(windows) - 1, count).round().astype(np.int64)
    std, errors = np.array(info.target_scaler.training.std), np.empty(count)
    for start in range(0, count, batch):
        part = slice(start, start + batch)
        given = windows.batch(torch.from_numpy(chosen[part]))
        forecast = graph.predict(*given.inputs)
        scaled = (forecast.astype(np.float64) - given.target.numpy()) / std
        known = known_targets(given)
        # A window without known values comes last.
        sums = np.square(scaled).sum(axis=(1, 2), where=known)
        with np.errstate(invalid="ignore"):
            errors[part] = sums / known.sum(axis=(1, 2))
    middle = np.count_nonzero(~np.isnan(errors)) // 2
    return int(chosen[np.argsort(errors, kind="stable")[middle]])
