from __future__ import annotations

import json
import math
from dataclasses import asdict
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.service.ledger.comparison import (
    LEAST_HORIZONS,
    LEAST_ORIGINS,
    Comparison,
    compare,
    student_t_above,
)


def compared(
    a: np.ndarray, b: np.ndarray, horizon: int = 1, origins: np.ndarray | None = None
) -> Comparison:
    """Compare losses of one series, from consecutive origins by default."""
    origins = np.arange(len(a)) if origins is None else origins
    return compare(a, b, ["s"] * len(a), origins, horizon)


def losses(seed: int, count: int = 240, better: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.random.default_rng(seed).uniform(1, 3, (2, count))
    return a, b - better


def wave(number: int, count: int) -> np.ndarray:
    return math.sqrt(2) * np.cos(np.pi * number * (np.arange(count) + 0.5) / count)


@pytest.mark.parametrize(
    ("value", "degrees", "probability"),
    [
        (12.7062, 1, 0.025),
        (2.5706, 5, 0.025),
        (2.2281, 10, 0.025),
        (2.0423, 30, 0.025),
        (3.1427, 6, 0.01),
        (1.3722, 10, 0.1),
        (0.0, 7, 0.5),
        (-2.2281, 10, 0.975),
    ],
)
def test_students_t_is_that_of_the_tables(value: float, degrees: int, probability: float) -> None:
    assert student_t_above(value, degrees) == pytest.approx(probability, rel=1e-4)


def test_students_t_of_two_degrees_is_exact_and_of_many_is_normal() -> None:
    for value in (-40.0, -3.0, -1e-9, 0.5, 1.0, 8.0, 1e5):
        exact = 0.5 - value / (2 * math.sqrt(2 + value**2))
        assert student_t_above(value, 2) == pytest.approx(exact, rel=1e-5, abs=1e-15)
    assert student_t_above(1.96, 1_000_000) == pytest.approx(NormalDist().cdf(-1.96), rel=1e-5)


def test_statistic_of_a_slow_wave() -> None:
    # 30 origins have three cosines, and only the first is in the differences.
    difference = 0.1 + 0.2 * wave(1, 30)
    found = compared(1 + difference, np.ones(30))
    assert found.degrees == 3
    assert found.statistic == pytest.approx(0.1 / 0.2 * math.sqrt(3))
    # A fast wave has no part in the variance of the mean.
    both = compared(2 + difference + wave(20, 30) / 5, np.full(30, 2.0))
    assert both.statistic == pytest.approx(found.statistic)


@pytest.mark.parametrize(
    ("count", "horizon", "degrees"), [(30, 1, 3), (240, 1, 15), (240, 24, 5), (672, 24, 14)]
)
def test_statistic_is_that_of_the_formula(count: int, horizon: int, degrees: int) -> None:
    a, b = losses(count, count)
    found = compared(a, b, horizon)
    squares = 0.0
    for number in range(1, degrees + 1):
        part = sum(
            (a[place] - b[place]) * math.cos(math.pi * number * (place + 0.5) / count)
            for place in range(count)
        )
        squares += 2 / count * part**2
    wanted = (a.mean() - b.mean()) / math.sqrt(squares / degrees / count)
    assert (found.statistic, found.degrees) == (pytest.approx(wanted), degrees)
    assert found.p_value == student_t_above(found.statistic, degrees)


def test_a_better_version_is_called_better_and_the_other_one_worse() -> None:
    a, b = losses(1, better=0.5)
    found, exchanged = compared(a, b), compared(b, a)
    assert (found.verdict, exchanged.verdict) == ("better", "worse")
    assert exchanged.statistic == -found.statistic
    assert exchanged.p_value == pytest.approx(1 - found.p_value)
    assert (exchanged.loss_a, exchanged.loss_b) == (found.loss_b, found.loss_a)
    assert found.relative == pytest.approx(b.mean() / a.mean() - 1)


@given(st.integers(0, 1000), st.floats(1e-6, 1e6), st.floats(-0.5, 0.5))
def test_units_change_no_verdict(seed: int, unit: float, better: float) -> None:
    a, b = losses(seed, 60, better)
    found, scaled = compared(a, b), compared(a * unit, b * unit)
    assert scaled.statistic == pytest.approx(found.statistic, rel=1e-6, abs=1e-9)
    assert scaled.relative == pytest.approx(found.relative, rel=1e-6, abs=1e-9)
    assert scaled.verdict == found.verdict


@pytest.mark.parametrize("horizon", [1, 6])
def test_one_window_far_off_decides_nothing(horizon: int) -> None:
    for place in range(72):
        a = np.ones(72)
        a[place] = 1000
        found = compared(a, np.ones(72), horizon)
        assert found.verdict == "no difference", place


@pytest.mark.parametrize(
    ("by", "verdict", "p_value"),
    [(-0.1, "better", 0.0), (0.1, "worse", 1.0), (0.0, "no difference", 0.5)],
)
def test_constant_differences(by: float, verdict: str, p_value: float) -> None:
    a, _ = losses(2)
    found = compared(a, a + by, 24)
    assert (found.verdict, found.p_value, found.statistic) == (verdict, p_value, None)
    assert found.relative == pytest.approx(by / a.mean())


@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_rounding_errors_are_no_difference(noise: float) -> None:
    a, b = losses(3)
    found = compared(a, a * (1 - 1e-8) + noise * b, 24)
    assert found.verdict == "no difference"
    assert "their losses are equal" in found.sentence


def test_versions_without_any_loss() -> None:
    nothing, some = np.zeros(240), np.ones(240)
    same, worse = compared(nothing, nothing), compared(nothing, some)
    assert (same.verdict, same.relative) == ("no difference", None)
    assert (worse.verdict, worse.relative) == ("worse", None)
    assert "the loss of A is 0" in worse.sentence
    assert compared(some, nothing).verdict == "better"


def test_losses_of_an_origin_are_averaged_over_its_series() -> None:
    a, b = losses(4, 300)
    # The second series is only at every third origin; the windows are in no order.
    a_2, b_2 = losses(5, 100)
    origins = np.concatenate([np.arange(300), np.arange(0, 300, 3)])
    series = ["north"] * 300 + ["south"] * 100
    order = np.random.default_rng(6).permutation(400)
    found = compare(
        np.concatenate([a, a_2])[order],
        np.concatenate([b, b_2])[order],
        [series[place] for place in order],
        origins[order],
        24,
    )
    a[::3], b[::3] = (a[::3] + a_2) / 2, (b[::3] + b_2) / 2
    alone = compared(a, b, 24)
    assert found.statistic == pytest.approx(alone.statistic)
    assert (found.loss_a, found.loss_b) == (pytest.approx(a.mean()), pytest.approx(b.mean()))
    assert (found.windows, found.origins, found.series) == (400, 300, 2)
    assert (found.first, found.last) == (0, 299)


def test_gaps_between_origins_are_closed() -> None:
    a, b = losses(7)
    origins = np.arange(240)
    late = np.where(origins < 100, origins, origins + 5000)
    found, gap = compared(a, b, 1, origins), compared(a, b, 1, late)
    assert (gap.statistic, gap.degrees) == (found.statistic, found.degrees)
    assert gap.last == 5239
    # Windows that are further apart overlap less.
    assert compared(a, b, 24, origins).degrees == 5
    assert compared(a, b, 24, origins * 6).degrees == compared(a, b, 4).degrees


@given(st.integers(1, 60), st.integers(1, 30), st.integers(0, 400))
def test_after_the_wait_there_is_a_verdict(horizon: int, apart: int, count: int) -> None:
    a, b = losses(8, 3000)
    spaced = np.arange(3000) * apart
    found = compared(a[:count], b[:count], horizon, spaced[:count])
    if not found.wait:
        assert found.verdict != "too few"
        return
    assert (found.verdict, found.p_value, found.statistic) == ("too few", None, None)
    if count < 2:
        # How far apart origins are is not known yet.
        return
    enough = count + found.wait
    assert compared(a[:enough], b[:enough], horizon, spaced[:enough]).verdict != "too few"
    assert compared(a[:count], b[:count], horizon, spaced[:count]).wait > 0


def test_origins_and_horizons_must_suffice() -> None:
    a, b = losses(9, 1000)
    assert compared(a[:29], b[:29]).wait == 1
    assert compared(a[:LEAST_ORIGINS], b[:LEAST_ORIGINS]).wait == 0
    least = 24 * (LEAST_HORIZONS - 1) + 1
    assert compared(a[:least], b[:least], 24).wait == 0
    assert compared(a[: least - 1], b[: least - 1], 24).wait == 24
    assert compared(a[:30], b[:30], 24, np.arange(30) * 12).wait == 0


def test_without_windows_there_is_no_verdict() -> None:
    nothing = np.zeros(0)
    found = compare(nothing, nothing, [], np.zeros(0, np.int64), 24)
    assert (found.verdict, found.wait, found.windows) == ("too few", LEAST_ORIGINS, 0)
    assert (found.first, found.last, found.loss_a, found.loss_b) == (None, None, None, None)


def test_sentences() -> None:
    a, b = losses(1, better=0.9)
    names = ("1", "2")
    series, origins = ["s"] * 240, np.arange(240)

    def sentence(one: np.ndarray, other: np.ndarray, count: int = 240) -> str:
        cut = slice(count)
        return compare(one[cut], other[cut], series[cut], origins[cut], 24, names).sentence

    better = b.mean() / a.mean() - 1
    assert sentence(a, b) == (
        f"2 is better than 1: the loss of 2 is {-better:.2%} lower than that of 1, in 240 windows "
        "of 1 series; between equal versions, so large a difference in this direction has a "
        "probability of less than 0.01%."
    )
    assert sentence(b, a).startswith("2 is worse than 1: the loss of 2 is ")
    assert "higher than that of 1" in sentence(b, a)
    unsure = compared(*losses(1, better=0.3), 24)
    assert unsure.verdict == "better"
    assert unsure.sentence.endswith(f" has a probability of {unsure.p_value:.2%}.")
    same = losses(3)
    assert sentence(*same).startswith("2 and 1 do not differ by more than chance: the loss of 2 is")
    assert sentence(a, b, 48) == (
        "There are too few windows to compare 2 with 1: wait for 192 more origins. A comparison "
        "needs at least 30 origins, and 10 of them with forecasts of 24 steps that do not overlap."
    )
    assert "wait for 1 more origin." in compared(a[:29], b[:29]).sentence


@pytest.mark.parametrize("count", [0, 29, 240])
def test_a_result_is_ready_for_json(count: int) -> None:
    a, b = losses(1)
    json.dumps(asdict(compared(a[:count], b[:count])), allow_nan=False)


def test_faulty_windows_are_refused() -> None:
    a, b = losses(10, 3)
    origins = np.arange(3)
    with pytest.raises(ValueError, match=r"one entry a window, got \[3, 2, 3, 3\]"):
        compare(a, b[:2], ["s"] * 3, origins, 1)
    with pytest.raises(ValueError, match="a horizon of at least 1 step, got 0"):
        compare(a, b, ["s"] * 3, origins, 0)
    for wrong in (math.nan, math.inf, -1.0):
        b[1] = wrong
        with pytest.raises(ValueError, match=rf"^losses_b\[1\] is {wrong}: leave out windows"):
            compare(a, b, ["s"] * 3, origins, 1)
    b[1] = 1.0
    with pytest.raises(ValueError, match=r"^series t has two windows at origin 0: keep one"):
        compare(a, b, ["t", "s", "t"], np.array([0, 0, 0]), 1)
