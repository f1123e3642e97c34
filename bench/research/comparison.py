"""Verdicts of the comparison of two versions on simulated hourly forecasts, by two tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bench.harness import Result, Row, Run
from foretell.service.ledger.comparison import LEVEL, Verdict, compare, student_t_above

HORIZON = 24
_SEEDS, _QUICK_SEEDS = 400, 8
_DAYS = (14, 28)
# The most often that one of two equal models may be called better, and the least often that a
# model that is 5% better must be, after the longer time.
_MOST_WRONG, _LEAST_FOUND = 0.07, 0.6
# Share of a value that stays in the next hour, and the size of what is new.
_PERSISTENCE, _NEW = 0.8, 0.6
_BURN_IN = 300
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """Two models on some series; sizes of errors are standard deviations.

    Attributes:
        own: Sizes of the errors that only A, and only B, makes.
        both: Size of the errors that both make, besides those that no model avoids.
        stays: Share of a model's error that stays in the next hour.
        series: Number of series.
        alike: Share of the variance of errors that all series have in common.
        missing: Share of origins without forecasts.
    """

    own: tuple[float, float]
    both: float = 0.0
    stays: float = 0.9
    series: int = 10
    alike: float = 0.2
    missing: float = 0.0


EQUAL = {
    "other errors": Case((0.5, 0.5)),
    "trained alike": Case((0.2, 0.2), both=0.4),
    "other errors, which last for days": Case((0.5, 0.5), stays=0.98),
    "other errors, one series": Case((0.5, 0.5), series=1),
    "other errors, 30% of origins missing": Case((0.5, 0.5), missing=0.3),
}
BETTER = {
    "other errors, B 5% better": Case((0.5, 0.371)),
    "trained alike, B 5% better": Case((0.4, 0.222), both=0.3),
}


def measure(run: Run) -> Result:
    """Shares of verdicts among seeds."""
    seeds, failures = run.pick(_SEEDS, _QUICK_SEEDS), []
    rows: list[Row] = []
    for name, case in (EQUAL | BETTER).items():
        if not run.wants(name):
            continue
        for days in _DAYS:
            found = [judged(case, days, seed) for seed in range(seeds)]
            losses = float(np.mean([each[2] for each in found]))
            row = {"models": name, "days": days, "loss of B": f"{round(losses, 3) + 0.0:+.1%}"}
            for place, test in enumerate(("served", "textbook")):
                for verdict in ("better", "worse"):
                    share = np.mean([each[place] == verdict for each in found])
                    row[f"{test}: {verdict}"] = f"{share:.1%}"
            rows.append(row)
            print(row, flush=True)
            better = np.mean([each[0] == "better" for each in found])
            if name in EQUAL and better > _MOST_WRONG:
                failures.append(f"{name}, {days} days: equal, but better in {better:.1%}")
            if name in BETTER and days == max(_DAYS) and better < _LEAST_FOUND:
                failures.append(f"{name}, {days} days: better, but found in {better:.1%}")
    return Result({"verdicts": rows}, () if run.quick else failures)


def judged(case: Case, days: int, seed: int) -> tuple[Verdict, Verdict, float]:
    """The verdicts of the served and of the textbook test, and the relative loss of B."""
    random = np.random.default_rng(seed)
    origins = np.arange(days * 24)
    losses = np.stack(list(simulated(case, len(origins), random)))
    kept = np.sort(random.permutation(origins)[: round(len(origins) * (1 - case.missing))])
    a, b = losses[:, :, kept]
    names = [str(each) for each in np.repeat(np.arange(case.series), len(kept))]
    found = compare(a.ravel(), b.ravel(), names, np.tile(kept, case.series), HORIZON)
    assert found.relative is not None
    return found.verdict, textbook(a.mean(axis=0), b.mean(axis=0)), found.relative


def textbook(a: Floats, b: Floats) -> Verdict:
    """The test of Harvey, Leybourne and Newbold (1997) on losses `[origins]` without gaps."""
    count, overlap = len(a), HORIZON
    moved = (a - b) - (a - b).mean()
    covariances = [moved[lag:] @ moved[: count - lag] / count for lag in range(overlap)]
    variance = covariances[0] + 2 * sum(covariances[1:])
    if variance <= 0:
        # Bartlett's weights make it positive.
        weights = 1 - np.arange(1, overlap) / overlap
        variance = covariances[0] + 2 * weights @ covariances[1:]
    correction = (count + 1 - 2 * overlap + overlap * (overlap - 1) / count) / count
    statistic = (a - b).mean() / np.sqrt(variance / count / correction)
    p_value = student_t_above(float(statistic), count - 1)
    if LEVEL < p_value < 1 - LEVEL:
        return "no difference"
    return "better" if p_value <= LEVEL else "worse"


def simulated(case: Case, origins: int, random: np.random.Generator) -> Iterator[Floats]:
    """Mean absolute errors `[series, origins]` of forecasts by A, then by B, from every hour."""
    hours = origins + HORIZON
    # Errors are larger by day, and for days at a time.
    size = 1 + 0.5 * np.sin(2 * np.pi * np.arange(hours) / 24)
    size = size * np.exp(0.3 * _lasting(0.98, replace(case, series=1), hours, random))
    new = _NEW * size * _lasting(0.0, case, hours, random)
    steps = np.arange(1, HORIZON + 1)
    # `[origins, steps]`, the hour of each forecast value.
    at = np.arange(origins)[:, None] + steps
    unavoidable = np.zeros((case.series, origins, HORIZON))
    for step in range(HORIZON):
        before = unavoidable[:, :, step - 1] if step else 0.0
        unavoidable[:, :, step] = _PERSISTENCE * before + new[:, at[:, step]]

    def errors() -> Floats:
        """Errors of unit size: half of the variance by hour, half by origin."""
        by_hour = size * _lasting(case.stays, case, hours, random)
        by_origin = _lasting(case.stays, case, hours, random)
        found: Floats = np.sqrt(0.5) * (by_hour[:, at] + by_origin[:, :origins, None])
        return found

    known = unavoidable + case.both * errors()
    for own in case.own:
        yield np.abs(known + own * errors()).mean(axis=-1)


def _lasting(stays: float, case: Case, hours: int, random: np.random.Generator) -> Floats:
    """Autoregressive noise `[series, hours]` of variance 1, alike in all series by some part."""
    length = hours + (_BURN_IN if stays else 0)
    noise = np.sqrt(case.alike) * random.standard_normal(length)
    noise = noise + np.sqrt(1 - case.alike) * random.standard_normal((case.series, length))
    noise = noise * np.sqrt(1 - stays**2)
    if stays:
        for hour in range(1, length):
            noise[:, hour] += stays * noise[:, hour - 1]
    return noise[:, length - hours :]
