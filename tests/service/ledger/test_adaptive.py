"""Offsets that learn from recent errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.bundle.calibration import Calibration, order_statistics, stored_levels
from foretell.service.ledger import adaptive
from foretell.service.ledger.adaptive import LATEST_ORIGINS, learn, pool
from tests.service.ledger.plain import learned_plainly

STEPS, CHANNELS = 3, 2
LEVELS = stored_levels([499])
EDGES = np.array([0.025, 0.1, 0.9, 0.975])


def drawn(origins: int, seed: int, spread: float = 1.0, shift: float = 0.0) -> np.ndarray:
    """Errors `[origins, steps, channels]`, which grow with the steps."""
    random = np.random.default_rng(seed)
    growth = np.sqrt(np.arange(1, STEPS + 1))[:, None]
    return random.normal(shift, spread, (origins, STEPS, CHANNELS)) * growth


PRIOR = Calibration(LEVELS, order_statistics(drawn(499, 0), LEVELS))


def hidden(errors: np.ndarray, positions: np.ndarray, now: int) -> np.ndarray:
    """The errors, NaN where their time is after `now`."""
    leads = np.arange(1, errors.shape[1] + 1)
    return np.where((positions[:, None] + leads > now)[..., None], np.nan, errors)


def coverage(offsets: Calibration, errors: np.ndarray) -> np.ndarray:
    """The shares of errors `[steps, channels]` in the intervals of 80% and of 95%."""
    edges = offsets.at(EDGES, STEPS)
    pairs = (edges[1], edges[2]), (edges[0], edges[3])
    return np.stack([((low <= errors) & (errors <= high)).mean(axis=0) for low, high in pairs])


def latest(errors: np.ndarray, now: int) -> Calibration:
    """The offsets learned at an hour from hourly origins."""
    positions = np.arange(max(0, now - LATEST_ORIGINS), now)
    return learn(hidden(errors[positions], positions, now), positions, PRIOR).calibration


def test_errors_like_those_of_the_prior_are_covered_at_the_nominal_rate() -> None:
    errors = drawn(LATEST_ORIGINS, 1)
    found = coverage(latest(errors, LATEST_ORIGINS), drawn(4000, 2))
    np.testing.assert_allclose(found[0], 0.8, atol=0.06)
    np.testing.assert_allclose(found[1], 0.95, atol=0.03)


@pytest.mark.parametrize(("spread", "shift"), [(3.0, 0.0), (0.3, 0.0), (1.0, 4.0)])
def test_errors_unlike_those_of_the_prior_are_covered_at_the_nominal_rate(
    spread: float, shift: float
) -> None:
    errors, later = drawn(LATEST_ORIGINS, 1, spread, shift), drawn(4000, 2, spread, shift)
    found = coverage(latest(errors, LATEST_ORIGINS), later)
    stored = coverage(PRIOR, later)
    assert (abs(stored[0] - 0.8) > 0.15).all()
    np.testing.assert_allclose(found[0], 0.8, atol=0.08)
    np.testing.assert_allclose(found[1], 0.95, atol=0.045)


@pytest.mark.parametrize(("spread", "shift"), [(3.0, 0.0), (1.0, 3.0)])
def test_a_jump_of_the_errors_is_followed(spread: float, shift: float) -> None:
    errors = np.concatenate([drawn(300, 1), drawn(600, 3, spread, shift)])
    later = drawn(4000, 2, spread, shift)
    at_once, soon, at_last = (
        coverage(latest(errors, now), later).mean(axis=(1, 2)) for now in (300, 400, 800)
    )
    assert (at_once < soon).all()
    np.testing.assert_allclose(soon, [0.8, 0.95], atol=0.13)
    np.testing.assert_allclose(at_last, [0.8, 0.95], atol=0.05)


def test_adapted_levels_cover_a_drift_better_than_recent_errors_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    growth = np.exp(np.arange(700) / 150)[:, None, None]
    errors = drawn(700, 1) * growth
    hours = range(320, 690, 7)

    def covered() -> float:
        within = [coverage(latest(errors, hour), errors[hour : hour + 1])[0] for hour in hours]
        return float(np.mean(within))

    adapted = covered()
    monkeypatch.setattr(adaptive, "_STEP_SIZES", np.zeros(1))
    assert covered() + 0.03 < adapted < 0.83


def test_an_error_is_ranked_only_among_errors_that_were_known_at_its_origin() -> None:
    """Step h of the origin at t is compared with origins up to t - h."""
    positions = np.array([0, 1, 2, 4, 5, 9, 10])
    errors = np.random.default_rng(5).normal(size=(7, 3, 1))
    plain = Calibration(LEVELS, PRIOR.offsets[..., :1])
    for step in range(3):
        for changed, place in enumerate(positions):
            other = errors.copy()
            other[changed, step] += 100
            before, after = (ranks_of(one, positions, plain) for one in (errors, other))
            moved = np.flatnonzero((before != after)[:, step])
            expected = [at for at in range(7) if positions[at] >= place + step + 1]
            assert set(moved) <= {changed, *expected}
            assert changed in moved


def ranks_of(errors: np.ndarray, positions: np.ndarray, prior: Calibration) -> np.ndarray:
    steps = errors.shape[1]
    earlier = [
        np.searchsorted(positions, positions - lead, "right") for lead in range(1, steps + 1)
    ]
    return adaptive._ranks(
        errors[..., 0],
        positions,
        prior.levels,
        prior.offsets[:, :steps, 0].astype(float),
        np.arange(1, steps + 1),
        np.stack(earlier, axis=1),
    )


def test_an_error_moves_the_levels_by_those_that_were_adapted_at_its_origin() -> None:
    """Two origins that wait at the same time move from one level, each by half a step."""
    ranks = np.full((2, 1), 0.99)
    together = adaptive._adapted(ranks, np.zeros((2, 1), np.int64))[0]
    apart = adaptive._adapted(ranks, np.array([[0], [1]]))[0]
    middle = list(adaptive._LEVELS).index(0.5)
    # The mean over equal weights: all sizes lose alike when all start from one level.
    size = adaptive._STEP_SIZES.mean()
    assert together[middle] == pytest.approx(0.5 + 0.5 * size * 1.5, abs=1e-4)
    assert apart[middle] > 0.5 + 0.5 * size * 1.9


def test_without_errors_the_offsets_are_those_of_the_prior() -> None:
    for origins in (0, 4):
        learned = learn(np.full((origins, STEPS, CHANNELS), np.nan), np.arange(origins), PRIOR)
        np.testing.assert_array_equal(learned.calibration.offsets, PRIOR.offsets)
        assert not learned.origins.any()


def test_few_errors_change_the_offsets_little() -> None:
    stored = PRIOR.at(EDGES, STEPS)
    changes = []
    for origins in (1, 5, 20, 100):
        errors = drawn(origins, 1, 3.0)
        offsets = learn(errors, 24 * np.arange(origins), PRIOR).calibration.at(EDGES, STEPS)
        changes.append(np.abs(offsets - stored).mean())
    assert changes == sorted(changes)
    assert changes[0] < 0.25 * changes[-1]


@pytest.mark.parametrize("origins", [1, 2, 5, 10, 30])
def test_few_errors_like_those_of_the_prior_keep_the_nominal_rate(origins: int) -> None:
    learned = [learn(drawn(origins, seed), np.arange(origins), PRIOR) for seed in range(30)]
    later = drawn(4000, 99)
    found = np.mean([coverage(each.calibration, later) for each in learned], axis=(0, 2, 3))
    np.testing.assert_allclose(found, [0.8, 0.95], atol=0.035)


def test_a_narrow_prior_is_widened_by_the_errors_of_all_steps() -> None:
    """30 origins are few independent errors of step 24, but show that all intervals are narrow."""
    steps, random = 24, np.random.default_rng(7)
    prior = Calibration(LEVELS, order_statistics(random.normal(0, 0.5, (499, steps, 1)), LEVELS))
    errors, later = (random.normal(0, 1, (count, steps, 1)) for count in (30, 4000))

    def held(calibration: Calibration) -> float:
        low, high = calibration.at(np.array([0.1, 0.9]), steps)
        return float(((low <= later) & (later <= high)).mean(axis=0)[-1, 0])

    assert held(prior) < 0.5
    assert held(learn(errors, np.arange(30), prior).calibration) > 0.6


def test_a_prior_is_not_narrowed() -> None:
    errors, positions = drawn(LATEST_ORIGINS, 1, 0.5), np.arange(LATEST_ORIGINS)
    np.testing.assert_array_equal(adaptive._widened(errors, positions, PRIOR), PRIOR.offsets)
    wide = adaptive._widened(4 * errors, positions, PRIOR)
    width, stored = (np.ptp(each.astype(float), axis=0) for each in (wide, PRIOR.offsets))
    ratio = width / stored
    np.testing.assert_allclose(ratio, ratio[:1].repeat(STEPS, axis=0), rtol=1e-6)
    assert (ratio > 1.8).all()


def test_a_prior_without_width_stays_as_it_is() -> None:
    flat = Calibration(LEVELS, np.zeros((len(LEVELS), STEPS, CHANNELS), np.float32))
    assert not adaptive._widened(drawn(50, 1), np.arange(50), flat).any()


def test_overlapping_forecasts_weigh_less_than_those_apart() -> None:
    errors = drawn(20, 1, 3.0)
    together, apart = (
        learn(errors, gap * np.arange(20), PRIOR).calibration.at(EDGES, STEPS) for gap in (1, 3)
    )
    width_together, width_apart = (edges[2] - edges[1] for edges in (together, apart))
    assert (width_together[2] < width_apart[2]).all()
    np.testing.assert_allclose(width_together[0], width_apart[0], rtol=0.05)


def test_a_channel_without_values_leaves_the_other_as_it_is() -> None:
    errors, positions = drawn(60, 1, 2.0), np.arange(60)
    broken = errors.copy()
    broken[..., 1] = np.nan
    whole, part = (learn(each, positions, PRIOR) for each in (errors, broken))
    np.testing.assert_array_equal(
        whole.calibration.offsets[..., 0], part.calibration.offsets[..., 0]
    )
    np.testing.assert_array_equal(part.calibration.offsets[..., 1], PRIOR.offsets[..., 1])
    np.testing.assert_array_equal(part.origins, [[60, 0]] * STEPS)


def test_infinite_errors_count_as_unknown() -> None:
    errors = drawn(60, 1)
    errors[10:20, 1] = np.nan
    infinite = np.where(np.isnan(errors), np.inf, errors)
    expected, found = (learn(each, np.arange(60), PRIOR) for each in (errors, infinite))
    np.testing.assert_array_equal(found.calibration.offsets, expected.calibration.offsets)
    np.testing.assert_array_equal(found.origins[:, 0], [60, 50, 60])


def test_blocks_of_tracks_do_not_change_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    errors, positions = drawn(40, 1, 2.0), np.arange(40)
    expected = learn(errors, positions, PRIOR).calibration.offsets
    monkeypatch.setattr(adaptive, "_BLOCK", 1)
    np.testing.assert_allclose(learn(errors, positions, PRIOR).calibration.offsets, expected)


@st.composite
def histories(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Errors with gaps and ties at positions with gaps and ties."""
    origins = draw(st.integers(1, 12))
    gaps = draw(st.lists(st.integers(0, 4), min_size=origins, max_size=origins))
    positions = np.cumsum(gaps, dtype=np.int64)
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    errors = random.normal(draw(st.floats(-3, 3)), 2.0, (origins, STEPS, CHANNELS))
    if draw(st.booleans()):
        errors = errors.round()
    return np.where(random.random(errors.shape) < 0.2, np.nan, errors), positions


@given(histories())
@settings(deadline=None, max_examples=25)
def test_offsets_equal_those_of_plain_loops(history: tuple[np.ndarray, np.ndarray]) -> None:
    errors, positions = history
    learned = learn(errors, positions, PRIOR)
    expected = learned_plainly(errors, positions, PRIOR)
    np.testing.assert_allclose(learned.calibration.offsets, expected, rtol=1e-5, atol=1e-5)


@given(histories())
@settings(deadline=None, max_examples=50)
def test_offsets_never_decrease_with_the_level(history: tuple[np.ndarray, np.ndarray]) -> None:
    learned = learn(*history, PRIOR)
    assert np.isfinite(learned.calibration.offsets).all()
    assert (np.diff(learned.calibration.offsets, axis=0) >= 0).all()
    np.testing.assert_array_equal(learned.calibration.levels, PRIOR.levels)


def test_errors_that_are_all_equal_give_offsets_near_them() -> None:
    errors = np.full((200, STEPS, CHANNELS), 7.0)
    middle = learn(errors, np.arange(200), PRIOR).calibration.at(np.array([0.3, 0.5]), STEPS)
    np.testing.assert_array_equal(middle, 7.0)


def test_a_new_series_starts_from_the_offsets_of_its_model() -> None:
    series = [drawn(50, seed, 3.0) for seed in range(20)]
    of_model = learn(*pool(series, [np.arange(50)] * 20), PRIOR).calibration
    nothing = learn(np.full((1, STEPS, CHANNELS), np.nan), np.zeros(1, np.int64), of_model)
    np.testing.assert_array_equal(nothing.calibration.offsets, of_model.offsets)
    found = coverage(nothing.calibration, drawn(4000, 99, 3.0))
    np.testing.assert_allclose(found[0], 0.8, atol=0.05)


def test_steps_without_forecasts_keep_the_offsets_of_the_prior() -> None:
    errors, positions = drawn(100, 5, 3.0)[:, :2], np.arange(100)
    longer = learn(errors, positions, PRIOR)
    shorter = learn(errors, positions, Calibration(LEVELS, PRIOR.offsets[:, :2]))
    offsets = longer.calibration.offsets
    np.testing.assert_array_equal(offsets[:, :2], shorter.calibration.offsets)
    np.testing.assert_array_equal(offsets[:, 2:], PRIOR.offsets[:, 2:])
    np.testing.assert_array_equal(longer.origins[:, 0], [100, 100, 0])


def test_a_pool_is_in_the_order_of_time() -> None:
    first, second = drawn(3, 1), drawn(2, 2)
    errors, positions = pool([first, second], [np.array([0, 4, 8]), np.array([1, 8])])
    np.testing.assert_array_equal(positions, [0, 1, 4, 8, 8])
    np.testing.assert_array_equal(
        errors, np.stack([first[0], second[0], first[1], first[2], second[1]])
    )


def test_a_large_pool_keeps_evenly_spaced_origins() -> None:
    errors, positions = pool([drawn(101, 1)] * 2, [np.arange(101)] * 2, most=11)
    np.testing.assert_allclose(positions, np.arange(0, 101, 10), atol=1)
    assert errors.shape == (11, STEPS, CHANNELS)


def test_input_that_does_not_match_is_refused() -> None:
    errors = drawn(4, 1)
    with pytest.raises(ValueError, match=r"expected 4 positions, one for each origin, got \(3,\)"):
        learn(errors, np.arange(3), PRIOR)
    with pytest.raises(ValueError, match="the positions decrease: sort the origins by time"):
        learn(errors, np.arange(4)[::-1], PRIOR)
    with pytest.raises(ValueError, match=r"3 steps and 1 channels, the prior .* 3 steps and 2"):
        learn(errors[..., :1], np.arange(4), PRIOR)
    with pytest.raises(ValueError, match=r"6 steps and 2 channels, the prior .* 3 steps and 2"):
        learn(np.concatenate([errors, errors], axis=1), np.arange(4), PRIOR)
