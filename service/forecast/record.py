"""Messages about answers to the ledger."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretell.service.arrays import FORECAST, HISTORY, HOLES, MOMENTS, QUANTILES, Arrays
from foretell.service.engine.ipc import Remember
from foretell.service.forecast.series import Series
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
    steps, targets]` if there are any, `HOLES`, and `MOMENTS` `[forecasts, rows + steps]`, of the
    last row of the history, or of all if histories count as actual values.
    """
    manifest, options, ledger = job.model.manifest, job.options, job.ledger
    if ledger is None:
        return None
    kept, moments = _kept(job, manifest.context if ledger.learns else 1)
    if not kept:
        return None
    rows: Any = [series.row for _, series in kept]
    if rows[-1] - rows[0] == len(rows) - 1:
        # Without a copy of the histories.
        rows = slice(rows[0], rows[-1] + 1)
    at = slice(None) if manifest.columns is None else manifest.columns
    arrays: Arrays = {
        HISTORY: job.history[rows][..., at],
        # The others are parts of a batch, which must not be held for one of its windows.
        FORECAST: outputs[FORECAST][rows, : options.horizon].copy(),
        MOMENTS: moments[0][None] if len(moments) == 1 else np.stack(moments),
    }
    if job.quantiles is not None:
        arrays[QUANTILES] = np.ascontiguousarray(job.quantiles[:, rows].swapaxes(0, 1))
    if any(series.holes is not None for _, series in kept):
        holes = np.zeros((len(kept), *job.history.shape[1:]), np.bool_)
        for place, (_, series) in enumerate(kept):
            if series.holes is not None:
                holes[place] = series.holes
        arrays[HOLES] = holes[..., at]
    message = Remember(
        manifest.name,
        manifest.version,
        ledger.namespace,
        # Tables have no ids in their answers.
        job.identifier or f"forecast-{random.getrandbits(128):032x}",
        options.calibration,
        options.quantiles,
        [series.name for _, series in kept],
        [index for index, _ in kept],
    )
    return message, arrays


def _kept(job: Job, before: int) -> tuple[list[tuple[int, Series]], list[NDArray[np.int64]]]:
    """The kept inputs with their places, and the times of their last rows and steps."""
    kept: list[tuple[int, Series]] = []
    moments: list[NDArray[np.int64]] = []
    # Series of a table may share their times.
    known: dict[int, NDArray[np.int64]] = {}
    for index, entry in enumerate(job.entries):
        if not isinstance(entry, Series) or not job.is_kept(entry):
            continue
        timeline = entry.timeline
        assert timeline is not None  # noqa: S101 - as `is_kept` has seen
        if (own := known.get(id(timeline))) is None:
            try:
                own = timeline.moments(-before, before + job.options.horizon)
            except TimestampError:
                # The history begins before the year 1.
                continue
            known[id(timeline)] = own
        moments.append(own)
        kept.append((index, entry))
    return kept, moments
