"""What of a chunk is to be forecast, checked as requests are.

Most series are whole and regular, and those are found for all at once. Whatever else is in a table
goes the way of requests, which tells what is wrong with it, or fills it in.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretell.batch.plan import starts_of
from foretell.batch.texts import WRONG
from foretell.bundle.manifest import Manifest
from foretell.service.engine.registry import Model
from foretell.service.errors import InvalidInputError, ServiceError
from foretell.service.forecast.options import FORECASTING, Options
from foretell.service.forecast.requests import ForecastOptions
from foretell.service.forecast.table import ID, TIME, Times, moments_of, read_request, read_times
from foretell.service.forecast.times import FixedClock, ZoneClock
from foretell.service.settings import Settings
from foretell.service.validation import shown
from foretell.timeaxis.errors import TimestampError
from foretell.timeaxis.frequency import MICROSECONDS_IN
from foretell.timeaxis.timestamps import Timestamps, check_years
from foretell.timeaxis.zones import offsets_at

_PLACE = re.compile(r"(.+)\[(\d+)\]", re.DOTALL)
_NOT_A_TIME = np.iinfo(np.int64).min
_NO_TIMES = np.empty((0, 0), "M8[us]")


class Windows(NamedTuple):
    """Series that are to be forecast.

    Attributes:
        series: `[windows]`, the rows of the chunk with which they begin, ascending.
        history: `[windows, context, channels]` in the user's units, finite, or NaN where a value is
            missing that the model is told of.
        calendar: `[windows, context + passes * horizon, features]`, of models that read them.
        moments: `[windows, horizon]`, when the forecast steps are, as the column of times has it;
            None in tables without times.
    """

    series: NDArray[np.int64]
    history: NDArray[np.float32]
    calendar: NDArray[np.float32] | None
    moments: Timestamps | None

    def of(self, rows: NDArray[Any] | slice) -> Windows:
        """Some of them."""
        moments = None if self.moments is None else self.moments[rows]
        calendar = None if self.calendar is None else self.calendar[rows]
        return Windows(self.series[rows], self.history[rows], calendar, moments)


class Rejected(NamedTuple):
    """A series that has no forecast.

    Attributes:
        series: The row of the chunk with which it begins.
        reason: Why.
        column: Where that shows, if anywhere: one of our names.
        row: The row of the chunk.
    """

    series: int
    reason: str
    column: str | None = None
    row: int | None = None


class Reader:
    """Reads chunks.

    Args:
        model: Who forecasts.
        options: What of every series.
        settings: Limits, of which none is met.
        checked: The options, checked.
    """

    def __init__(
        self, model: Model, options: ForecastOptions, settings: Settings, checked: Options
    ) -> None:
        self._model = model
        self._options = options
        self._settings = settings
        self._checked = checked
        self._steps = _Steps(model.manifest)

    def read(self, chunk: pa.Table) -> tuple[Windows, list[Rejected]]:
        """What of a chunk is to be forecast, and what is not.

        Args:
            chunk: Whole series, as `Rows.table` has them, in one piece of memory.

        Raises:
            InvalidInputError: a column is not of the type that it should be.
        """
        starts = starts_of(chunk.column(ID).chunk(0))
        ends = np.append(starts[1:], len(chunk))
        found = [self._regular(chunk, starts, ends)]
        others = ~np.isin(starts, found[0].series, assume_unique=True)
        rejected: list[Rejected] = []
        rows = [np.arange(*each) for each in zip(starts[others], ends[others], strict=True)]
        if WRONG in chunk.column_names:
            chunk, rows = _without_wrong(chunk, rows, rejected)
        if rows:
            self._one_by_one(chunk, rows, found, rejected)
        return _joined(found), rejected

    def _regular(
        self, chunk: pa.Table, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Windows:
        """The series with nothing to look into."""
        manifest = self._model.manifest
        context, channels = manifest.context, manifest.channels
        is_long = ends - starts >= context
        series, ends = starts[is_long], ends[is_long]
        history = np.empty((len(series), context, len(channels)), np.float32)
        none = Windows(series, history, None, _NO_TIMES).of(slice(0))
        try:
            times = read_times(chunk, manifest.step)
        except InvalidInputError:
            # Of a moment of whom, those who look at each of them tell.
            return none
        for column, name in enumerate(channels):
            values = chunk.column(name).chunk(0).to_numpy(zero_copy_only=False)
            with np.errstate(over="ignore", invalid="ignore"):
                history[:, :, column] = _latest(values, ends, context)
        is_good = self._are_good(history)
        if times is None:
            return Windows(series, history, None, None).of(_some(is_good))
        if not self._steps.are_even(times):
            return none
        steps = _latest(times.steps.view(np.int64), ends, context)
        is_good &= self._steps.follow(steps)
        if not is_good.any():
            return none
        good = _some(is_good)
        try:
            calendar = self._calendar(steps[good, -1], times)
        except TimestampError:
            # Likewise.
            return none
        moments = self._steps.after(steps[good, -1], 1, self._checked.horizon)
        if isinstance(times.clock, FixedClock) and times.clock.offset:
            moments = moments - np.timedelta64(times.clock.offset)
        return Windows(series[good], history[good], calendar, moments)

    def _are_good(self, history: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Which windows the model can read as they are."""
        if self._checked.missing != "mask":
            return np.asarray(np.isfinite(history).all(axis=(1, 2)))
        needed = history[:, -self._model.manifest.needed_steps("mask") :]
        hollow = np.asarray(np.isnan(needed).all(axis=1)).any(axis=1)
        return np.asarray(~hollow & ~np.isinf(history).any(axis=(1, 2)))

    def _calendar(self, last: NDArray[np.int64], times: Times) -> NDArray[np.float32] | None:
        """Features of histories that end there; those that end together have the same.

        Raises:
            TimestampError: a time lies outside the years that can be written.
        """
        manifest, passes = self._model.manifest, self._checked.passes
        ends, which = np.unique(last, return_inverse=True)
        steps = self._steps.after(ends, 1 - manifest.context, passes * manifest.horizon)
        walls = steps.ravel()
        check_years(walls)
        if isinstance(times.clock, ZoneClock):
            walls = walls + offsets_at(walls, times.clock.zone)
        if manifest.calendar is None:
            return None
        return manifest.calendar.encode(walls).reshape(*steps.shape, -1)[which]

    def _one_by_one(
        self,
        chunk: pa.Table,
        rows: list[NDArray[np.int64]],
        found: list[Windows],
        rejected: list[Rejected],
    ) -> None:
        """Read series as requests are read.

        Args:
            chunk: The chunk.
            rows: Of each of them.
            found: Takes those that are to be forecast.
            rejected: Takes those that are not.
        """
        every = np.concatenate(rows)
        table = chunk.take(pa.array(every))
        try:
            job, _, kind = read_request(
                table, FORECASTING, self._options, self._model, self._settings
            )
        except InvalidInputError as error:
            # Of one of them: requests have all or none of what is too large for their numbers.
            if len(rows) == 1:
                rejected.append(_rejected(int(every[0]), error, every))
                return
            for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                self._one_by_one(chunk, half, found, rejected)
            return
        good: list[int] = []
        moments: list[Timestamps] = []
        for at, entry in zip([int(own[0]) for own in rows], job.entries, strict=True):
            if isinstance(entry, ServiceError):
                rejected.append(_rejected(at, entry, every))
                continue
            good.append(at)
            if entry.timeline is not None and kind is not None:
                moments.append(moments_of(entry.timeline, self._checked.horizon, kind))
        if good:
            stacked = np.stack(moments) if moments else None
            found.append(Windows(np.array(good), job.history, job.calendar, stacked))


class _Steps:
    """The steps of a model, of which so many always take as long.

    Args:
        manifest: The model's.

    Attributes:
        microseconds: Of one step; 0 where they are not of one length.
    """

    def __init__(self, manifest: Manifest) -> None:
        frequency = manifest.step
        self.microseconds = 0
        if frequency.unit in MICROSECONDS_IN and frequency.anchor is None:
            first = frequency.steps_from(np.datetime64(0, "us"), 2)
            self.microseconds = int((first[1] - first[0]).astype(np.int64))

    def are_even(self, times: Times) -> bool:
        """Whether they are, by the clock of a table."""
        clock = times.clock
        by_clock = isinstance(clock, FixedClock) or (isinstance(clock, ZoneClock) and clock.in_utc)
        return bool(self.microseconds) and by_clock

    def follow(self, steps: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of the times `[series, rows]` is a step after the one before it."""
        if len(steps) and (steps == steps[0]).all():
            # As in most tables: it is enough to look at one of them.
            steps = steps[:1]
        even = (np.diff(steps, axis=1) == self.microseconds).all(axis=1)
        return np.asarray(even & (steps[:, -1] != _NOT_A_TIME))

    def after(self, last: NDArray[np.int64], first: int, end: int) -> Timestamps:
        """Steps `[times, end - first + 1]`, the `first`, … and `end` after each of some times."""
        found = last[:, None] + self.microseconds * np.arange(first, end + 1)
        return found.view("M8[us]")


def _without_wrong(
    chunk: pa.Table, rows: list[NDArray[np.int64]], rejected: list[Rejected]
) -> tuple[pa.Table, list[NDArray[np.int64]]]:
    """A chunk of texts without that column, and of some series those of which nothing is wrong.

    Args:
        chunk: The chunk.
        rows: Of each of them.
        rejected: Takes the others.
    """
    wrong = chunk.column(WRONG)
    places = np.flatnonzero(wrong.is_valid().to_numpy())
    good = []
    for own in rows:
        first = places[np.searchsorted(places, own[0]) :][:1]
        if not len(first) or first[0] > own[-1]:
            good.append(own)
            continue
        told = wrong[int(first[0])].as_py()
        kind = "a time like those of other rows" if told["column"] == TIME else "a number"
        reason = f"expected {kind}, got {shown(told['text'])}"
        rejected.append(Rejected(int(own[0]), reason, told["column"], int(first[0])))
    return chunk.drop_columns([WRONG]), good


def _latest(values: NDArray[Any], ends: NDArray[np.int64], count: int) -> NDArray[Any]:
    """The last values `[series, count]` before some rows."""
    if len(values) == len(ends) * count:
        return values.reshape(-1, count)
    return np.asarray(values[ends[:, None] + np.arange(-count, 0)])


def _some(chosen: NDArray[np.bool_]) -> NDArray[np.bool_] | slice:
    """An index of some rows, which copies nothing where they are all."""
    return slice(None) if chosen.all() else chosen


def _joined(found: list[Windows]) -> Windows:
    """All of them, in the order of their series."""
    some = [each for each in found if len(each.series)]
    if len(some) < 2:
        return some[0] if some else found[0]
    series = np.concatenate([each.series for each in some])
    history = np.concatenate([each.history for each in some])
    calendars = [each.calendar for each in some if each.calendar is not None]
    moments = [each.moments for each in some if each.moments is not None]
    joined = Windows(
        series,
        history,
        np.concatenate(calendars) if calendars else None,
        np.concatenate(moments) if moments else None,
    )
    return joined.of(np.argsort(series))


def _rejected(series: int, error: ServiceError, rows: NDArray[np.int64]) -> Rejected:
    """Where of a table an error is, as where of the chunk.

    Args:
        series: The row of the chunk with which it begins.
        error: It names a row of the table, or a column, or neither.
        rows: Of the chunk, that the table has.
    """
    place = _PLACE.fullmatch(error.param or "")
    if place is None:
        return Rejected(series, error.message, error.param)
    return Rejected(series, error.message, place[1], int(rows[int(place[2])]))
