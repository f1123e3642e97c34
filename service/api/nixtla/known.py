"""Forecasts of rows that a request holds, as the nixtla client reads them, and the odd ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.service.api.nixtla.reading import quantiles_of
from foretell.service.api.nixtla.wire import AnomalyRequest, OnlineAnomalyRequest
from foretell.service.errors import InvalidInputError

Floats = NDArray[np.floating]

# Errors that tell what is usual.
_LEAST_USUAL = 10
# Of the training's standard deviation: what never errs is not odd where it errs by less.
_FLOOR = 1e-6


@dataclass(frozen=True)
class Known:
    """Forecasts and what they are of, in the order of the request's series.

    Attributes:
        sizes: Rows of each series.
        rows: `[windows, horizon]`, the row of its series that each value is of.
        owner: `[windows]`, the number of that series.
        forecast: `[windows, horizon]`.
        actual: `[windows, horizon]`; NaN where the value is missing.
        intervals: By name, such as `lo-80`, `[windows, horizon]`.
    """

    sizes: Sequence[int]
    rows: NDArray[np.int64]
    owner: NDArray[np.int64]
    forecast: Floats
    actual: Floats
    intervals: Mapping[str, Floats]

    def answer(self, kept: NDArray[np.bool_] | None = None) -> dict[str, Any]:
        """The members that answers about known rows have.

        Args:
            kept: `[windows, horizon]`, which values are answered; all if there are none.
        """
        at = np.ones(self.rows.shape, np.bool_) if kept is None else kept
        first = np.cumsum([0, *self.sizes[:-1]])
        counts = np.bincount(self.owner, weights=at.sum(axis=1), minlength=len(self.sizes))
        return {
            "sizes": counts.astype(np.int64),
            # Among the values of all series.
            "idxs": (self.rows + first[self.owner, None])[at],
            "mean": self.forecast[at],
            "intervals": {name: own[at] for name, own in self.intervals.items()} or None,
            "weights_x": None,
        }


def anomalies(known: Known, request: AnomalyRequest, deviation: float) -> dict[str, Any]:
    """Which values are odd, by the errors of the forecasts of their series.

    A score is an error less the mean of what is usual, in units of its standard deviation. Usual
    are all errors of the series; online, those before the rows that are looked at. `univariate`
    compares a score with the normal distribution; `multivariate` the sum of all series' at a time,
    without their signs, with the sums of the times before.

    Args:
        known: Forecasts of all rows that there is room for.
        request: What is asked for.
        deviation: Of the channel in training.

    Raises:
        InvalidInputError: there are too few errors, or different rows of series at once.
    """
    looked = usual = np.ones(known.rows.shape, np.bool_)
    is_joint = False
    if isinstance(request, OnlineAnomalyRequest):
        is_joint = request.threshold_method == "multivariate"
        once = _nearest(known, request.step_size or request.h)
        sizes = np.array(known.sizes)[known.owner, None]
        is_late = known.rows >= sizes - request.detection_size
        looked, usual = once & is_late, once & ~is_late
        if is_joint:
            _check_together(known)
    error = known.actual - known.forecast.astype(np.float64)
    center, spread = np.empty((2, len(error), 1))
    for number in range(len(known.sizes)):
        own = known.owner == number
        own_errors = error[own][usual[own]]
        own_errors = own_errors[np.isfinite(own_errors)]
        if len(own_errors) < _LEAST_USUAL:
            raise InvalidInputError(
                f"expected at least {_LEAST_USUAL} forecasts of known rows to tell what is usual, "
                f"before those that are looked at, got {len(own_errors)}; send more rows",
                param=f"series[{number}].y",
            )
        center[own] = own_errors.mean()
        spread[own] = max(own_errors.std(), _FLOOR * deviation)
    score = (error - center) / spread
    answer = known.answer(looked) | {"anomaly_score": score[looked]}
    if is_joint:
        # The rows of each series are the same.
        before, late = (
            np.nansum(np.abs(score[at].reshape(len(known.sizes), -1)), axis=0)
            for at in (usual, looked)
        )
        together = np.tile(late, len(known.sizes))
        is_odd = together > np.quantile(before, request.level / 100)
        return answer | {"anomaly": is_odd, "accumulated_anomaly_score": together}
    most = NormalDist().inv_cdf((1 + request.level / 100) / 2)
    middle, width = known.forecast + center, spread * most
    low, high = quantiles_of([request.level])
    intervals = {low: (middle - width)[looked], high: (middle + width)[looked]}
    return answer | {"anomaly": np.abs(score[looked]) > most, "intervals": intervals}


def _check_together(known: Known) -> None:
    """Refuse series of which not the same rows are forecast: gaps, too, leave some out.

    Raises:
        InvalidInputError: they are such.
    """
    rows = [known.rows[known.owner == number, 0].tolist() for number in range(len(known.sizes))]
    if any(own != rows[0] for own in rows):
        raise InvalidInputError(
            "expected series of one length, whose gaps leave the same rows to forecast, for "
            "threshold_method 'multivariate'",
            param="series.sizes",
        )


def _nearest(known: Known, stride: int) -> NDArray[np.bool_]:
    """`[windows, horizon]`: of a row that several windows forecast, the last of them alone."""
    is_last = np.append(known.owner[1:] != known.owner[:-1], True)
    return is_last[:, None] | (np.arange(known.rows.shape[1]) < stride)
