"""Steps at which a target is much like covariates, or like a sum of two of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
# Rows by steps that are compared, and least numbers of rows that are compared, and that tell.
_CELLS, _SAMPLE, _FEWEST = 2**20, 256, 20
# Least share of a target's variance that is much, and most steps with such a share.
_MUCH, _STEPS = 0.999, 3
# Variances, in those of all rows, that are rounding errors.
_ROUNDING = 1e-9


class Alike:
    """Shares of a target's variance that covariates explain by lines, at each step.

    Row `t` of the covariates is compared with row `t + step` of the target, in a sample of rows in
    which all covariates are known, if there are enough.

    Attributes:
        steps: `[steps]`, the nearest first.
    """

    def __init__(
        self, target: Values, covariates: Sequence[Values], ends: NDArray[np.intp], reach: int
    ) -> None:
        """Choose rows.

        Args:
            target: `[rows]`, NaN where it is unknown.
            covariates: Each `[rows]`, likewise.
            ends: Row after the last one of each series.
            reach: The largest step, also backwards.
        """
        steps = np.arange(-reach, reach + 1)
        self.steps = steps[np.argsort(np.abs(steps), kind="stable")]
        whole = np.flatnonzero(~np.isnan(covariates).any(axis=0))
        rows = whole if len(whole) >= _SAMPLE else np.arange(len(target))
        count = min(max(_CELLS // len(steps), _SAMPLE), len(rows))
        rows = np.sort(np.random.default_rng(0).choice(rows, count, replace=False))
        span = np.searchsorted(ends, rows, side="right")
        at = rows + self.steps[:, None]
        inside = (at >= np.append(0, ends)[span]) & (at < ends[span])
        values = _scaled(target)[np.clip(at, 0, len(target) - 1)]
        known = inside & ~np.isnan(values)
        values = np.where(known, values, 0)
        self._columns = np.column_stack([np.nan_to_num(_scaled(each)[rows]) for each in covariates])
        self._known = known.astype(np.float64)
        counts = self._known.sum(axis=1, keepdims=True)
        self._count = np.maximum(counts, 1)
        mean = values.sum(axis=1, keepdims=True) / self._count
        variance = np.square(values).sum(axis=1, keepdims=True) / self._count - mean**2
        self._means = self._known @ self._columns / self._count
        self._variances = self._known @ self._columns**2 / self._count - self._means**2
        products = values @ self._columns / self._count - mean * self._means
        self._related = _related(products, variance, self._variances)
        self._related[counts[:, 0] < _FEWEST] = 0

    def alone(self, place: int) -> Values:
        """Shares `[steps]` of one covariate."""
        return np.square(self._related[:, place])

    def pairs(self, place: int) -> Values:
        """Shares `[steps, others]` of a covariate with each of those after it."""
        others = slice(place + 1, None)
        one, two = self._related[:, [place]], self._related[:, others]
        products = self._known @ (self._columns[:, [place]] * self._columns[:, others])
        products = products / self._count - self._means[:, [place]] * self._means[:, others]
        both = _related(products, self._variances[:, [place]], self._variances[:, others])
        rest = 1 - both**2
        shares = one**2 + two**2 - 2 * one * two * both
        return np.where(rest > _ROUNDING, shares / np.maximum(rest, _ROUNDING), 0)

    def likely(self, shares: Values, chosen: NDArray[np.bool_]) -> list[int]:
        """The steps with the largest shares `[steps]`, if these are large."""
        # Rounding must not prefer a step that is farther away.
        order = np.argsort(-np.round(shares, 9), kind="stable")
        best = order[chosen[order] & (shares[order] > _MUCH)]
        return [int(self.steps[place]) for place in best[:_STEPS]]


def _scaled(values: Values) -> Values:
    """Values without mean and scale; NaN stays."""
    known = values[~np.isnan(values)]
    if not len(known):
        return values
    scaled: Values = (values - known.mean()) / (known.std() or 1.0)
    return scaled


def _related(products: Values, first: Values, second: Values) -> Values:
    """Correlations of covariances and variances; 0 for a constant."""
    varies = (first > _ROUNDING) & (second > _ROUNDING)
    found: Values = np.where(varies, products, 0) / np.sqrt(np.where(varies, first * second, 1))
    return found
