"""A sample of the simulation of verdicts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from bench.research.comparison import BETTER, EQUAL, Case, judged, simulated, textbook

_SEEDS = 30


@pytest.mark.parametrize("name", ["other errors", "trained alike"])
def test_equal_models_are_seldom_called_better(name: str) -> None:
    served = Counter(judged(EQUAL[name], 14, seed)[0] for seed in range(_SEEDS))
    assert served["better"] <= 2
    assert served["no difference"] >= _SEEDS - 4


def test_a_model_that_is_5_percent_better_is_mostly_found() -> None:
    found = [judged(BETTER["trained alike, B 5% better"], 14, seed) for seed in range(_SEEDS)]
    assert np.mean([loss for _, _, loss in found]) == pytest.approx(-0.05, abs=0.01)
    served = Counter(verdict for verdict, _, _ in found)
    assert served["better"] >= 0.6 * _SEEDS
    assert served["worse"] == 0


def test_simulated_losses_are_of_the_same_size_and_last_for_hours() -> None:
    a, b = simulated(Case((0.5, 0.5)), 2000, np.random.default_rng(0))
    assert a.shape == (10, 2000)
    assert a.mean() == pytest.approx(b.mean(), rel=0.05)
    difference = (a - b).mean(axis=0)
    assert np.corrcoef(difference[:-6], difference[6:])[0, 1] > 0.3
    assert abs(np.corrcoef(difference[:-200], difference[200:])[0, 1]) < 0.3


def test_textbook_test_finds_clear_differences() -> None:
    a, b = np.random.default_rng(2).uniform(1, 3, (2, 600))
    verdicts = [textbook(a, b), textbook(a, b - 0.5), textbook(a, b + 0.5)]
    assert verdicts == ["no difference", "better", "worse"]


def test_textbook_test_has_a_variance_where_autocovariances_add_up_to_less_than_0() -> None:
    difference = np.cos(2 * np.pi * 1.5 / 47 * np.arange(600))
    moved = difference - difference.mean()
    sums = [moved[lag:] @ moved[: 600 - lag] for lag in range(24)]
    assert sums[0] + 2 * sum(sums[1:]) < 0
    assert textbook(2 + difference, np.full(600, 2.0)) == "no difference"
    assert textbook(3 + difference, np.full(600, 2.0)) == "better"
