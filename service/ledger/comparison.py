"""Whether one version forecasts better than another: a test of their losses on the same windows.

The test of Diebold and Mariano (1995) divides the mean difference of two losses by its standard
error. Windows that overlap have correlated losses, so this error needs a long-run variance. The
usual one adds autocovariances up to the horizon (Harvey, Leybourne and Newbold, 1997). Where many
windows overlap, it finds differences between equal models up to twice as often as it should.
Fixed smoothing corrects this (Coroneo and Iacone, 2020). The variance here is the mean square of
the first cosine transforms of the differences, and the statistic has Student's t distribution with
as many degrees of freedom as there are cosines (Lazarus, Lewis, Stock and Watson, 2018).
`python -m bench comparison` shows the share of wrong and right verdicts of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.special import incomplete_beta

Floats = NDArray[np.float64]
Verdict = Literal["better", "worse", "no difference", "too few"]

# Between equal versions, the probability of each of the verdicts better and worse.
LEVEL = 0.025
# With fewer origins, or fewer horizons that do not overlap, there is no verdict.
LEAST_ORIGINS, LEAST_HORIZONS = 30, 10
# Smaller relative differences come from rounding, for example by another runtime.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`; losses are means over origins.

    Attributes:
        windows: Compared windows.
        origins: Different origins among them.
        series: Different series among them.
        first: The first origin, in steps; None without windows.
        last: The last origin, in steps; None without windows.
        loss_a: Mean loss of A; None without windows.
        loss_b: Mean loss of B; None without windows.
        relative: Loss of B minus that of A, as a share of A's; None if that is 0 or unknown.
        statistic: Positive where B is better; None with too few windows, or without variance.
        degrees: Degrees of freedom of the statistic; None as the statistic.
        p_value: Probability of such a difference in favour of B, or a larger one, between equal
            versions; None with too few windows.
        wait: Number of further origins to wait for; 0 unless there are too few.
        verdict: The quality of B next to A.
        sentence: The verdict in words.
    """

    windows: int
    origins: int
    series: int
    first: int | None
    last: int | None
    loss_a: float | None
    loss_b: float | None
    relative: float | None
    statistic: float | None
    degrees: int | None
    p_value: float | None
    wait: int
    verdict: Verdict
    sentence: str


def compare(
    losses_a: Floats,
    losses_b: Floats,
    series: Sequence[str],
    origins: NDArray[np.int64],
    horizon: int,
    names: tuple[str, str] = ("A", "B"),
) -> Comparison:
    """Compare two versions on the same windows.

    The losses of an origin are averaged over the series that have a window there, and every origin
    weighs the same. So where series have different origins, a series weighs more at origins where
    few others have a window. Gaps between origins are closed: the order of origins counts, not
    their distance (equal spacing of Rho and Vogelsang, 2019).

    The levels are those of one look at the result. A version that is compared every day until a
    difference is found will show one more often.

    Args:
        losses_a: `[windows]`, for example the mean absolute error of each window over its steps
            and channels, divided by a scale of its series, so that all series weigh the same.
        losses_b: `[windows]`, in the same units.
        series: `[windows]`, the series of each window.
        origins: `[windows]`, the last time before each forecast, counted in steps.
        horizon: Steps of each forecast.
        names: Names of A and B in the sentence.

    Raises:
        ValueError: lengths differ, a loss is not finite or is negative, the horizon is not
            positive, or a series has two windows at one origin.
    """
    _check(losses_a, losses_b, series, origins, horizon)
    unique, place = np.unique(origins, return_inverse=True)
    sizes = np.bincount(place, minlength=len(unique))
    a, b = (
        np.bincount(place, losses, minlength=len(unique)) / sizes for losses in (losses_a, losses_b)
    )
    mean_a, mean_b = (float(each.mean()) if len(unique) else None for each in (a, b))
    disjoint = _disjoint(unique, horizon)
    wait = _wait(unique, disjoint, horizon)
    statistic, degrees, p_value = (None, None, None) if wait else _test(a, b, disjoint)
    found = Comparison(
        windows=len(losses_a),
        origins=len(unique),
        series=len(set(series)),
        first=int(unique[0]) if len(unique) else None,
        last=int(unique[-1]) if len(unique) else None,
        loss_a=mean_a,
        loss_b=mean_b,
        relative=(mean_b - mean_a) / mean_a if mean_a and mean_b is not None else None,
        statistic=statistic,
        degrees=degrees,
        p_value=p_value,
        wait=wait,
        verdict=_verdict(mean_a, mean_b, p_value),
        sentence="",
    )
    return replace(found, sentence=_sentence(found, names, horizon))


def _check(
    losses_a: Floats,
    losses_b: Floats,
    series: Sequence[str],
    origins: NDArray[np.int64],
    horizon: int,
) -> None:
    lengths = [len(each) for each in (losses_a, losses_b, series, origins)]
    if len(set(lengths)) > 1:
        raise ValueError(
            f"losses_a, losses_b, series and origins need one entry a window, got {lengths}"
        )
    if horizon < 1:
        raise ValueError(f"expected a horizon of at least 1 step, got {horizon}")
    for name, losses in (("losses_a", losses_a), ("losses_b", losses_b)):
        # A comparison that NaN fails.
        if len(wrong := np.flatnonzero(~((losses >= 0) & (losses < np.inf)))):
            raise ValueError(
                f"{name}[{wrong[0]}] is {losses[wrong[0]]}: leave out windows without a loss that "
                "is finite and at least 0"
            )
    seen: set[tuple[str, int]] = set()
    for window in zip(series, origins.tolist(), strict=True):
        if window in seen:
            raise ValueError(f"series {window[0]} has two windows at origin {window[1]}: keep one")
        seen.add(window)


def _disjoint(origins: NDArray[np.int64], horizon: int) -> int:
    """The largest number of origins, of increasing ones, whose horizons do not overlap."""
    count = place = 0
    while place < len(origins):
        count += 1
        place = int(np.searchsorted(origins, origins[place] + horizon))
    return count


def _wait(origins: NDArray[np.int64], disjoint: int, horizon: int) -> int:
    """Further origins that a verdict needs, if they come as far apart as those before."""
    step = int(np.median(np.diff(origins))) if len(origins) > 1 else horizon
    for_one_horizon = -(-horizon // step)
    return max(LEAST_ORIGINS - len(origins), (LEAST_HORIZONS - disjoint) * for_one_horizon, 0)


def _test(a: Floats, b: Floats, disjoint: int) -> tuple[float | None, int | None, float]:
    """Statistic, degrees of freedom and p value of losses `[origins]` in the order of origins."""
    mean_a, mean_b, count = float(a.mean()), float(b.mean()), len(a)
    # The rule of Lazarus and others; and slower waves than those that overlapping windows have.
    degrees = min(int(0.4 * count ** (2 / 3)), disjoint // 2)
    waves = np.outer(np.arange(1, degrees + 1), (np.arange(count) + 0.5) * (np.pi / count))
    transforms = np.sqrt(2 / count) * (np.cos(waves) @ (a - b))
    error = float(np.sqrt(np.mean(np.square(transforms)) / count))
    if error <= 1e-12 * (mean_a + mean_b):
        # Without variance, only the sign of the difference is left.
        return None, None, 0.5 if _are_equal(mean_a, mean_b) else float(mean_a < mean_b)
    statistic = (mean_a - mean_b) / error
    return statistic, degrees, student_t_above(statistic, degrees)


def student_t_above(value: float, degrees: float) -> float:
    """The probability that Student's t is above a value."""
    half, place = np.array([degrees / 2]), np.array([degrees / (degrees + value**2)])
    tail = float(incomplete_beta(half, np.array([0.5]), place)[0]) / 2
    return tail if value >= 0 else 1 - tail


def _are_equal(mean_a: float, mean_b: float) -> bool:
    return abs(mean_a - mean_b) <= _ROUNDING * mean_a


def _verdict(mean_a: float | None, mean_b: float | None, p_value: float | None) -> Verdict:
    if mean_a is None or mean_b is None or p_value is None:
        return "too few"
    if _are_equal(mean_a, mean_b) or LEVEL < p_value < 1 - LEVEL:
        return "no difference"
    return "better" if p_value <= LEVEL else "worse"


def _sentence(found: Comparison, names: tuple[str, str], horizon: int) -> str:
    a, b = names
    if found.p_value is None:
        return (
            f"There are too few windows to compare {b} with {a}: wait for {found.wait:,} more "
            f"origin{'s' * (found.wait > 1)}. A comparison needs at least {LEAST_ORIGINS} origins, "
            f"and {LEAST_HORIZONS} of them with forecasts of {horizon} steps that do not overlap."
        )
    if found.relative is None:
        losses = f"the loss of {a} is 0"
    elif abs(found.relative) <= _ROUNDING:
        losses = "their losses are equal"
    else:
        side = "lower" if found.relative < 0 else "higher"
        losses = f"the loss of {b} is {abs(found.relative):.2%} {side} than that of {a}"
    losses = f"{losses}, in {found.windows:,} windows of {found.series:,} series"
    if found.verdict == "no difference":
        return f"{b} and {a} do not differ by more than chance: {losses}."
    probability = min(found.p_value, 1 - found.p_value)
    shown = f"{probability:.2%}" if probability >= 1e-4 else "less than 0.01%"
    return (
        f"{b} is {found.verdict} than {a}: {losses}; between equal versions, so large a difference "
        f"in this direction has a probability of {shown}."
    )
