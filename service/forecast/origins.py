"""Rolling origins: rows of a request are forecast again from the rows before them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.manifest import Manifest
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.codes import SeriesCovariates
from foretell.service.forecast.times import Timeline
from foretell.service.settings import Settings
from foretell.timeaxis.errors import TimestampError
from foretell.timeaxis.gaps import Missing, filled, latest, rows_before
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
    # `[windows, horizon, channels]`, the rows that follow; NaN where a value is missing.
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


@dataclass(slots=True)
class WindowCutter:
    """Cuts the windows of rolling origins out of histories.

    Gaps are only filled from the rows before each origin. The model reads calendar features for the
    `steps` of a window and its future.
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
        timeline: Timeline | None,
        path: str,
        covariates: SeriesCovariates | None = None,
    ) -> None:
        """Cut the windows of a series, `[rows, channels]` in the model's order; gaps are NaN."""
        rolling, context = self.rolling, self.manifest.context
        last = len(values) - self.horizon
        if covariates is not None and covariates.future.shape[1]:
            # The model reads all of its horizon.
            last = min(last, len(covariates.future) + context - self.steps)
        every = np.arange(last, context - 1, -rolling.stride)[::-1]
        last_known = None
        is_known = ~np.isnan(values)
        given = values
        if not is_known.all():
            last_known = latest(is_known)
            if self.missing != "mask":
                values = filled(values, self.missing)
        origins = self._sound(every, values, last_known)
        if covariates is not None:
            # Filled values have no gap after the first value.
            origins = origins[~np.isnan(covariates.future[origins - context]).any(axis=1)]
        if len(origins) < rolling.least:
            follow = len(values) - last
            least = f"{context} to read and {follow} that follow"
            if rolling.least > 1:
                least += f", for each of {rolling.least} origins {rolling.stride} apart"
            hollow = len(every) - len(origins)
            gaps = f"; {hollow} origins have nothing but gaps in a channel" if hollow else ""
            shortest = context + (rolling.least - 1) * rolling.stride + follow
            raise InvalidInputError(
                f"expected at least {shortest} rows ({least}), got {len(values)}{gaps}", param=path
            )
        left_out = max(0, len(origins) - rolling.most)
        origins = origins[left_out:]
        if timeline is not None:
            self._add_calendar(timeline, origins, len(values), path)
        if covariates is not None:
            self._add_covariates(covariates, origins)
        self._left_out += left_out
        self._filled += int(np.isnan(given[origins[0] - context : origins[-1]]).sum())
        if last_known is None or self.missing == "mask":
            history = _cut(values, origins - context, context)
        else:
            windows = origins[:, None] + np.arange(-context, 0)
            rows = rows_before(windows, last_known[origins - 1])
            history = values.astype(np.float32)[rows, np.arange(values.shape[1])]
        self._histories.append(history)
        self._futures.append(_cut(given, origins, self.horizon))
        self._origins.append(origins)

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

    def _add_covariates(self, covariates: SeriesCovariates, origins: NDArray[np.int64]) -> None:
        first = origins - self.manifest.context
        self._covariates.append(_cut(covariates.future, first, self.steps))
        static = covariates.static.astype(np.float32)
        self._statics.append(np.tile(static, (len(origins), 1)))
        self._filled += sum(covariates.filled.values())

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

    def _sound(
        self,
        origins: NDArray[np.int64],
        values: NDArray[np.float64],
        last_known: NDArray[np.int64] | None,
    ) -> NDArray[np.int64]:
        """The origins with all needed values before them, in every channel."""
        if last_known is None or not len(origins):
            return origins
        # Each channel needs a value in the last of the rows that the model reads.
        needed = self.manifest.needed_steps(self.missing)
        sound = (last_known[origins - 1] >= (origins - needed)[:, None]).all(axis=1)
        if self.missing != "mask":
            # Filled values have no gap after the first value.
            sound &= ~np.isnan(values[origins - self.manifest.context]).any(axis=1)
        return origins[sound]


def _joined(parts: list[Floats]) -> Floats | None:
    return np.concatenate(parts) if parts and parts[0].shape[-1] else None


def _cut(rows: NDArray[np.floating], starts: NDArray[np.int64], size: int) -> Floats:
    """Windows `[starts, size, columns]` of rows `[rows, columns]`."""
    windows: Floats = rows.astype(np.float32)[starts[:, None] + np.arange(size)]
    return windows
