"""Calibration by the history of a request: stored offsets, corrected by the errors of late.

The stored offsets of a bundle are those of its validation split. Where the data have moved on
since, or the model is off on one side, the errors that it makes on the rows of the history before
its context tell. They are few and alike, for their forecasts overlap, so that they are not taken
alone: the errors of both, each less the stored median of its step and in units of the stored width
of its step, are one distribution, in which those of the history weigh the more the more horizons
they are of, and the later ones more than the earlier ones. Its quantiles, in the units of each
step again, are the offsets. How much further off a step is than the others of late is no spread: it
is taken out first, as far as the origins are many, and added to the offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.calibration import Calibration

Floats = NDArray[np.floating]

# Stored errors weigh as much as those of forecasts over so many horizons. The table that
# this and the next were chosen by is in bench/results/README.md.
_STORED_HORIZONS = 10
# After so many horizons an error weighs 1 / e as much.
_FADING_HORIZONS = 16
# With so many origins half of what a step is further off than others is believed.
_OWN_ORIGINS = 15
# The levels whose distance is the width of a step.
_WIDTH = (0.1, 0.9)
# Of the largest width of a channel; what is narrower, that of an error that was never made, say,
# would make anything of an error.
_LEAST_WIDTH = 1e-3

# Origins are half a horizon apart: nearer ones cost as much each, and tell no more. The fewest are
# those of forecasts that reach over two horizons; those before the most would hardly count.
_ORIGINS_A_HORIZON = 2
LEAST_ORIGINS, MOST_ORIGINS = 3, 96


def stride_of(horizon: int) -> int:
    """Rows from an origin to the next, for a horizon."""
    return max(1, horizon // _ORIGINS_A_HORIZON)


@dataclass(frozen=True, eq=False)
class Recalibration:
    """What is stored, as far as it is needed to correct it.

    Attributes:
        median: `[steps, channels]`.
        width: Likewise.
        errors: `[channels, levels * steps]`, the stored offsets in units of both.
        weights: `[levels * steps]`, how much of all errors each stands for; they add up to 1.
    """

    median: NDArray[np.float64]
    width: NDArray[np.float64]
    errors: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, calibration: Calibration, steps: int) -> Recalibration:
        """That of a calibration, for so many steps."""
        levels = calibration.levels
        known = np.clip(np.array([_WIDTH[0], 0.5, _WIDTH[1]]), levels[0], levels[-1])
        low, median, high = calibration.at(known, steps)
        width = high - low
        most = width.max(axis=0)
        width = np.maximum(width, np.where(most > 0, _LEAST_WIDTH * most, 1.0))
        errors = (calibration.offsets[:, :steps] - median) / width
        errors = np.ascontiguousarray(errors.reshape(-1, median.shape[1]).T)
        # A level stands for those that are nearest to it.
        edges = np.concatenate([[0.0], (levels[1:] + levels[:-1]) / 2, [1.0]])
        weights = np.repeat(np.diff(edges) / steps, steps)
        return cls(median, width, errors, weights)

    def offsets(self, errors: Floats, stride: int, levels: Sequence[float]) -> NDArray[np.float64]:
        """Offsets of quantiles.

        Args:
            errors: `[origins, steps, channels]`, actual less forecast, in units of the scale of
                each history; NaN where one is not known. Oldest first.
            stride: Steps from an origin to the next.
            levels: Of the quantiles.

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
        # Of each channel, those of which anything is known.
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
        """Quantiles `[levels]` of a channel's errors of late, which get a share, and the stored."""
        total = weights.sum()
        recent_shares = weights * (share / total if total else 0.0)
        found = np.concatenate([recent, self.errors[channel]])
        shares = np.concatenate([recent_shares, self.weights * (1 - share)])
        order = np.argsort(found)
        shares = shares[order]
        return np.asarray(np.interp(levels, np.cumsum(shares) - shares / 2, found[order]))


def _own_errors(recent: Floats, weights: Floats) -> NDArray[np.float64]:
    """How much further off each step is than all of them are, on average."""
    total = weights.sum(axis=0)
    known = np.where(total > 0, total, 1.0)
    mean = (weights * recent).sum(axis=0) / known
    whole = (total * mean).sum(axis=0) / known.sum(axis=0)
    # As many as would count alike.
    origins = total**2 / np.where(total > 0, np.square(weights).sum(axis=0), 1.0)
    own: NDArray[np.float64] = np.where(total > 0, mean - whole, 0.0)
    own *= origins / (origins + _OWN_ORIGINS)
    return own
