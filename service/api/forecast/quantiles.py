"""The quantiles of a job's forecasts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.recalibration import stride_of
from foretell.service.api.forecast.job import PAST, Job
from foretell.service.arrays import FORECAST, Arrays

Floats = NDArray[np.float32]


def quantiles_of(job: Job, outputs: Arrays) -> Floats:
    """Quantiles `[levels, windows, horizon, channels]`.

    Args:
        job: The request, which asks for some.
        outputs: `[windows, …]` by output name.
    """
    plan, intervals, past = job.plan, job.model.intervals, job.past
    forecast = outputs[FORECAST][:, : plan.horizon]
    if past is None:
        return intervals.quantiles(job.history, forecast, plan.quantiles)
    errors = intervals.errors(past.history, outputs[PAST][:, : plan.horizon], past.future)
    return intervals.corrected(
        job.history,
        forecast,
        plan.quantiles,
        [errors[span] for span in past.spans],
        stride_of(plan.horizon),
    )
