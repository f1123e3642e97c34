"""Distributions that a model forecasts: their entry in the manifest, and their quantiles.

Quantiles are computed from the parameters with numpy alone, since a server has no other library.
A model may also forecast the quantiles that it was trained for; others are interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import Literal, Self, cast

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from pydantic import model_validator

from foretell.bundle.part import Part
from foretell.bundle.special import incomplete_beta, log_gamma

Floats = NDArray[np.float64]
Parametric = Literal["normal", "student-t", "negative-binomial", "poisson"]
Family = Parametric | Literal["quantiles"]

# In the order of the last axis of `distribution`. A negative binomial counts successes of odds
# exp(logits) before `total_count` failures.
PARAMETERS: Mapping[Parametric, tuple[str, ...]] = {
    "normal": ("loc", "scale"),
    "student-t": ("df", "loc", "scale"),
    "negative-binomial": ("total_count", "logits"),
    "poisson": ("rate",),
}
# Distributions of counts.
_COUNTED = ("negative-binomial", "poisson")
# Fewer degrees of freedom have no variance; models forecast more.
_LEAST_DF = 2.0
# Levels further out depend on the family, not on data.
LOWEST, HIGHEST = 1e-6, 1 - 1e-6
# Tolerance for levels such as (1 - 0.8) / 2, which is not exactly 0.1.
ROUNDING = 1e-9
# Enough for a relative error of 1e-8.
_DEGREE = 40
# Levels that a message lists.
_MOST_LISTED = 20
# Larger counts have no quantiles.
LARGEST_MEAN = 1e6
# From this mean and total count on, four cumulants give a quantile to within one count.
_NEAR_NORMAL = 1e4
_MOST_FAILURES = 1e9
# From this rate on, one more term gives all Poisson quantiles except those near a whole number.
_NEAR_POISSON = 1e3
# Most terms of a sum of weights; the largest rate needs 9,000.
_TERMS = 20_000
# Most steps of a search for a count.
_STEPS = 1000


class Distribution(Part):
    """The distribution that a model forecasts for each step and target.

    Attributes:
        family: Family of the distribution, or `quantiles` for a set of quantiles.
        parameters: Names along the last axis of the graphs' output `distribution`.
        levels: Levels of the quantiles, ascending; None for all other families.
    """

    family: Family
    parameters: tuple[str, ...]
    levels: tuple[float, ...] | None = None

    @classmethod
    def of(cls, family: Parametric) -> Self:
        """A distribution of a family with parameters."""
        return cls(family=family, parameters=PARAMETERS[family])

    @classmethod
    def of_quantiles(cls, levels: tuple[float, ...]) -> Self:
        """A distribution given by quantiles at these levels."""
        return cls(family="quantiles", parameters=_names(levels), levels=levels)

    @model_validator(mode="after")
    def _known(self) -> Self:
        if (self.family == "quantiles") != (self.levels is not None):
            raise ValueError("levels: the family quantiles needs them, other families have none")
        check_levels(self.levels)
        own = _names(self.levels or ()) or PARAMETERS[cast("Parametric", self.family)]
        if self.parameters != own:
            raise ValueError(f"parameters: expected {', '.join(own)}")
        return self

    @property
    def source(self) -> str:
        """The origin of the quantiles, for messages."""
        if self.levels is None:
            return f"of the {self.family} distributions that it forecasts"
        names = _names(self.levels)
        listed = ", ".join(names) if len(names) <= _MOST_LISTED else f"{names[0]} to {names[-1]}"
        return f"those that it forecasts ({listed})"

    @property
    def is_of_counts(self) -> bool:
        """Whether the values are whole numbers, and so each quantile is one."""
        return self.family in _COUNTED

    @property
    def extremes(self) -> tuple[float, float]:
        """The lowest and the highest level that `quantile` accepts, apart from rounding."""
        if self.levels is None:
            return LOWEST, HIGHEST
        return self.levels[0], self.levels[-1]

    def quantile(self, parameters: NDArray[np.floating], level: float) -> Floats:
        """The quantile of every distribution.

        Args:
            parameters: `[…, parameters]` in the user's units.
            level: Level of the quantile, between `extremes` apart from rounding.

        Returns:
            `[…]`; NaN where a parameter is not finite or the mean count exceeds `LARGEST_MEAN`.

        Raises:
            ValueError: the level lies beyond those of the quantiles that the model forecasts.
        """
        found = np.moveaxis(parameters.astype(np.float64), -1, 0)
        finite = np.isfinite(found).all(axis=0)
        if self.levels is not None:
            values = _between(self.levels, np.where(finite, found, 0), level)
            return np.where(finite, values, np.nan)
        usual = np.array([3.0, 1.0, 1.0][: len(found)]).reshape(-1, *[1] * finite.ndim)
        quantile = _QUANTILES[cast("Parametric", self.family)]
        values = quantile(np.where(finite, found, usual), level)
        return np.where(finite, values, np.nan)


def check_levels(levels: tuple[float, ...] | None) -> None:
    """Check levels of quantiles.

    Raises:
        ValueError: they are not ascending between 0 and 1; the message begins with `levels`.
    """
    if levels is None:
        return
    # NaN fails this comparison.
    if not levels or not all(low < high for low, high in pairwise((0.0, *levels, 1.0))):
        raise ValueError(f"levels: expected numbers between 0 and 1, ascending, got {levels}")


def _names(levels: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(str(level) for level in levels)


def _between(levels: tuple[float, ...], values: Floats, level: float) -> Floats:
    """The quantile at a level, interpolated linearly between neighbouring levels."""
    # Sorting crossed quantiles never adds error (Chernozhukov et al., Econometrica 2010,
    # arXiv:0704.3649).
    lowest, highest = levels[0], levels[-1]
    if not lowest - ROUNDING <= level <= highest + ROUNDING:
        raise ValueError(f"level: expected one from {lowest:g} to {highest:g}, got {level}")
    level = min(max(level, lowest), highest)
    place = float(np.interp(level, levels, np.arange(len(levels))))
    nearest = round(place)
    ordered = np.sort(values, axis=0) if (values[1:] < values[:-1]).any() else values
    found: Floats = ordered[nearest]
    if abs(level - levels[nearest]) > ROUNDING:
        low = math.floor(place)
        found = ordered[low] + (place - low) * (ordered[low + 1] - ordered[low])
    return found


def _normal(parameters: Floats, level: float) -> Floats:
    loc, scale = parameters
    found: Floats = loc + scale * NormalDist().inv_cdf(level)
    return found


def _student_t(parameters: Floats, level: float) -> Floats:
    df, loc, scale = parameters
    share = _LEAST_DF / np.maximum(df, _LEAST_DF)
    found: Floats = loc + scale * chebyshev.chebval(2 * share - 1, student_t_series(level)[:, 0])
    return found


@lru_cache(maxsize=256)
def student_t_series(*levels: float) -> Floats:
    """Quantiles of Student's t by degrees of freedom: Chebyshev series in `2 * (2 / df) - 1`.

    The quantile is a smooth function of 1 / df; at 0 it is the normal quantile.

    Returns:
        `[terms, levels]`.
    """
    tails = np.minimum(levels, np.subtract(1, levels))
    signs = np.copysign(1, np.subtract(levels, 0.5))

    def upper(place: Floats) -> Floats:
        df = np.repeat(2 * _LEAST_DF / (place + 1), len(tails))
        half, tail = 0.5 * df, np.tile(tails, len(place))
        front = np.exp(log_gamma(half + 0.5) - log_gamma(half)) / np.sqrt(df * np.pi)
        # The share above is convex, so Newton's method approaches from below. It starts at the
        # normal quantile, which is too low.
        found = np.tile([abs(NormalDist().inv_cdf(each)) for each in tails], len(place))
        for _ in range(200):
            beta = incomplete_beta(half, np.full(len(df), 0.5), df / (df + found**2))
            density = front * (1 + found**2 / df) ** (-half - 0.5)
            step = (0.5 * beta - tail) / density
            found += step
            if (np.abs(step) <= 1e-13 * found).all():
                break
        return found.reshape(len(place), -1)

    series: Floats = np.asarray(chebyshev.chebinterpolate(upper, _DEGREE))  # type: ignore[type-var]
    return signs * series


def _negative_binomial(parameters: Floats, level: float) -> Floats:
    """The smallest count whose cumulative probability reaches the level."""
    count, logits = parameters
    with np.errstate(over="ignore", invalid="ignore"):
        mean = count * np.exp(logits)
    found = np.full(count.shape, np.nan)
    fits = (count > 0) & (mean > 0) & (mean <= LARGEST_MEAN)
    is_near = fits & (count >= _NEAR_NORMAL) & (mean >= _NEAR_NORMAL)
    near = mean[is_near]
    found[is_near] = np.ceil(_cornish_fisher(near, near / count[is_near], level))
    rest = fits & ~is_near
    # With more failures it is a Poisson distribution, and the shares vanish in rounding.
    failures = np.minimum(count[rest], _MOST_FAILURES)
    odds = mean[rest] / failures
    none = -failures * np.log1p(odds)
    found[rest] = _searched(mean[rest], odds, none, level, _negative_binomial_shares)
    # A mean that underflows to 0 has quantile 0.
    found[(count > 0) & (mean == 0)] = 0
    return found


def _negative_binomial_shares(
    mean: Floats, odds: Floats, at: Floats
) -> tuple[Floats, Floats, Floats]:
    count, failure, success = mean / odds, 1 / (1 + odds), odds / (1 + odds)
    front = log_gamma(count + at) - log_gamma(at + 1) - log_gamma(count)
    weight = np.exp(front - count * np.log1p(odds) + at * np.log(success))
    share = incomplete_beta(count, at + 1, failure)
    return share, weight, weight * (at + count) / (at + 1) * success


def _poisson(parameters: Floats, level: float) -> Floats:
    """The smallest count whose cumulative probability reaches the level."""
    (rate,) = parameters
    found = np.full(rate.shape, np.nan)
    found[rate == 0] = 0
    fits = (rate > 0) & (rate <= LARGEST_MEAN)
    is_near = fits & (rate >= _NEAR_POISSON)
    found[is_near] = _near_poisson(rate[is_near], level)
    rest = fits & np.isnan(found)
    mean = rate[rest]
    found[rest] = _searched(mean, np.zeros_like(mean), -mean, level, _poisson_shares)
    return found


def _near_poisson(rate: Floats, level: float) -> Floats:
    """Quantiles of large rates, by one more term (Giles, ACM TOMS 2016); NaN where unsure."""
    normal = NormalDist().inv_cdf(level)
    term = (-8 / 405 + 7 * normal**2 / 810 + normal**4 / 270) / rate
    value = _cornish_fisher(rate, np.zeros_like(rate), level) + term
    # At the outermost levels, the next term is at most 3.8 * rate**-1.5.
    is_clear = np.abs(value - np.round(value)) > 5 * rate**-1.5
    return np.where(is_clear, np.ceil(value), np.nan)


def _poisson_shares(rate: Floats, _: Floats, at: Floats) -> tuple[Floats, Floats, Floats]:
    """Sum the weights on the far side of the count from the rate (DLMF 8.7.1)."""
    weight = np.exp(at * np.log(rate) - rate - log_gamma(at + 1))
    above = at + 1 > rate
    term, total = np.ones_like(rate), np.where(above, 0.0, 1.0)
    for step in range(_TERMS):
        term *= np.where(above, rate / (at + step + 1), np.maximum(at - step, 0) / rate)
        total += term
        if (term <= 1e-17 * total).all():
            break
    share = np.where(above, 1 - weight * total, weight * total)
    return share, weight, weight * rate / (at + 1)


def _cornish_fisher(mean: Floats, odds: Floats, level: float) -> Floats:
    """Approximate quantile of counts from four cumulants (Cornish and Fisher, 1938)."""
    normal = NormalDist().inv_cdf(level)
    deviation = np.sqrt(mean * (1 + odds))
    skew = (1 + 2 * odds) / deviation
    kurtosis = (1 + 6 * odds * (1 + odds)) / deviation**2
    value = (
        normal
        + skew * (normal**2 - 1) / 6
        + kurtosis * (normal**3 - 3 * normal) / 24
        - skew**2 * (2 * normal**3 - 5 * normal) / 36
    )
    # Continuity correction: half a step, and a variance smaller by 1/12 (Sheppard, 1898).
    found: Floats = mean + deviation * value - normal / (24 * deviation) - 0.5
    return found


def _searched(
    mean: Floats,
    odds: Floats,
    none: Floats,
    level: float,
    shares: Callable[[Floats, Floats, Floats], tuple[Floats, Floats, Floats]],
) -> Floats:
    """Quantiles of `[n]` counts by Newton's method within a bracket."""
    # Below the median the search works on the logarithms of share and count, above it on the
    # logarithm of the rest: both are nearly straight. Shares of neighbours follow from a weight.
    found = np.zeros(len(mean))
    # 0 is the most frequent quantile.
    left = np.flatnonzero(none < math.log(level))
    low, high = np.zeros(len(left)), np.full(len(left), np.inf)
    at = np.maximum(np.round(_cornish_fisher(mean[left], odds[left], level)), 1)
    for step in range(_STEPS):
        if not len(left):
            return found
        share, weight, following = shares(mean[left], odds[left], at)
        enough, before = share >= level, share - weight >= level
        after = share + following >= level
        is_found = (enough & ~before) | (~enough & after)
        found[left[is_found]] = np.where(enough, at, at + 1)[is_found]
        low, high = np.where(enough, low, at), np.where(enough, at, high)
        with np.errstate(all="ignore"):
            if level < 0.5:
                guess = at * np.exp((math.log(level) - np.log(share)) * share / (at * weight))
            else:
                guess = at + np.log((1 - share) / (1 - level)) * (1 - share) / weight
        middle = np.where(np.isinf(high), 2 * at + 1, np.floor((low + high) / 2))
        with np.errstate(invalid="ignore"):
            # Every fourth step bisects.
            is_within = (guess > low) & (guess < high) & (guess < 4 * at + 4) & (step % 4 < 3)
        at = np.where(is_within, np.clip(np.round(guess), low + 1, high - 1), middle)
        # Neighbouring bounds whose rounded shares show no quantile.
        is_close = ~is_found & (high - low <= 1)
        found[left[is_close]] = high[is_close]
        keep = ~(is_found | is_close)
        left, low, high, at = left[keep], low[keep], high[keep], at[keep]
    found[left] = np.nan
    return found


_QUANTILES: Mapping[Parametric, Callable[[Floats, float], Floats]] = {
    "normal": _normal,
    "student-t": _student_t,
    "negative-binomial": _negative_binomial,
    "poisson": _poisson,
}
