"""Calibration by the history of a request: stored offsets, corrected by recent errors.

The stored offsets of a bundle come from its validation split. The data may have moved on since, or
the model may be biased. The errors on the rows of the history before the context show both. These
errors are few and alike, as their forecasts overlap, so they are not used alone. Stored and recent
errors, each minus the stored median of its step and in units of the step's stored width, form one
distribution. Recent errors weigh more the more horizons they cover, and later ones weigh more than
earlier ones. The quantiles of this distribution, scaled back for each step, are the offsets. A
step's recent bias against the other steps is not spread: it is subtracted first, shrunk for few
origins, and added to the offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.calibration import Calibration

Floats = NDArray[np.floating]

# Number of horizons of recent forecasts whose errors weigh as much as the stored errors. The table
# behind this and the next choice is in bench/results/README.md.
_STORED_HORIZONS = 10
# Horizons after which an error weighs 1 / e as much.
_FADING_HORIZONS = 16
# Number of origins with which half of a step's own bias is applied.
_OWN_ORIGINS = 15
# The levels whose distance is the width of a step.
_WIDTH = (0.1, 0.9)
# Least width of a step, as a share of the channel's largest: a width near 0, as of a step without
# errors, would blow up any error.
_LEAST_WIDTH = 1e-3

# Origins are half a horizon apart: more of them would cost time and add nothing. The forecasts of
# 3 origins cover two horizons. More than 96 origins would hardly change the result.
_ORIGINS_A_HORIZON = 2
LEAST_ORIGINS, MOST_ORIGINS = 3, 96


def stride_of(horizon: int) -> int:
    """Rows from one origin to the next, for a horizon."""
    return max(1, horizon // _ORIGINS_A_HORIZON)


@dataclass(frozen=True, eq=False)
class Recalibration:
    """Stored errors, prepared for the correction.

    Attributes:
        median: Stored median, `[steps, channels]`.
        width: Stored width, `[steps, channels]`.
        errors: Stored offsets minus the median, in units of the width, `[channels,
            levels * steps]`.
        weights: Share of all errors that each stands for, `[levels * steps]`; they add up to 1.
    """

    median: NDArray[np.float64]
    width: NDArray[np.float64]
    errors: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, calibration: Calibration, steps: int) -> Recalibration:
        """Prepare the first `steps` steps of a calibration."""
        levels = calibration.levels
        known = np.clip(np.array([_WIDTH[0], 0.5, _WIDTH[1]]), levels[0], levels[-1])
        low, median, high = calibration.at(known, steps)
        width = high - low
        most = width.max(axis=0)
        width = np.maximum(width, np.where(most > 0, _LEAST_WIDTH * most, 1.0))
        errors = (calibration.offsets[:, :steps] - median) / width
        errors = np.ascontiguousarray(errors.reshape(-1, median.shape[1]).T)
        # A level stands for all levels that are nearest to it.
        edges = np.concatenate([[0.0], (levels[1:] + levels[:-1]) / 2, [1.0]])
        weights = np.repeat(np.diff(edges) / steps, steps)
        return cls(median, width, errors, weights)

    def offsets(self, errors: Floats, stride: int, levels: Sequence[float]) -> NDArray[np.float64]:
        """Offsets of quantiles.

        Args:
            errors: `[origins, steps, channels]`, actual minus forecast, in units of the scale of
                each history; NaN where unknown. Oldest first.
            stride: Steps from one origin to the next.
            levels: Levels of the quantiles.

        Returns:
            `[levels, steps, channels]`, never decreasing with the level.
        """
        origins, steps, _ = errors.shape
        ages = np.arange(origins)[::-1] * (stride / steps)
        recent = (errors - self.median) / self.width
        is_known = ~np.isnan(recent)
        weights = np.exp(-ages / _FADING_HORIZONS)[:, None, None] * is_known
        recent = np.nan_to_num(recent)
        own = _own_errors(recent, weights)
        recent -= own
        # Horizons with a known error, by channel.
        horizons = (ages[0] + 1) * is_known.any(axis=1).mean(axis=0)
        shares = horizons / (horizons + _STORED_HORIZONS)
        by_channel = [
            self._quantiles(at, recent[..., at].ravel(), weights[..., at].ravel(), share, levels)
            for at, share in enumerate(shares)
        ]
        by_step: NDArray[np.float64] = own + np.stack(by_channel, axis=1)[:, None]
        return self.median + self.width * by_step

    def _quantiles(
        self, channel: int, recent: Floats, weights: Floats, share: float, levels: Sequence[float]
    ) -> NDArray[np.float64]:
        """Quantiles `[levels]` of a channel's errors: the recent ones get `share` of the weight."""
        total = weights.sum()
        recent_shares = weights * (share / total if total else 0.0)
        found = np.concatenate([recent, self.errors[channel]])
        shares = np.concatenate([recent_shares, self.weights * (1 - share)])
        order = np.argsort(found)
        shares = shares[order]
        return np.asarray(np.interp(levels, np.cumsum(shares) - shares / 2, found[order]))


def _own_errors(recent: Floats, weights: Floats) -> NDArray[np.float64]:
    """The bias of each step against the mean of all steps, shrunk for few origins."""
    total = weights.sum(axis=0)
    known = np.where(total > 0, total, 1.0)
    mean = (weights * recent).sum(axis=0) / known
    whole = (total * mean).sum(axis=0) / known.sum(axis=0)
    # The effective number of origins.
    origins = total**2 / np.where(total > 0, np.square(weights).sum(axis=0), 1.0)
    own: NDArray[np.float64] = np.where(total > 0, mean - whole, 0.0)
    own *= origins / (origins + _OWN_ORIGINS)
    return own
