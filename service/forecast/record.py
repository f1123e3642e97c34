"""Messages about answers to the ledger."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretell.service.arrays import FORECAST, HISTORY, HOLES, MOMENTS, QUANTILES, SPACING, Arrays
from foretell.service.engine.ipc import Remember
from foretell.service.forecast.series import Series
from foretell.service.forecast.times import Timeline
from foretell.timeaxis.errors import TimestampError

if TYPE_CHECKING:
    from foretell.service.forecast.job import Job


# Work of a time in a zone, and values whose copy is a work of 1.
_MOMENT, _VALUES = 32, 4


def recording_work(job: Job) -> int:
    """Work of `record`, in the unit of `body.LARGE`."""
    has_past = job.ledger is not None and job.ledger.learns
    moments = job.options.horizon + (job.model.manifest.context if has_past else 1)
    return len(job.entries) * _MOMENT * moments + job.history.size // _VALUES


def record(job: Job, outputs: Arrays) -> tuple[Remember, Arrays] | None:
    """The message and the arrays for the ledger, or None if no series can be kept.

    An input with scenarios is kept with its first one. The arrays are `history` `[forecasts,
    context, targets]`, `forecast` `[forecasts, steps, targets]`, `quantiles` `[forecasts, levels,
    steps, targets]` if there are any, `HOLES`, and `SPACING`, or else `MOMENTS` of the last row of
    the history, or of all rows if histories count as actual values, and of all steps.
    """
    manifest, options, ledger = job.model.manifest, job.options, job.ledger
    if ledger is None or not ledger.takes or not job.storable:
        return None
    kept, times = _times(job, manifest.context if ledger.learns else 1)
    if not kept:
        return None
    rows: Any = [series.row for _, series in kept]
    if rows[-1] - rows[0] == len(rows) - 1:
        # Without a copy of the histories.
        rows = slice(rows[0], rows[-1] + 1)
    history = job.history[rows]
    arrays: Arrays = {
        HISTORY: history if manifest.columns is None else history[..., manifest.columns],
        # The others are parts of a batch, which must not be held for one of its windows.
        FORECAST: outputs[FORECAST][rows, : options.horizon].copy(),
        **times,
    }
    if job.quantiles is not None:
        arrays[QUANTILES] = np.ascontiguousarray(job.quantiles[:, rows].swapaxes(0, 1))
    if any(series.holes is not None for _, series in kept):
        holes = np.zeros((len(kept), *job.history.shape[1:]), np.bool_)
        for place, (_, series) in enumerate(kept):
            if series.holes is not None:
                holes[place] = series.holes
        arrays[HOLES] = holes if manifest.columns is None else holes[..., manifest.columns]
    message = Remember(
        manifest.name,
        manifest.version,
        job.model.digest,
        ledger.namespace,
        # Tables have no ids in their answers.
        job.identifier or f"forecast-{random.getrandbits(128):032x}",
        options.calibration,
        options.quantiles,
        [series.name for _, series in kept],
        [index for index, _ in kept],
    )
    return message, arrays


def _times(job: Job, before: int) -> tuple[list[tuple[int, Series]], Arrays]:
    """The inputs that have times from `before` the first step on, with their places; the times."""
    spacings = []
    for _, series in job.storable:
        if (spacing := _timeline(series).spacing) is None:
            break
        spacings.append(spacing)
    else:
        return job.storable, {SPACING: np.array(spacings, np.int64)}
    # Series of a table may share their times.
    known: dict[int, NDArray[np.int64]] = {}
    kept: list[tuple[int, Series]] = []
    for index, series in job.storable:
        timeline = _timeline(series)
        try:
            if id(timeline) not in known:
                known[id(timeline)] = timeline.moments(-before, before + job.options.horizon)
        except TimestampError:
            # The history begins before the year 1.
            continue
        kept.append((index, series))
    moments = [known[id(_timeline(series))] for _, series in kept]
    return kept, {MOMENTS: np.stack(moments)} if moments else {}


def _timeline(series: Series) -> Timeline:
    assert series.timeline is not None  # noqa: S101 - all that are storable have one
    return series.timeline
