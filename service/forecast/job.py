"""A decoded request, and the runs of the model that its horizon needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import getsizeof
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.covariates import FUTURE_COVARIATES, HISTORY_COVARIATES, STATIC_COVARIATES
from foretell.service.arrays import (
    FORECAST,
    FUTURE_CALENDAR,
    HISTORY,
    HISTORY_CALENDAR,
    MARGIN,
    Arrays,
)
from foretell.service.engine.ipc import Remember
from foretell.service.engine.learned import Key, LedgerView, Offsets
from foretell.service.engine.registry import Model
from foretell.service.engine.run import Run
from foretell.service.errors import InvalidInputError, ServiceError
from foretell.service.forecast.importance import REPLACED, replaced, without_means
from foretell.service.forecast.inputs import read_inputs
from foretell.service.forecast.metadata import echoed
from foretell.service.forecast.options import FORECASTING, Operation, Options, check_answer
from foretell.service.forecast.origins import BacktestWindows, window_bytes
from foretell.service.forecast.record import record, recording_work
from foretell.service.forecast.requests import BacktestEnvelope, Envelope
from foretell.service.forecast.scenarios import count_forecasts, count_windows, expand
from foretell.service.forecast.series import Series
from foretell.service.forecast.warnings import AnswerWarning, unknown_fields
from foretell.service.settings import Settings
from foretell.service.validation import UnknownFields, is_storable

# The forecasts of backtest windows, among the outputs of graphs.
PAST = "past"
Wait = Callable[[Run], Awaitable[Arrays]]


@dataclass(slots=True)
class Job:
    """A decoded request for forecasts.

    Attributes:
        entries: Every input, or its error; empty for a job of backtest windows.
        history: `[windows, context, channels]`, a window for every input without an error, or for
            each of its scenarios; NaN where a value is missing, for models that read gaps.
        calendar: `[windows, context + passes * horizon, features]`, of the history's and all later
            steps; None if the model reads no calendar.
        metadata: JSON to echo.
        past: Backtest windows to forecast as well, if any.
        table: Columns that the answer takes over from a request in Arrow's format.
        covariates: `[windows, context + passes * horizon, future]`, codes of future covariates;
            None if the model reads none.
        static: `[windows, static]`, likewise.
        replaced: Windows with replaced channels and covariates to forecast as well, if any.
        identifier: Id of the answer, once it is written.
        quantiles: `[levels, windows, horizon, targets]`, once they are known; None without any.
        ledger: The server's ledger, as this request sees it; None without one.
        storable: Inputs that a ledger can keep, with their places; empty without a ledger.
        learned: Learned offsets of each window with their key, or None for the bundle's, once they
            are known.
    """

    model: Model
    options: Options
    entries: list[Series | ServiceError]
    history: NDArray[np.float32]
    calendar: NDArray[np.float32] | None
    metadata: bytes | None
    warnings: list[AnswerWarning] = field(default_factory=list)
    past: BacktestWindows | None = None
    table: object | None = None
    covariates: NDArray[np.float32] | None = None
    static: NDArray[np.float32] | None = None
    replaced: Job | None = None
    identifier: str = ""
    quantiles: NDArray[np.float32] | None = None
    ledger: LedgerView | None = None
    storable: list[tuple[int, Series]] = field(default_factory=list)
    learned: Sequence[tuple[Offsets, Key] | None] = ()
    windows: int = field(init=False)
    held: int = field(init=False)
    # These requests have their timeout in a header, and no coverage.
    timeout: ClassVar[float | None] = None
    coverage: ClassVar[Mapping[float, tuple[int, int]]] = MappingProxyType({})

    def __post_init__(self) -> None:
        self.windows = len(self.history) + (0 if self.past is None else len(self.past))
        self.windows += 0 if self.replaced is None else self.replaced.windows
        size = len(self.metadata or b"")
        for entry in self.entries:
            if isinstance(entry, Series):
                size += getsizeof(entry.name) + getsizeof(entry.filled)
                for scenario in entry.scenarios:
                    size += getsizeof(scenario.name) + getsizeof(scenario.filled)
        self.held = 2 * size

    def is_kept(self, series: Series) -> bool:
        """Whether the ledger takes the forecast of a series."""
        return self.ledger is not None and self.ledger.takes and self._may_keep(series)

    def set_ledger(self, ledger: LedgerView) -> int:
        self.ledger = ledger
        self.storable = [
            (index, each)
            for index, each in enumerate(self.entries)
            if isinstance(each, Series) and self._may_keep(each)
        ]
        return len(self.storable)

    def refuse(self, index: int) -> None:
        """Keep no forecast of an input, whose client gets an error in its place."""
        self.storable = [each for each in self.storable if each[0] != index]

    def _may_keep(self, series: Series) -> bool:
        """Whether a series has what the ledger needs: a given name that it can store, and times."""
        is_known = series.is_named and series.timeline is not None
        return is_known and self.options.ledger and is_storable(series.name)

    @property
    def recording_work(self) -> int:
        return recording_work(self)

    def record(self, outputs: Arrays) -> tuple[Remember, Arrays] | None:
        return record(self, outputs)

    def entry_of(self, row: int) -> tuple[int, Series]:
        """The index and the input of a window."""
        for index, entry in enumerate(self.entries):
            if isinstance(entry, Series) and entry.row <= row < entry.row + entry.windows:
                return index, entry
        raise IndexError(row)

    def place_of(self, row: int) -> str:
        """The place in the request of a window."""
        index, series = self.entry_of(row)
        return series.place(index, row - series.row)

    @property
    def own_histories(self) -> NDArray[np.intp]:
        """The windows of different inputs, `[inputs]`: scenarios share their history."""
        rows = [entry.row for entry in self.entries if isinstance(entry, Series)]
        return np.array(rows, np.intp)

    def of_past(self, past: BacktestWindows) -> Job:
        options = replace(self.options, attention=None)
        job = Job(self.model, options, [], past.history, past.calendar, None)
        job.covariates, job.static = past.covariates, past.static
        return job

    def run(self, deadline: float, wait: Wait) -> Awaitable[Arrays]:
        """Submit the first pass, and forecast all steps.

        Later passes read earlier forecasts as history; a client would get the same values from
        requests of its own. `wait` waits for a pass; it raises if the client disconnects or the
        deadline of all passes has passed.

        Returns:
            `[windows, …]` by output name: the forecast of all passes `[windows, steps, channels]`,
            NaN after a pass that was not finite; the smallest margin; and the attention of the
            first pass. The forecasts of backtest windows are `PAST`, those of replaced windows
            `REPLACED`.
        """
        beside = {} if self.past is None else {PAST: self.of_past(self.past)}
        if self.replaced is not None:
            beside[REPLACED] = self.replaced
        if beside:
            return self._run_beside(beside, deadline, wait)
        attention = () if self.options.attention is None else self.options.attention.outputs
        feeds = self._feeds(0, self.history, slice(None))
        first = wait(self.model.submit(feeds, attention=attention, deadline=deadline))
        if self.options.passes == 1:
            return first
        return self._run_later_passes(first, deadline, wait)

    async def _run_beside(self, others: dict[str, Job], deadline: float, wait: Wait) -> Arrays:
        """Forecast the request and other windows side by side: they share batches."""

        async def forecast(job: Job) -> Arrays:
            return await job.run(deadline, wait)

        jobs = replace(self, past=None, replaced=None), *others.values()
        runs = [asyncio.ensure_future(forecast(job)) for job in jobs]
        try:
            outputs, *further = await asyncio.gather(*runs)
        finally:
            for run in runs:
                run.cancel()
        return outputs | {name: each[FORECAST] for name, each in zip(others, further, strict=True)}

    async def _run_later_passes(
        self, first_run: Awaitable[Arrays], deadline: float, wait: Wait
    ) -> Arrays:
        first, horizon = await first_run, self.model.manifest.horizon
        context = self.history.shape[1]
        windows, _, channels = first[FORECAST].shape
        forecast = np.full((windows, self.options.passes * horizon, channels), np.nan, np.float32)
        forecast[:, :horizon] = first[FORECAST]
        outputs = first | {FORECAST: forecast}
        if MARGIN in first:
            outputs[MARGIN] = first[MARGIN].copy()
        for number in range(1, self.options.passes):
            passed = forecast[:, : number * horizon]
            steps = np.concatenate([self.history, passed], axis=1)
            # A history may be NaN where a value is missing.
            rows = np.flatnonzero(np.isfinite(passed).all(axis=(1, 2)))
            if not len(rows):
                break
            feeds = self._feeds(number, steps[rows, -context:], rows)
            # An accepted request is finished: a full queue refuses no later pass.
            later = await wait(self.model.submit(feeds, deadline=deadline, admitted=True))
            forecast[rows, number * horizon : (number + 1) * horizon] = later[FORECAST]
            if MARGIN in later:
                outputs[MARGIN][rows] = np.minimum(outputs[MARGIN][rows], later[MARGIN])
        return outputs

    def _feeds(
        self, number: int, history: NDArray[np.float32], rows: slice | NDArray[np.int64]
    ) -> Arrays:
        """The inputs of a pass over some windows with the given history."""
        feeds: Arrays = {HISTORY: history}
        manifest = self.model.manifest
        now = number * manifest.horizon + manifest.context
        first, end = now - manifest.context, now + manifest.horizon
        for before, after, steps in (
            (HISTORY_CALENDAR, FUTURE_CALENDAR, self.calendar),
            (HISTORY_COVARIATES, FUTURE_COVARIATES, self.covariates),
        ):
            if steps is not None:
                feeds[before] = np.ascontiguousarray(steps[rows, first:now])
                feeds[after] = np.ascontiguousarray(steps[rows, now:end])
        if self.static is not None:
            feeds[STATIC_COVARIATES] = self.static[rows]
        return feeds


def decode(
    envelope: Envelope | BacktestEnvelope,
    ignored: UnknownFields,
    model: Model,
    settings: Settings,
    operation: Operation = FORECASTING,
) -> Job:
    """Read the inputs and options of a request; unknown fields of inputs are added to `ignored`."""
    count = count_windows(envelope.inputs)
    if count > settings.max_inputs:
        scenarios = "" if count == len(envelope.inputs) else ", one for each scenario"
        raise InvalidInputError(
            f"expected at most {settings.max_inputs} inputs{scenarios}, got {count}", param="inputs"
        )
    options = operation.read_options(envelope.options, count, model, settings)
    layers = 1 + len(options.quantiles)
    written = count_forecasts(envelope.inputs, layers)
    # Only scenarios have more than their layers.
    if written > count * layers:
        check_answer(written * options.horizon * len(model.manifest.targets), settings)
        most = settings.max_queue_bytes // window_bytes(model.manifest, options.passes)
        if count > most:
            raise InvalidInputError(
                f"expected at most {most} scenarios in all (max_queue_bytes), got {count}",
                param="inputs",
            )
    metadata = None if envelope.metadata is None else echoed(envelope.metadata)
    rows = expand(read_inputs(envelope.inputs, model.manifest, options, operation.names, ignored))
    if not len(rows.history):
        raise next(entry for entry in rows.entries if isinstance(entry, ServiceError))
    job = Job(
        model,
        options,
        rows.entries,
        rows.history,
        rows.calendar,
        metadata,
        unknown_fields(ignored.values()),
        rows.past,
        covariates=rows.covariates,
        static=rows.static,
    )
    if not options.importance:
        return job
    job.warnings += without_means(model.manifest)
    return replace(job, replaced=replaced(job, settings))
