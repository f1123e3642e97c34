"""The runs of the model that a job takes: one, or more where its horizon is over the model's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np
from numpy.typing import NDArray

from foretell.service.arrays import Arrays
from foretell.service.directory import Pending
from foretell.service.requests.decode import Job
from foretell.service.tensors import FORECAST, FUTURE_CALENDAR, HISTORY, HISTORY_CALENDAR, MARGIN

Wait = Callable[[Pending], Awaitable[Arrays]]


async def run(job: Job, deadline: float, wait: Wait) -> Arrays:
    """Forecast all steps of a job.

    Later passes read the forecasts of earlier ones as if they had happened, exactly as a caller
    would get them from requests of its own.

    Args:
        job: The job.
        deadline: On the clock of `time.monotonic`, over all passes.
        wait: Waits for a pass; raises if the caller hangs up or the deadline passes.

    Returns:
        `[windows, …]` by output name: the forecast of all passes `[windows, steps, channels]`, NaN
        from a pass on that could not follow one that was not finite; the smallest margin; and the
        attention of the first pass.

    Raises:
        ServiceError: as `Model.submit`, what it returns and `wait`.
    """
    explain = job.plan.attention is not None
    feeds = _feeds(job, 0, job.history, slice(None))
    outputs = await wait(job.model.submit(feeds, explain=explain, deadline=deadline))
    if job.plan.passes == 1:
        return outputs
    return await _roll(job, outputs, deadline, wait)


async def _roll(job: Job, first: Arrays, deadline: float, wait: Wait) -> Arrays:
    """Run the passes after the first one, whose outputs are given."""
    own = job.model.manifest.horizon
    context = job.history.shape[1]
    windows, _, channels = first[FORECAST].shape
    forecast = np.full((windows, job.plan.passes * own, channels), np.nan, np.float32)
    forecast[:, :own] = first[FORECAST]
    outputs = first | {FORECAST: forecast}
    if MARGIN in first:
        outputs[MARGIN] = first[MARGIN].copy()
    for number in range(1, job.plan.passes):
        known = np.concatenate([job.history, forecast[:, : number * own]], axis=1)
        rows = np.flatnonzero(np.isfinite(known).all(axis=(1, 2)))
        if not len(rows):
            break
        feeds = _feeds(job, number, known[rows, -context:], rows)
        # What was accepted is finished: no pass is refused because others wait.
        pending = job.model.submit(feeds, explain=False, deadline=deadline, admitted=True)
        found = await wait(pending)
        forecast[rows, number * own : (number + 1) * own] = found[FORECAST]
        if MARGIN in found:
            outputs[MARGIN][rows] = np.minimum(outputs[MARGIN][rows], found[MARGIN])
    return outputs


def _feeds(
    job: Job, number: int, history: NDArray[np.float32], rows: slice | NDArray[np.int64]
) -> Arrays:
    """The inputs of a pass of some windows, whose history is given."""
    feeds: Arrays = {HISTORY: history}
    if job.calendar is not None:
        manifest = job.model.manifest
        now = number * manifest.horizon + manifest.context
        known, future = now - manifest.context, now + manifest.horizon
        feeds[HISTORY_CALENDAR] = np.ascontiguousarray(job.calendar[rows, known:now])
        feeds[FUTURE_CALENDAR] = np.ascontiguousarray(job.calendar[rows, now:future])
    return feeds
