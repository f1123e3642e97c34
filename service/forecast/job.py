"""A request as it is run: its histories in batch arrays, and the runs that its horizon takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from sys import getsizeof

import numpy as np
from numpy.typing import NDArray

from foretell.service.arrays import (
    FORECAST,
    FUTURE_CALENDAR,
    HISTORY,
    HISTORY_CALENDAR,
    MARGIN,
    Arrays,
)
from foretell.service.engine.registry import Model, Pending
from foretell.service.errors import InvalidInputError, ServiceError
from foretell.service.forecast.inputs import Inputs, Series
from foretell.service.forecast.options import FORECASTING, Operation, Plan
from foretell.service.forecast.origins import Past
from foretell.service.forecast.pieces import echoed
from foretell.service.forecast.requests import BacktestEnvelope, Envelope
from foretell.service.forecast.warnings import Notice, ignored_fields, notice
from foretell.service.settings import Settings
from foretell.service.validation import UnknownFields


@dataclass(slots=True)
class Job:
    """A request, checked.

    Attributes:
        model: Who forecasts.
        plan: What of every input.
        entries: For every input what was read, or why it could not be; none of what is forecast
            again.
        history: `[windows, context, channels]`, a window for every input that was read; NaN where a
            value is missing, of models that read gaps.
        calendar: `[windows, context + passes * horizon, features]`, if the model reads them: of
            the history's steps and of all that follow.
        metadata: To be echoed, as JSON.
        notices: What the answer is to warn of, as far as the request tells.
        past: What is forecast again, if anything.
    """

    model: Model
    plan: Plan
    entries: list[Series | ServiceError]
    history: NDArray[np.float32]
    calendar: NDArray[np.float32] | None
    metadata: bytes | None
    notices: list[Notice] = field(default_factory=list)
    past: Past | None = None

    @property
    def echoed(self) -> int:
        """About how many bytes of the request it holds to be echoed."""
        names = [entry.name for entry in self.entries if isinstance(entry, Series)]
        return len(self.metadata or b"") + sum(map(getsizeof, names))

    def entry_of(self, row: int) -> tuple[int, Series]:
        """Whose window it is, and where among the inputs."""
        for index, entry in enumerate(self.entries):
            if isinstance(entry, Series) and entry.row == row:
                return index, entry
        raise IndexError(row)


def decode(
    envelope: Envelope | BacktestEnvelope,
    ignored: UnknownFields,
    model: Model,
    settings: Settings,
    task: Operation = FORECASTING,
) -> Job:
    """Read the rest of a request.

    Args:
        envelope: The request.
        ignored: Names in it that nobody reads; takes those of its inputs.
        model: Who forecasts.
        settings: Limits.
        task: What it asks for.

    Raises:
        InvalidInputError: the request does not fit the model, or none of its inputs does;
            `NotSupportedError` likewise.
    """
    count = len(envelope.inputs)
    if count > settings.max_inputs:
        raise InvalidInputError(
            f"expected at most {settings.max_inputs} inputs, got {count}", param="inputs"
        )
    wanted = task.plan(envelope.options, count, model, settings)
    metadata = None if envelope.metadata is None else echoed(envelope.metadata)
    inputs = Inputs(model.manifest, wanted, count, ignored, task.names)
    entries, history, calendar = inputs.read(envelope.inputs)
    if not len(history):
        raise next(entry for entry in entries if isinstance(entry, ServiceError))
    notices = ignored_fields(ignored) if ignored else []
    past = None if wanted.rolling is None else inputs.past()
    return Job(model, wanted, entries, history, calendar, metadata, notices, past)


def warn(job: Job, far: list[Notice] | None) -> list[Notice]:
    """What the answer warns of.

    Args:
        job: The request.
        far: What is `outside` of the training's range.
    """
    plan, found = job.plan, job.notices + (far or [])
    if plan.passes > 1:
        own = job.model.manifest.horizon
        text = f"the steps from {own} on, counted from 0, are forecast from forecasts"
        found.append(notice("rolled", text, "options.horizon"))
    if plan.missing != "error":
        series = [entry for entry in job.entries if isinstance(entry, Series)]
        if count := sum([sum(entry.filled.values()) for entry in series]):
            found.append(gaps(count, plan))
    return found


def gaps(count: int, plan: Plan) -> Notice:
    """What became of so many missing values."""
    done = "left out" if plan.of_gaps == "masked" else "filled in"
    text = f"{count} missing values of what the model read were {done} ({plan.missing})"
    return notice(plan.of_gaps, text, "options.missing")


# Forecasts of what is known, among the outputs of graphs.
PAST = "past"


def again(job: Job, past: Past) -> Job:
    """The forecasts of what is known already, as a job."""
    wanted = replace(job.plan, attention=None)
    return Job(job.model, wanted, [], past.history, past.calendar, None)


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
        attention of the first pass. Of a job with a past, the forecasts of that are `PAST`.

    Raises:
        ServiceError: as `Model.submit`, what it returns and `wait`.
    """
    if job.past is not None:
        return await _run_both(job, job.past, deadline, wait)
    attention = () if job.plan.attention is None else job.plan.attention.outputs
    feeds = _feeds(job, 0, job.history, slice(None))
    outputs = await wait(job.model.submit(feeds, attention=attention, deadline=deadline))
    if job.plan.passes == 1:
        return outputs
    return await _roll(job, outputs, deadline, wait)


async def _run_both(job: Job, past: Past, deadline: float, wait: Wait) -> Arrays:
    """Forecast what comes and what is known side by side: they share batches."""
    jobs = replace(job, past=None), again(job, past)
    runs = [asyncio.ensure_future(run(one, deadline, wait)) for one in jobs]
    try:
        outputs, known = await asyncio.gather(*runs)
    finally:
        for one in runs:
            one.cancel()
    return outputs | {PAST: known[FORECAST]}


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
        passed = forecast[:, : number * own]
        known = np.concatenate([job.history, passed], axis=1)
        # A history may be NaN where a value is missing.
        rows = np.flatnonzero(np.isfinite(passed).all(axis=(1, 2)))
        if not len(rows):
            break
        feeds = _feeds(job, number, known[rows, -context:], rows)
        # What was accepted is finished: no pass is refused because others wait.
        pending = job.model.submit(feeds, deadline=deadline, admitted=True)
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
