"""Rolling origins: rows of a request are forecast again from the rows before them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.covariates import NO_COVARIATES
from foretell.bundle.manifest import Manifest
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.codes import PastColumn, SeriesCovariates
from foretell.service.forecast.filled import FilledRows
from foretell.service.forecast.times import Timeline
from foretell.service.settings import Settings
from foretell.timeaxis.errors import TimestampError
from foretell.timeaxis.gaps import Missing
from foretell.timeaxis.timestamps import check_years

Floats = NDArray[np.float32]
# The settings that limit the origins of a request.
LIMITS = "max_origins, max_queue, max_queue_bytes, max_answer_values"


@dataclass(frozen=True, slots=True)
class RollingOrigins:
    """The rows of a history that are forecast again."""

    # Rows from one origin to the next.
    stride: int
    # Fewest and most origins of a series, the latest.
    least: int
    most: int
    # Whether the request names the number of origins.
    is_explicit: bool = False


def window_bytes(manifest: Manifest, passes: int) -> int:
    """About the bytes of a window and of all that its passes read."""
    width, static = len(manifest.channels), 0
    if manifest.calendar is not None:
        width += len(manifest.calendar.features)
    if manifest.covariates is not None:
        width += len(manifest.covariates.future)
        static = len(manifest.covariates.static)
    steps = manifest.context + passes * manifest.horizon
    return np.dtype(np.float32).itemsize * (steps * width + static)


def max_origins(
    inputs: int,
    horizon: int,
    passes: int,
    quantiles: int,
    manifest: Manifest,
    settings: Settings,
    beside: int = 0,
) -> int:
    """Most origins of each of `inputs` series; `beside` counts its other windows in the queue."""
    values = horizon * len(manifest.targets) * (1 + quantiles)
    queued = (
        min(settings.max_queue, settings.max_queue_bytes // window_bytes(manifest, passes))
        // inputs
    )
    answered = min(settings.max_origins, settings.max_answer_values // values) // inputs
    return max(0, min(queued - beside, answered))


@dataclass(frozen=True, slots=True)
class BacktestWindows:
    """Windows with a known future, series by series, each from its oldest origin on."""

    # `[windows, context, channels]`.
    history: Floats
    # `[windows, context + passes * horizon, features]`, for models that read a calendar.
    calendar: Floats | None
    # `[windows, horizon, channels]`, the rows that follow; NaN where a value is missing, and for
    # past booleans and categories, which are not forecast.
    future: Floats
    # The windows of each valid series, and the row that each window forecasts first.
    spans: list[slice]
    origins: list[NDArray[np.int64]]
    # Number of origins over the limits.
    left_out: int
    # Number of missing values in the rows that the windows read.
    filled: int
    # `[windows, context + passes * horizon, future]` and `[windows, static]`, codes of covariates,
    # for models that read them.
    covariates: Floats | None
    static: Floats | None

    def __len__(self) -> int:
        return len(self.history)


class _Parts(NamedTuple):
    """The rows of a series: numbers, past booleans and categories, and future covariates."""

    series: FilledRows
    past: list[tuple[PastColumn, FilledRows]]
    future: FilledRows | None


@dataclass(slots=True)
class WindowCutter:
    """Cuts the windows of rolling origins out of histories.

    Gaps are only filled from the rows before each origin, those of future covariates from the rows
    up to the end of its window. The model reads calendar features for the `steps` of a window
    and its future.
    """

    manifest: Manifest
    horizon: int
    steps: int
    rolling: RollingOrigins
    missing: Missing
    _histories: list[Floats] = field(default_factory=list)
    _calendars: list[Floats] = field(default_factory=list)
    _covariates: list[Floats] = field(default_factory=list)
    _statics: list[Floats] = field(default_factory=list)
    _futures: list[Floats] = field(default_factory=list)
    _origins: list[NDArray[np.int64]] = field(default_factory=list)
    _left_out: int = 0
    _filled: int = 0

    def add(
        self,
        values: NDArray[np.float64],
        channels: list[int] | None,
        timeline: Timeline | None,
        path: str,
        covariates: SeriesCovariates | None = None,
    ) -> None:
        """Cut the windows of a series.

        `values` are `[rows, columns]`, NaN where one is missing. `channels` are the model's
        channels of their columns, if they are not all of them in order.
        """
        rolling, context, missing = self.rolling, self.manifest.context, self.missing
        last = len(values) - self.horizon
        parts = _Parts(FilledRows.of(values, missing), [], None)
        if covariates is not None:
            for each in covariates.past:
                coded = FilledRows.of(each.codes[:, None], missing, [each.covariate])
                parts.past.append((each, coded))
            if covariates.rows.shape[1]:
                of_future = (self.manifest.covariates or NO_COVARIATES).future
                future = FilledRows.of(covariates.rows, missing, of_future)
                parts = parts._replace(future=future)
                # The model reads all of its horizon.
                last = min(last, len(covariates.rows) + context - self.steps)
        every = np.arange(last, context - 1, -rolling.stride)[::-1]
        origins = self._sound(every, parts)
        if len(origins) < rolling.least:
            raise self._too_few(len(origins), len(every), len(values), last, path)
        left_out = max(0, len(origins) - rolling.most)
        origins = origins[left_out:]
        if timeline is not None:
            self._add_calendar(timeline, origins, len(values), path)
        self._left_out += left_out
        self._origins.append(origins)
        if covariates is not None:
            static = covariates.static.astype(np.float32)
            self._statics.append(np.tile(static, (len(origins), 1)))
        self._add(parts, origins, channels)

    def _add(self, parts: _Parts, origins: NDArray[np.int64], channels: list[int] | None) -> None:
        """Add the windows of origins, and count the gaps in the rows that they read."""
        starts, context = origins - self.manifest.context, self.manifest.context
        history = self._placed(parts.series.cut(starts, context), channels)
        self._filled += parts.series.gaps(starts, context)
        for column, rows in parts.past:
            # Expanded window by window: all rows would take a number for each category.
            history[..., column.channels] = column.read(rows.cut(starts, context)[..., 0])
            self._filled += rows.gaps(starts, context)
        self._histories.append(history)
        given = _cut(parts.series.given, origins, self.horizon)
        self._futures.append(self._placed(given, channels))
        if parts.future is not None:
            self._covariates.append(parts.future.cut(starts, self.steps))
            self._filled += parts.future.gaps(starts, self.steps)

    def _sound(self, origins: NDArray[np.int64], parts: _Parts) -> NDArray[np.int64]:
        """The origins with all needed values before them."""
        if not len(origins):
            return origins
        context, starts = self.manifest.context, origins - self.manifest.context
        # Each channel needs a value in the last of the rows that the model reads.
        needed = origins - self.manifest.needed_steps(self.missing)
        is_sound = parts.series.sound(starts, context, needed)
        # A boolean or a category may repeat a value of any earlier row.
        oldest = needed if self.missing == "mask" else 0
        for _, rows in parts.past:
            is_sound &= rows.sound(starts, context, oldest)
        if parts.future is not None:
            is_sound &= parts.future.sound(starts, self.steps, 0)
        return origins[is_sound]

    def _too_few(
        self, origins: int, every: int, rows: int, last: int, path: str
    ) -> InvalidInputError:
        """The error of a series with fewer origins than needed, of `every` that its rows hold."""
        rolling, context, follow = self.rolling, self.manifest.context, rows - last
        least = f"{context} to read and {follow} that follow"
        if rolling.least > 1:
            least += f", for each of {rolling.least} origins {rolling.stride} apart"
        hollow = every - origins
        where = "a channel" if self.manifest.covariates is None else "a channel or a covariate"
        gaps = f"; {hollow} origins have nothing but gaps in {where}" if hollow else ""
        shortest = context + (rolling.least - 1) * rolling.stride + follow
        return InvalidInputError(
            f"expected at least {shortest} rows ({least}), got {rows}{gaps}", param=path
        )

    def _placed(self, values: Floats, channels: list[int] | None) -> Floats:
        """Values `[windows, steps, columns]` in their channels; others are NaN."""
        if channels is None:
            return values
        width = len(self.manifest.channels)
        placed = np.full((*values.shape[:2], width), np.nan, np.float32)
        placed[..., channels] = values
        return placed

    def _add_calendar(
        self, timeline: Timeline, origins: NDArray[np.int64], rows: int, path: str
    ) -> None:
        calendar = self.manifest.calendar
        if calendar is None:
            return
        # From the first row that the first origin reads.
        first = int(origins[0]) - self.manifest.context
        count = int(origins[-1] - origins[0]) + self.steps
        try:
            walls, _ = timeline.read(first - rows, count)
            check_years(walls)
        except TimestampError as error:
            raise InvalidInputError(str(error), param=path) from None
        features = _cut(calendar.encode(walls), origins - origins[0], self.steps)
        self._calendars.append(features)

    def windows(self) -> BacktestWindows:
        ends = np.cumsum([len(origins) for origins in self._origins])
        spans = [slice(end - len(each), end) for end, each in zip(ends, self._origins, strict=True)]
        return BacktestWindows(
            np.concatenate(self._histories),
            _joined(self._calendars),
            np.concatenate(self._futures),
            spans,
            self._origins,
            self._left_out,
            self._filled,
            _joined(self._covariates),
            _joined(self._statics),
        )


def _joined(parts: list[Floats]) -> Floats | None:
    return np.concatenate(parts) if parts and parts[0].shape[-1] else None


def _cut(rows: NDArray[np.floating], starts: NDArray[np.int64], size: int) -> Floats:
    """Windows `[starts, size, columns]` of rows `[rows, columns]`."""
    windows: Floats = rows.astype(np.float32)[starts[:, None] + np.arange(size)]
    return windows
