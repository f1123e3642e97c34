"""Quantiles of forecasts: from the calibration of a bundle, or from forecast distributions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.bounds import limits
from foretell.bundle.calibration import Calibration, bounds, scale
from foretell.bundle.distribution import ROUNDING
from foretell.bundle.manifest import Manifest
from foretell.service.engine.recalibration import Recalibration
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.validation import shown

Floats = NDArray[np.float32]

# Reasons why a level has no quantile: without and with levels that the model was trained for.
_FURTHER_OUT = (
    "further out a distribution tells of itself alone",
    "it forecasts no quantile that is further out",
)
# Each quantile of counts is searched for, which takes a few microseconds.
_MOST_SEARCHED = 100_000


class Intervals:
    """The quantiles of a model; without calibration or distribution `check` refuses every level."""

    def __init__(self, manifest: Manifest, calibration: Calibration | None) -> None:
        self._manifest = manifest
        self.calibration = calibration
        drawn = manifest.distribution
        self._is_searched = calibration is None and drawn is not None and drawn.is_of_counts
        floor = 0.0 if manifest.calibration is None else manifest.calibration.floor
        self._limits = limits(manifest.bounds, manifest.targets)
        self._floor = np.array(manifest.target_scaler.training.std) * floor
        self._columns = slice(None) if manifest.columns is None else manifest.columns

    @property
    def most(self) -> int | None:
        """Most quantiles of a request, as a search for one is slow; None for no limit."""
        return _MOST_SEARCHED if self._is_searched else None

    @property
    def steps(self) -> int:
        """Most steps ahead that have quantiles; 0 for a model without quantiles."""
        if self._manifest.calibration is not None:
            return self._manifest.calibration.steps
        # Distributions of later passes would only follow from means.
        return 0 if self._manifest.distribution is None else self._manifest.horizon

    def extremes(self, horizon: int) -> tuple[float, float]:
        """The lowest and the highest level for a horizon, which is at most `steps`."""
        if (report := self._manifest.calibration) is not None:
            return bounds(report.windows[(horizon - 1) // self._manifest.horizon])
        assert self._manifest.distribution is not None  # noqa: S101 - or there are no steps
        return self._manifest.distribution.extremes

    def check(self, levels: Sequence[float], horizon: int, place: str) -> None:
        """Refuse levels that `quantiles` cannot answer; `place` is their path in the request.

        NotSupportedError: there are no quantiles, or not for this horizon. InvalidInputError: a
        level is more extreme than the calibration or distribution supports.
        """
        name, report = self._manifest.name, self._manifest.calibration
        drawn = self._manifest.distribution
        if report is None and drawn is None:
            reason = self._manifest.calibration_missing or "its bundle does not say why"
            raise NotSupportedError(f"{name} has no quantiles: {reason}", param=place)
        if horizon > self.steps:
            how = f"{drawn.source}," if report is None and drawn is not None else "calibrated"
            raise NotSupportedError(
                f"the quantiles of {name} are {how} for at most {self.steps} steps, got a "
                f"horizon of {shown(horizon)}",
                param=place,
            )
        lowest, highest = self.extremes(horizon)
        spare = ROUNDING if drawn is not None and drawn.levels and report is None else 0.0
        for index, level in enumerate(levels):
            # Comparisons that NaN fails.
            if not 0 < level < 1:
                raise InvalidInputError(
                    f"expected a level between 0 and 1, got {shown(level)}",
                    param=f"{place}[{index}]",
                )
            if lowest - spare <= level <= highest + spare:
                continue
            if report is None:
                raise InvalidInputError(
                    f"expected a level between {lowest:g} and {highest:.6g}, got {shown(level)}: "
                    f"{_FURTHER_OUT[drawn is not None and drawn.levels is not None]}",
                    param=f"{place}[{index}]",
                )
            windows = report.windows[(horizon - 1) // self._manifest.horizon]
            raise InvalidInputError(
                f"expected a level between {lowest:.3g} and {highest:.6g}, got {shown(level)}: "
                f"{name} was calibrated on {windows} validation windows for this horizon, which "
                f"show no events rarer than one in {windows + 1}",
                param=f"{place}[{index}]",
            )

    def quantiles(
        self,
        history: Floats,
        forecast: Floats,
        levels: Sequence[float],
        distribution: Floats | None = None,
    ) -> Floats:
        """Quantiles of forecasts, `[levels, windows, horizon, targets]`; `check` has passed.

        They never decrease with the level, are within the bounds of their channels, and are not
        finite where too large for float32. The quantile of level 0.5 is the median, which may
        differ from the forecast.

        Args:
            history: `[windows, context, channels]` in the user's units: the input of the model's
                first pass, even if later passes read its own forecasts.
            forecast: `[windows, horizon, targets]`.
            levels: Levels of the quantiles, in any order.
            distribution: `[windows, horizon, targets, parameters]`; used without a calibration.
        """
        if self.calibration is None:
            assert distribution is not None  # noqa: S101 - what `check` makes sure of
            return self._of(distribution[:, : forecast.shape[1]], levels)
        offsets = self.calibration.at(np.array(levels, np.float64), forecast.shape[1])
        return self._around(history, forecast, offsets[:, None])

    def scale(self, history: Floats) -> NDArray[np.float64]:
        """The scale of histories `[windows, context, targets]`, `[windows, 1, targets]`."""
        return scale(history, self._floor)

    def around(
        self, forecast: Floats, scales: NDArray[np.float64], levels: Sequence[float]
    ) -> Floats:
        """As `quantiles` of a calibrated model, from the scales of the histories."""
        assert self.calibration is not None  # noqa: S101 - what `check` makes sure of
        offsets = self.calibration.at(np.array(levels, np.float64), forecast.shape[1])
        return self._at(forecast, scales, offsets[:, None])

    def learned(
        self,
        history: Floats,
        forecast: Floats,
        levels: Sequence[float],
        calibrations: Sequence[Calibration],
    ) -> Floats:
        """As `quantiles`, with the offsets of a calibration for each window."""
        steps, wanted = forecast.shape[1], np.array(levels, np.float64)
        offsets = np.stack([each.at(wanted, steps) for each in calibrations], axis=1)
        return self._around(history, forecast, offsets)

    def errors(self, history: Floats, forecast: Floats, future: Floats) -> NDArray[np.float64]:
        """Errors of forecasts, `[windows, horizon, targets]`, in units of their histories' scale.

        `future` has all channels; errors are NaN where it is NaN, or where they are not finite.
        """
        with np.errstate(all="ignore"):
            error = future[..., self._columns].astype(np.float64) - forecast
            found = error / scale(history[..., self._columns], self._floor)
        return np.where(np.isfinite(found), found, np.nan)

    def corrected(
        self,
        history: Floats,
        forecast: Floats,
        levels: Sequence[float],
        errors: Sequence[NDArray[np.float64]],
        stride: int,
    ) -> Floats:
        """As `quantiles`, corrected by recent errors of each window, at origins `stride` apart."""
        assert self.calibration is not None  # noqa: S101 - what `check` makes sure of
        stored = Recalibration.of(self.calibration, forecast.shape[1])
        offsets = [stored.offsets(own, stride, levels) for own in errors]
        return self._around(history, forecast, np.stack(offsets, axis=1))

    def _of(self, distribution: Floats, levels: Sequence[float]) -> Floats:
        """Quantiles of distributions."""
        described = self._manifest.distribution
        assert described is not None  # noqa: S101 - as above
        with np.errstate(over="ignore"):
            found = np.stack([described.quantile(distribution, level) for level in levels])
            if self._limits is not None:
                found = self._limits.apply(found)
            return found.astype(np.float32)

    def _around(self, history: Floats, forecast: Floats, offsets: NDArray[np.float64]) -> Floats:
        """Quantiles at offsets `[levels, windows or 1, horizon, targets]`."""
        return self._at(forecast, scale(history[..., self._columns], self._floor), offsets)

    def _at(
        self, forecast: Floats, scales: NDArray[np.float64], offsets: NDArray[np.float64]
    ) -> Floats:
        with np.errstate(over="ignore"):
            found = forecast + scales * offsets
            if self._limits is not None:
                found = self._limits.apply(found)
            return found.astype(np.float32)
