from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.bundle.calibration import (
    Calibration,
    bounds,
    order_statistics,
    rank,
    scale,
    stored_levels,
)

LEVELS = st.floats(0.001, 0.999)


@pytest.mark.parametrize("windows", range(1, 25))
def test_rank_is_the_smallest_with_the_promised_coverage(windows: int) -> None:
    """The next error has every rank among the others with the same probability."""
    total = windows + 1

    def at_most(place: int) -> Fraction:
        others = [sorted(set(range(total)) - {further}) for further in range(total)]
        held = sum(further <= sorted_[place - 1] for further, sorted_ in enumerate(others))
        return Fraction(held, total)

    held = {place: at_most(place) for place in range(1, total)}
    for percent in range(1, 100):
        level = Fraction(percent, 100)
        inside = Fraction(1, total) <= level <= Fraction(windows, total)
        if level >= Fraction(1, 2):
            enough = [place for place, share in held.items() if share >= level]
            expected = min(enough, default=windows)
        else:
            few = [place for place, share in held.items() if share <= level]
            expected = max(few, default=1)
        assert rank(percent / 100, windows) == expected
        low, high = bounds(windows)
        assert (low <= percent / 100 <= high) is inside


@given(st.integers(1, 5000), LEVELS, LEVELS)
def test_ranks_never_decrease_and_mirror(windows: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 1 <= rank(low, windows) <= rank(high, windows) <= windows
    if low < 0.5:
        assert rank(low, windows) + rank(1 - low, windows) == windows + 1


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=4))
def test_stored_levels_cover_those_of_every_pass(windows: list[int]) -> None:
    levels = stored_levels(windows)
    assert np.all(np.diff(levels) > 0)
    assert (levels[0], levels[-1]) == bounds(max(windows))
    for count in windows:
        assert set(bounds(count)) <= set(levels)


def test_common_levels_are_stored() -> None:
    assert {0.025, 0.05, 0.1, 0.5, 0.9, 0.95, 0.975} <= set(stored_levels([1024]))


@given(st.data())
def test_interpolated_offsets_are_ordered(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 40))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    levels = stored_levels([count])
    errors = random.standard_t(1.5, (count, 3, 2)).astype(np.float32)
    stored = Calibration(levels, order_statistics(errors, levels))
    drawn = data.draw(st.lists(st.floats(levels[0], levels[-1]), min_size=1, max_size=20))
    found = stored.at(np.array(sorted([*drawn, *levels])), 2)
    assert found.shape == (len(drawn) + len(levels), 2, 2)
    assert np.all(np.diff(found, axis=0) >= 0)
    np.testing.assert_array_equal(stored.at(levels, 3), stored.offsets)
    between = np.searchsorted(levels, drawn)
    for upper, offset in zip(between, stored.at(np.array(drawn), 3), strict=True):
        assert np.all(offset <= stored.offsets[upper])
        assert np.all(offset >= stored.offsets[max(upper - 1, 0)])


def test_halfway_between_two_levels() -> None:
    offsets = np.array([-1.0, 0.0, 4.0], np.float32)[:, None, None]
    stored = Calibration(np.array([0.1, 0.5, 0.9]), offsets)
    found = stored.at(np.array([0.3, 0.6, 0.9]), 1)
    np.testing.assert_allclose(found.ravel(), [-0.5, 1.0, 4.0])


@pytest.mark.parametrize("tails", [(0.1, 0.9), (0.025, 0.975), (0.13, 0.87), (0.4, 0.99)])
def test_coverage_of_exchangeable_errors(tails: tuple[float, float]) -> None:
    """Each step is an experiment: errors for the calibration, and one error to cover."""
    windows, trials = 199, 20_000
    random = np.random.default_rng(5)
    draws = random.gamma(2.0, size=(windows + 1, trials, 1))
    levels = stored_levels([windows])
    stored = Calibration(levels, order_statistics(draws[1:], levels))
    low, high = stored.at(np.array(tails), trials)
    held = float(((draws[0] >= low) & (draws[0] <= high)).mean())
    nominal = tails[1] - tails[0]
    deviation = np.sqrt(nominal * (1 - nominal) / trials)
    # Linear interpolation of a convex tail covers up to one percent too much.
    assert nominal - 4 * deviation <= held <= nominal + 2 / (windows + 1) + 0.01 + 4 * deviation


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.floats(1e-3, 1e3), st.floats(-100, 100))
def test_the_scale_follows_the_units(seed: int, factor: float, shift: float) -> None:
    history = np.random.default_rng(seed).normal(size=(4, 12, 2))
    floor = np.array([0.1, 5.0])
    expected = factor * scale(history, floor)
    np.testing.assert_allclose(scale(factor * history + shift, factor * floor), expected, rtol=1e-6)


def test_constant_history_has_the_smallest_scale() -> None:
    history = np.full((1, 8, 2), 3e7, np.float32)
    history[0, ::2, 1] += 64
    found = scale(history, np.array([0.5, 0.25]))
    np.testing.assert_array_equal(found, [[[0.5, 32.0]]])


def test_scale_leaves_missing_values_out() -> None:
    history = np.random.default_rng(0).normal(size=(2, 12, 2))
    history[0, 3:7, 1] = history[1, -1, 0] = np.nan
    found = scale(history, np.array([0.0, 0.0]))
    np.testing.assert_allclose(found[:, 0], np.nanstd(history, axis=1))
    # Other windows of the batch have no influence.
    np.testing.assert_array_equal(found[1, 0, 1], np.nan_to_num(history).std(axis=1)[1, 1])
