"""Windows of a chunk, checked as requests are.

Most series are complete and regular; they are checked all at once. The others are read as requests,
which report errors or fill in missing values.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretell.batch.chunks import Chunk
from foretell.batch.texts import WRONG
from foretell.bundle.covariates import NO_COVARIATES, Covariates
from foretell.bundle.manifest import Manifest
from foretell.service.engine.registry import Model
from foretell.service.errors import InvalidInputError, ServiceError
from foretell.service.forecast.columns import ID, TIME, Times, moments_of, read_times
from foretell.service.forecast.options import FORECASTING, Options
from foretell.service.forecast.requests import ForecastOptions
from foretell.service.forecast.table import read_request
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
    """Windows of the series to forecast.

    Attributes:
        series: Numbers of the series in the chunk, ascending `[windows]`.
        history: Values in the user's units `[windows, context, channels]`; finite, or NaN for gaps
            if the model reads gaps.
        calendar: Calendar features `[windows, context + passes * horizon, features]`, if the model
            reads them.
        covariates: Codes of future covariates `[windows, context + passes * horizon, future]`,
            likewise.
        static: Codes of static covariates `[windows, static]`, likewise.
        moments: Times of the forecast steps for the column of times `[windows, horizon]`; None in
            tables without times.
    """

    series: NDArray[np.int64]
    history: NDArray[np.float32]
    calendar: NDArray[np.float32] | None
    moments: Timestamps | None
    covariates: NDArray[np.float32] | None = None
    static: NDArray[np.float32] | None = None

    def of(self, rows: NDArray[Any] | slice) -> Windows:
        """Windows at these rows."""
        parts: list[Any] = [None if part is None else part[rows] for part in self]
        return Windows(*parts)


class Rejected(NamedTuple):
    """A series without a forecast.

    Attributes:
        series: Number of the series in the chunk.
        reason: Reason for the rejection.
        column: Column of the error by our name, if there is one.
        row: Row of the error in the chunk; None for the first row of the series.
    """

    series: int
    reason: str
    column: str | None = None
    row: int | None = None


class Reader:
    """Reads chunks for a model, with the given and the checked options."""

    def __init__(
        self, model: Model, options: ForecastOptions, settings: Settings, checked: Options
    ) -> None:
        self._model = model
        self._options = options
        self._settings = settings
        self._checked = checked
        self._microseconds = _microseconds(model.manifest)
        known = model.manifest.covariates or NO_COVARIATES
        self._has_covariates = known != Covariates()

    def read(self, chunk: Chunk) -> tuple[Windows, list[Rejected]]:
        """Read the windows and the rejected series of a chunk.

        Raises:
            InvalidInputError: a column has a wrong type.
        """
        found = [self._regular(chunk)]
        rejected: list[Rejected] = []
        others = np.setdiff1d(np.arange(len(chunk.begins)), found[0].series, assume_unique=True)
        if WRONG in chunk.table.column_names:
            chunk, others = _without_wrong(chunk, others, rejected)
        if len(others):
            self._one_by_one(chunk, others, found, rejected)
        return _joined(found), rejected

    def _regular(self, chunk: Chunk) -> Windows:
        """Windows of complete and regular series."""
        manifest = self._model.manifest
        context, channels = manifest.context, manifest.channels
        series = np.flatnonzero(chunk.ends - chunk.begins >= context)
        ends = chunk.ends[series]
        history = np.empty((len(series), context, len(channels)), np.float32)
        none = Windows(series, history, None, _NO_TIMES).of(slice(0))
        if self._has_covariates:
            # They are read with each series by itself.
            return none
        try:
            times = read_times(chunk.table, manifest.step)
        except InvalidInputError:
            # Reading each series by itself finds the one with the wrong time.
            return none
        for column, name in enumerate(channels):
            values = chunk.table.column(name).chunk(0).to_numpy(zero_copy_only=False)
            with np.errstate(over="ignore", invalid="ignore"):
                history[:, :, column] = _latest(values, ends, context)
        is_good = self._are_good(history)
        if times is None:
            return Windows(series, history, None, None).of(_some(is_good))
        clock = times.clock
        by_clock = isinstance(clock, FixedClock) or (isinstance(clock, ZoneClock) and clock.in_utc)
        if not (self._microseconds and by_clock):
            return none
        steps = _latest(times.steps.view(np.int64), ends, context)
        is_good &= _follow(steps, self._microseconds)
        if not is_good.any():
            return none
        good = _some(is_good)
        try:
            calendar = self._calendar(steps[good, -1], times)
        except TimestampError:
            # Reading each series by itself finds the one out of range.
            return none
        moments = self._after(steps[good, -1], 1, self._checked.horizon)
        if isinstance(clock, FixedClock) and clock.offset:
            moments = moments - np.timedelta64(clock.offset)
        return Windows(series[good], history[good], calendar, moments)

    def _are_good(self, history: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Mask of the windows that the model can read without filling."""
        if self._checked.missing != "mask":
            return np.asarray(np.isfinite(history).all(axis=(1, 2)))
        needed = history[:, -self._model.manifest.needed_steps("mask") :]
        hollow = np.asarray(np.isnan(needed).all(axis=1)).any(axis=1)
        return np.asarray(~hollow & ~np.isinf(history).any(axis=(1, 2)))

    def _calendar(self, last: NDArray[np.int64], times: Times) -> NDArray[np.float32] | None:
        """Calendar features of histories with these last times; equal times share features."""
        manifest, passes = self._model.manifest, self._checked.passes
        ends, which = np.unique(last, return_inverse=True)
        steps = self._after(ends, 1 - manifest.context, passes * manifest.horizon)
        walls = steps.ravel()
        check_years(walls)
        if isinstance(times.clock, ZoneClock):
            walls = walls + offsets_at(walls, times.clock.zone)
        if manifest.calendar is None:
            return None
        return manifest.calendar.encode(walls).reshape(*steps.shape, -1)[which]

    def _after(self, last: NDArray[np.int64], first: int, end: int) -> Timestamps:
        """Times of the steps `first` to `end` after each time `[times, end - first + 1]`."""
        found = last[:, None] + self._microseconds * np.arange(first, end + 1)
        return found.view("M8[us]")

    def _one_by_one(
        self,
        chunk: Chunk,
        series: NDArray[np.int64],
        found: list[Windows],
        rejected: list[Rejected],
    ) -> None:
        """Read series as requests are read, and append them to `found` or `rejected`."""
        lengths = chunk.ends[series] - chunk.begins[series]
        every = np.concatenate([np.arange(chunk.begins[one], chunk.ends[one]) for one in series])
        names = chunk.names.take(pa.array(np.repeat(series, lengths)))
        table = chunk.table.take(pa.array(every)).append_column(ID, names)
        try:
            job, _, kind = read_request(
                table, FORECASTING, self._options, self._model, self._settings
            )
        except InvalidInputError as error:
            # An error of one series fails the whole request; halving finds that series.
            if len(series) == 1:
                rejected.append(_rejected(int(series[0]), error, every))
                return
            for half in np.array_split(series, 2):
                self._one_by_one(chunk, half, found, rejected)
            return
        good: list[int] = []
        moments: list[Timestamps] = []
        for number, entry in zip(series.tolist(), job.entries, strict=True):
            if isinstance(entry, ServiceError):
                rejected.append(_rejected(number, entry, every))
                continue
            good.append(number)
            if entry.timeline is not None and kind is not None:
                moments.append(moments_of(entry.timeline, self._checked.horizon, kind))
        if good:
            stacked = np.stack(moments) if moments else None
            parts = job.history, job.calendar, stacked, job.covariates, job.static
            found.append(Windows(np.array(good), *parts))


def _microseconds(manifest: Manifest) -> int:
    """Microseconds of a step of a model; 0 if steps differ in length."""
    frequency = manifest.step
    if frequency.unit not in MICROSECONDS_IN or frequency.anchor is not None:
        return 0
    first = frequency.steps_from(np.datetime64(0, "us"), 2)
    return int((first[1] - first[0]).astype(np.int64))


def _follow(steps: NDArray[np.int64], microseconds: int) -> NDArray[np.bool_]:
    """Whether the times of each series `[series, rows]` are one step apart."""
    if len(steps) and (steps == steps[0]).all():
        # In most tables all series have the same times; checking one is enough.
        steps = steps[:1]
    even = (np.diff(steps, axis=1) == microseconds).all(axis=1)
    return np.asarray(even & (steps[:, -1] != _NOT_A_TIME))


def _without_wrong(
    chunk: Chunk, series: NDArray[np.int64], rejected: list[Rejected]
) -> tuple[Chunk, NDArray[np.int64]]:
    """A chunk without the column `WRONG`, and the series without wrong cells."""
    wrong = chunk.table.column(WRONG)
    places = np.flatnonzero(wrong.is_valid().to_numpy())
    good = []
    for number in series.tolist():
        first = places[np.searchsorted(places, chunk.begins[number]) :][:1].tolist()
        if not first or first[0] >= chunk.ends[number]:
            good.append(number)
            continue
        cell = wrong[first[0]].as_py()
        kind = "a time like those of other rows" if cell["column"] == TIME else "a number"
        if pa.types.is_boolean(chunk.table.schema.field(cell["column"]).type):
            kind = "true or false"
        reason = f"expected {kind}, got {shown(cell['text'])}"
        rejected.append(Rejected(number, reason, cell["column"], first[0]))
    without = chunk._replace(table=chunk.table.drop_columns([WRONG]))
    return without, np.array(good, np.int64)


def _latest(values: NDArray[Any], ends: NDArray[np.int64], count: int) -> NDArray[Any]:
    """The last `count` values before each end `[series, count]`."""
    if len(values) == len(ends) * count:
        return values.reshape(-1, count)
    return np.asarray(values[ends[:, None] + np.arange(-count, 0)])


def _some(chosen: NDArray[np.bool_]) -> NDArray[np.bool_] | slice:
    """An index of the chosen rows; a slice, which copies nothing, if all are chosen."""
    return slice(None) if chosen.all() else chosen


def _joined(found: list[Windows]) -> Windows:
    """All windows, in the order of their series."""
    some = [each for each in found if len(each.series)]
    if len(some) < 2:
        return some[0] if some else found[0]
    parts: list[Any] = []
    for fields in zip(*some, strict=True):
        there = [part for part in fields if part is not None]
        parts.append(np.concatenate(there) if there else None)
    joined = Windows(*parts)
    return joined.of(np.argsort(joined.series))


def _rejected(series: int, error: ServiceError, rows: NDArray[np.int64]) -> Rejected:
    """A rejected series; `rows` are the rows of the chunk that the request contained."""
    place = _PLACE.fullmatch(error.param or "")
    if place is None:
        return Rejected(series, error.message, error.param)
    return Rejected(series, error.message, place[1], int(rows[int(place[2])]))
