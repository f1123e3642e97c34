"""Messages about answers to the ledger."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from foretell.service.arrays import FORECAST, HISTORY, HOLES, MOMENTS, QUANTILES, Arrays
from foretell.service.engine.ipc import Remember
from foretell.service.forecast.series import Series
from foretell.timeaxis.errors import TimestampError

if TYPE_CHECKING:
    from foretell.service.forecast.job import Job


def record(job: Job, outputs: Arrays) -> tuple[Remember, Arrays] | None:
    """The message and the arrays for the ledger, or None if no series can be kept.

    An input with scenarios is kept with its first one. The arrays are `history` `[forecasts,
    context, targets]`, `forecast` `[forecasts, steps, targets]`, `quantiles` `[forecasts, levels,
    steps, targets]` if there are any, `MOMENTS` and `HOLES`.
    """
    manifest, options = job.model.manifest, job.options
    kept: list[tuple[int, Series]] = []
    moments = []
    for index, entry in enumerate(job.entries):
        if not isinstance(entry, Series) or not job.is_kept(entry):
            continue
        assert entry.timeline is not None  # noqa: S101 - as `is_kept` has seen
        try:
            moments.append(
                entry.timeline.moments(-manifest.context, manifest.context + options.horizon)
            )
        except TimestampError:
            # The history begins before the year 1.
            continue
        kept.append((index, entry))
    if not kept or job.ledger is None:
        return None
    rows = [series.row for _, series in kept]
    at = slice(None) if manifest.columns is None else manifest.columns
    arrays: Arrays = {
        HISTORY: job.history[rows][..., at],
        FORECAST: outputs[FORECAST][rows, : options.horizon],
        MOMENTS: np.stack(moments),
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
        job.ledger.namespace,
        # Tables have no ids in their answers.
        job.identifier or f"forecast-{random.getrandbits(128):032x}",
        options.calibration,
        options.quantiles,
        [series.name for _, series in kept],
        [index for index, _ in kept],
    )
    return message, arrays
