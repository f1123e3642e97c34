"""Rolling origins: rows that a request holds, forecast again from those before them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.errors import TimestampError
from foretell.bundle.gaps import Missing, filled, latest, rows_before
from foretell.bundle.manifest import Manifest
from foretell.bundle.timestamps import check_years
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.times import Timeline
from foretell.service.settings import Settings

Floats = NDArray[np.float32]
_BYTES = 4
# What bounds them, by the settings' names.
LIMITS = "max_origins, max_queue, max_queue_bytes, max_answer_values"


@dataclass(frozen=True, slots=True)
class RollingOrigins:
    """Which rows of a history are forecast again.

    Attributes:
        stride: Rows from an origin to the next.
        least: Fewest origins of a series.
        most: Most of them, the latest.
        is_asked: Whether the request says how many.
    """

    stride: int
    least: int
    most: int
    is_asked: bool = False


def room(
    inputs: int,
    horizon: int,
    passes: int,
    quantiles: int,
    manifest: Manifest,
    settings: Settings,
    beside: int = 0,
) -> int:
    """Most origins of each series of a request.

    Args:
        inputs: Series of the request.
        horizon: Steps forecast.
        passes: Runs that takes.
        quantiles: Of each forecast.
        manifest: The model's.
        settings: Limits.
        beside: Other windows of each series that wait at the same time.
    """
    channels = len(manifest.channels)
    features = 0 if manifest.calendar is None else len(manifest.calendar.features)
    steps = manifest.context + passes * manifest.horizon
    size = _BYTES * (steps * (channels + features))
    values = horizon * len(manifest.targets) * (1 + quantiles)
    waiting = min(settings.max_queue, settings.max_queue_bytes // size) // inputs
    others = min(settings.max_origins, settings.max_answer_values // values) // inputs
    return max(0, min(waiting - beside, others))


@dataclass(frozen=True, slots=True)
class Past:
    """Windows whose future is known.

    Attributes:
        history: `[windows, context, channels]`, series by series, each from its oldest origin.
        calendar: `[windows, context + passes * horizon, features]`, if the model reads them.
        future: `[windows, horizon, channels]`, what followed; NaN where that is missing.
        spans: By the row of a series among those of its request: its windows.
        origins: Likewise, the row of the history that each of them forecasts first.
        left_out: Origins that the rows hold, and that are over the limits.
        filled: Missing values of the rows that the windows are of.
    """

    history: Floats
    calendar: Floats | None
    future: Floats
    spans: list[slice]
    origins: list[NDArray[np.int64]]
    left_out: int
    filled: int

    def __len__(self) -> int:
        return len(self.history)


class Origins:
    """Cuts the windows of rolling origins out of histories.

    Args:
        manifest: The model's.
        horizon: Steps whose forecasts are compared with what followed.
        steps: Of a window and all of its future that the model is told the times of.
        rolling: Which rows.
        missing: What becomes of missing values; of a window, as if it had been sent alone.
    """

    def __init__(
        self,
        manifest: Manifest,
        horizon: int,
        steps: int,
        rolling: RollingOrigins,
        missing: Missing,
    ) -> None:
        self._calendar = manifest.calendar
        self._context = manifest.context
        self._horizon = horizon
        self._steps = steps
        self._rolling = rolling
        self._missing = missing
        self._needed = manifest.needed_steps(missing)
        self._histories: list[Floats] = []
        self._calendars: list[Floats] = []
        self._futures: list[Floats] = []
        self._origins: list[NDArray[np.int64]] = []
        self._left_out = self._filled = 0

    def add(self, values: NDArray[np.float64], timeline: Timeline | None, place: str) -> None:
        """Take the windows of the next series.

        Args:
            values: `[rows, channels]` in the model's order, NaN where one is missing.
            timeline: When they are.
            place: Where they stand in the request.

        Raises:
            InvalidInputError: the rows are too few, or too many of them are missing, or the times
                of some cannot be told.
        """
        rolling, context = self._rolling, self._context
        last = len(values) - self._horizon
        origins = np.arange(last, context - 1, -rolling.stride)[::-1]
        known = _Known(values, self._missing, context, self._needed)
        hollow = len(origins)
        origins = known.sound(origins)
        hollow -= len(origins)
        if len(origins) < rolling.least:
            least = f"{context} to read and {self._horizon} that follow"
            if rolling.least > 1:
                least += f", for each of {rolling.least} origins {rolling.stride} apart"
            gaps = f"; {hollow} origins have nothing but gaps in a channel" if hollow else ""
            rows = context + (rolling.least - 1) * rolling.stride + self._horizon
            raise InvalidInputError(
                f"expected at least {rows} rows ({least}), got {len(values)}{gaps}", param=place
            )
        left_out = max(0, len(origins) - rolling.most)
        origins = origins[left_out:]
        if self._calendar is not None and timeline is not None:
            # From the first row that the first of them reads.
            first, count = int(origins[0]) - context, int(origins[-1] - origins[0]) + self._steps
            try:
                walls, _ = timeline.read(first - len(values), count)
                check_years(walls)
            except TimestampError as error:
                raise InvalidInputError(str(error), param=place) from None
            features = _cut(self._calendar.encode(walls), origins - origins[0], self._steps)
            self._calendars.append(features)
        self._left_out += left_out
        self._filled += int(np.isnan(values[origins[0] - context : origins[-1]]).sum())
        self._histories.append(known.windows(origins))
        self._futures.append(_cut(values, origins, self._horizon))
        self._origins.append(origins)

    def past(self) -> Past:
        """The windows of all series."""
        ends = np.cumsum([len(origins) for origins in self._origins])
        spans = [slice(end - len(own), end) for end, own in zip(ends, self._origins, strict=True)]
        return Past(
            np.concatenate(self._histories),
            np.concatenate(self._calendars) if self._calendars else None,
            np.concatenate(self._futures),
            spans,
            self._origins,
            self._left_out,
            self._filled,
        )


class _Known:
    """A history whose gaps are filled, for each origin from what came before it alone, or left.

    Args:
        values: `[rows, channels]`, NaN where one is missing.
        method: How; with `error` there is no gap.
        context: Rows before an origin that the model reads.
        needed: Of these the last ones, in which each channel needs a value.
    """

    def __init__(
        self, values: NDArray[np.float64], method: Missing, context: int, needed: int
    ) -> None:
        self._context = context
        self._needed = needed
        self._keeps_gaps = method == "mask"
        self._values = values
        self._latest: NDArray[np.int64] | None = None
        is_known = ~np.isnan(values)
        if is_known.all():
            return
        self._latest = latest(is_known)
        if method != "mask":
            self._values = filled(values, method)

    def sound(self, origins: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of origins whose windows can be read: every channel has a value where it needs one,
        and with `ffill` one before each gap.
        """
        if self._latest is None or not len(origins):
            return origins
        sound = (self._latest[origins - 1] >= (origins - self._needed)[:, None]).all(axis=1)
        if not self._keeps_gaps:
            # What is filled has no gap after the first value it has.
            sound &= ~np.isnan(self._values[origins - self._context]).any(axis=1)
        return origins[sound]

    def windows(self, origins: NDArray[np.int64]) -> Floats:
        """The rows before origins `[origins, context, channels]`."""
        starts = origins - self._context
        if self._latest is None or self._keeps_gaps:
            return _cut(self._values, starts, self._context)
        read = rows_before(starts[:, None] + np.arange(self._context), self._latest[origins - 1])
        columns = np.arange(self._values.shape[1])
        windows: Floats = self._values.astype(np.float32)[read, columns]
        return windows


def _cut(rows: NDArray[np.floating], starts: NDArray[np.int64], size: int) -> Floats:
    """Windows `[starts, size, columns]` of rows `[rows, columns]`."""
    windows: Floats = rows.astype(np.float32)[starts[:, None] + np.arange(size)]
    return windows
