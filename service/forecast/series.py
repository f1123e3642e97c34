"""The common reader of series: their values, gaps and times become rows of batch arrays.

The reader of a format (`inputs` for JSON, `table` for Arrow) converts each series to values `[time,
channels]` and times. All formats share the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.covariates import NO_COVARIATES
from foretell.bundle.manifest import Manifest
from foretell.service.errors import InvalidInputError, ServiceError, kept
from foretell.service.forecast.codes import (
    Future,
    PastColumn,
    SeriesCovariates,
    known_before,
)
from foretell.service.forecast.codes import fill as fill_codes
from foretell.service.forecast.options import Options
from foretell.service.forecast.origins import BacktestWindows, WindowCutter
from foretell.service.forecast.times import Timeline
from foretell.service.forecast.values import MOST_KEPT
from foretell.timeaxis.gaps import Missing
from foretell.timeaxis.gaps import fill as fill_gaps
from foretell.timeaxis.timestamps import check_years

Values = NDArray[np.float64]
# Values for which numpy keeps the lock: `NPY_BEGIN_THREADS_THRESHOLDED` in its ndarraytypes.h.
_KEPT = 500
Filled = dict[str, int]
_Read = TypeVar("_Read")


class Path(Protocol):
    """Paths in a request: of a series, or of one of its values."""

    def __call__(self, row: int | None = None, column: int = 0) -> str:
        """The path of the series, or of its value at a row and column."""


@dataclass(slots=True)
class Series:
    """A series that will be forecast.

    Attributes:
        row: The row of its window in the batch arrays.
        univariate: Whether it and its answer are `[time]`.
        columns: Model's channel of each of its columns, if not in the model's order.
        filled: Number of filled or masked missing values in its first window, by channel or
            covariate.
        scenarios: Scenarios of its windows, from `row` on; without any it has one window.
        gaps: Number of missing values that its windows read, each counted once.
        is_named: Whether the request gave its name.
        holes: `[context, channels]`, where its window was filled; None if nowhere.
    """

    name: str
    row: int
    univariate: bool
    columns: list[int] | None
    timeline: Timeline | None
    filled: Filled
    scenarios: list[Future] = field(default_factory=list)
    gaps: int = 0
    is_named: bool = False
    holes: NDArray[np.bool_] | None = field(default=None, compare=False)

    @property
    def windows(self) -> int:
        return len(self.scenarios) or 1

    def add_covariates(self, covariates: SeriesCovariates) -> None:
        """Take over the scenarios, and the counts of filled covariates."""
        self.gaps += covariates.gaps
        self.filled, self.scenarios = self.filled | covariates.filled, covariates.scenarios
        for scenario in self.scenarios:
            scenario.filled = self.filled | scenario.filled
        if self.scenarios:
            self.filled = self.scenarios[0].filled

    def place(self, index: int, number: int) -> str:
        """The place in the request of the window of a scenario's number, by the input's index."""
        return f"inputs[{index}]." + (f"scenarios[{number}]" if number else "series")


class SeriesRows(NamedTuple):
    """The series of a request, in batch arrays.

    Attributes:
        entries: Each series, or its error.
        history: `[windows, context, channels]`, of the valid series.
        calendar: `[windows, context + passes * horizon, features]`, of the history's and all later
            steps; None if the model reads no calendar.
        past: Windows of rolling origins, if requested and a series is valid.
        covariates: `[windows, context + passes * horizon, future]`, codes of future covariates;
            None if the model reads none, or for a backtest.
        static: `[windows, static]`, likewise.
    """

    entries: list[Series | ServiceError]
    history: NDArray[np.float32]
    calendar: NDArray[np.float32] | None
    past: BacktestWindows | None
    covariates: NDArray[np.float32] | None
    static: NDArray[np.float32] | None


def read_each(read_one: Callable[[int], _Read], count: int) -> list[_Read | ServiceError]:
    """Read some series; the error of one is its entry."""
    entries: list[_Read | ServiceError] = []
    for index in range(count):
        try:
            entries.append(read_one(index))
        except ServiceError as error:
            entries.append(kept(error))
    return entries


class SeriesReader:
    """Reads the `count` series of a request into batch arrays."""

    def __init__(self, manifest: Manifest, options: Options, count: int) -> None:
        self._manifest = manifest
        self._options = options
        self._count = count
        self._windows = 0
        self._steps = manifest.context + options.passes * manifest.horizon
        self._history = np.empty((count, manifest.context, len(manifest.channels)), np.float32)
        self._calendar: NDArray[np.float32] | None = None
        if manifest.calendar is not None:
            features = len(manifest.calendar.features)
            self._calendar = np.empty((count, self._steps, features), np.float32)
        known = manifest.covariates or NO_COVARIATES
        self._covariates = np.empty((count, self._steps, len(known.future)), np.float32)
        self._static = np.empty((count, len(known.static)), np.float32)
        # Row of the first series by the id of its timeline, which series may share.
        self._timelines: dict[int, int] = {}
        self._cutter: WindowCutter | None = None
        if options.rolling is not None:
            self._cutter = WindowCutter(
                manifest, options.horizon, self._steps, options.rolling, options.missing
            )

    def read(self, read_one: Callable[[int], Series]) -> SeriesRows:
        """Read all series by `read_one`, which calls `add`; the error of one is its entry."""
        entries = read_each(read_one, self._count)
        windows = self._windows
        calendar = None if self._calendar is None else self._calendar[:windows]
        past = self._cutter.windows() if self._cutter is not None and windows else None
        # Windows of a backtest have their own.
        covariates, static = (
            each[:windows] if each.shape[-1] and not self._options.is_backtest else None
            for each in (self._covariates, self._static)
        )
        return SeriesRows(entries, self._history[:windows], calendar, past, covariates, static)

    def too_short(self, rows: int, path: Path) -> InvalidInputError:
        """The error of a series with fewer rows than the model's context."""
        return InvalidInputError(
            f"expected at least {self._manifest.context} rows, the model's context, got {rows}",
            param=path(),
        )

    def add(
        self,
        name: str,
        values: Values,
        timeline: Timeline | None,
        path: Path,
        *,
        covariates: SeriesCovariates | None = None,
        columns: list[int] | None = None,
        univariate: bool = False,
        gaps: bool = True,
    ) -> Series:
        """Read a series of checked length into the next row of the arrays.

        `values` are `[time, channels]`, finite in float32, or NaN where missing, as `gaps` allows.
        They have all channels except those of past booleans and categories in `covariates`.
        `columns` are the model's channels of their columns, and then of those, if not in the
        model's order. With `univariate` the answer is `[time]`. TimestampError: a time is outside
        the years 1 to 9999.
        """
        context = self._manifest.context
        past = [] if covariates is None else covariates.past
        own = self._without(past, columns)
        if covariates is not None:
            self._write_covariates(covariates)
        filled: Filled = {}
        known = values
        if gaps:
            known, filled = self._fill(values, own, path)
        window = self._history[self._windows]
        if own is None:
            assign(window, known[-context:])
        else:
            window[:, own] = known[-context:]
        for each in past:
            self._read_past(each, filled)
        if timeline is not None:
            self._read_times(timeline)
        if self._cutter is not None:
            # Each window is filled by itself, like a request of its own.
            self._cutter.add(values, own, timeline, path(), covariates)
        if timeline is not None:
            self._timelines.setdefault(id(timeline), self._windows)
        series = Series(name, self._windows, univariate, columns, timeline, filled)
        if filled:
            series.holes = np.zeros(window.shape, np.bool_)
            series.holes[:, slice(None) if own is None else own] = np.isnan(values[-context:])
        series.gaps = sum(filled.values())
        if covariates is not None:
            series.add_covariates(covariates)
        self._windows += 1
        return series

    def _without(self, past: list[PastColumn], columns: list[int] | None) -> list[int] | None:
        """The channels of a series' columns, besides those of some past covariates."""
        if not past:
            return columns
        taken = {channel for each in past for channel in each.channels}
        order = range(len(self._manifest.channels)) if columns is None else columns
        return [channel for channel in order if channel not in taken]

    def _fill(
        self, values: Values, channels: list[int] | None, path: Path
    ) -> tuple[Values, Filled]:
        manifest, missing = self._manifest, self._options.missing
        names: Sequence[str] = manifest.channels
        if channels is not None:
            names = [names[channel] for channel in channels]
        needed = manifest.needed_steps(missing)
        return fill(values, missing, manifest.context, names, path, needed)

    def _read_past(self, column: PastColumn, filled: Filled) -> None:
        """Write the channels of a past covariate, and count its gaps, which may be masked."""
        manifest, missing = self._manifest, self._options.missing
        first = len(column.codes) - manifest.context
        # All rows would take a number for each category.
        codes = column.codes[first:].copy()
        if count := int(np.isnan(codes).sum()):
            filled[column.covariate.name] = count
            if missing != "mask":
                fill_codes(column.covariate, codes, missing, known_before(column.codes, first))
            needed = manifest.needed_steps(missing)
            if np.isnan(codes[-needed:]).all():
                place = column.place(len(column.codes) - needed)
                raise _hollow(column.covariate.name, needed, manifest.context, place)
        self._history[self._windows][:, column.channels] = column.read(codes)

    def _write_covariates(self, covariates: SeriesCovariates) -> None:
        if not self._options.is_backtest:
            self._static[self._windows] = covariates.static
            if self._covariates.shape[-1]:
                assign(self._covariates[self._windows], covariates.future)

    def _read_times(self, timeline: Timeline) -> None:
        """Check the years of all times, and write the calendar features."""
        manifest, calendar = self._manifest, self._calendar
        if (same := self._timelines.get(id(timeline))) is not None:
            if calendar is not None:
                calendar[self._windows] = calendar[same]
        elif manifest.calendar is None and not timeline.clock.varies:
            # Times increase: if the last one is in range, so are the earlier ones.
            check_years(timeline.read(max(self._options.horizon, manifest.horizon) - 1, 1)[0])
        else:
            walls, _ = timeline.read(-manifest.context, self._steps)
            check_years(walls)
            if manifest.calendar is not None and calendar is not None:
                calendar[self._windows] = manifest.calendar.encode(walls)


def assign(target: NDArray[Any], values: NDArray[Any]) -> None:
    """Assign `[rows, columns]` to an array of the same shape."""
    # numpy releases the interpreter's lock for more than a few values. This keeps it for the few
    # thousand numbers of a request, as `ordinary` does.
    size = len(target)
    if target.size <= MOST_KEPT:
        size = max(1, _KEPT // target.shape[1])
    for start in range(0, len(target), size):
        target[start : start + size] = values[start : start + size]


def fill(
    values: Values,
    method: Missing,
    window: int,
    channels: Sequence[str],
    path: Callable[[int, int], str],
    needed: int | None = None,
) -> tuple[Values, Filled]:
    """Fill the gaps of the last `window` rows of `[time, channels]`; returns a copy, and counts.

    Counts are by channel. Earlier rows may provide values, and keep their gaps. With `mask` the
    window keeps its gaps: the model reads them. Each channel needs a value in the last `needed`
    rows, by default in the window.
    """
    missing = np.isnan(values)
    first, needed = len(values) - window, needed or window
    columns = np.flatnonzero(missing[first:].any(axis=0)).tolist()
    counts: Filled = {}
    if columns and method != "mask":
        values = values.copy()
    for column in columns:
        name = channels[column]
        holes = first + np.flatnonzero(missing[first:, column])
        if missing[-needed:, column].all():
            raise _hollow(name, needed, window, path(len(values) - needed, column))
        if method == "ffill" and missing[: holes[0], column].all():
            raise InvalidInputError(
                f"no value of {name!r} comes before it to carry forward",
                param=path(int(holes[0]), column),
            )
        if method != "mask":
            fill_gaps(values[:, column], holes, method)
        counts[name] = len(holes)
    return values, counts


def _hollow(name: str, needed: int, window: int, place: str) -> InvalidInputError:
    what = "the model's context" if needed == window else "by which the model scales it"
    return InvalidInputError(
        f"{name!r} has no value in the last {needed} rows, {what}", param=place
    )
