from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.bundle.calibration import Calibration, order_statistics, stored_levels
from foretell.service.engine.recalibration import Recalibration, stride_of

STEPS, CHANNELS, STRIDE = 6, 2, 1
LEVELS = stored_levels([499])
WANTED = [0.1, 0.5, 0.9]


def drawn(count: int, seed: int, spread: float = 1.0, shift: float = 0.0) -> np.ndarray:
    """Errors `[count, steps, channels]`, which grow with the steps."""
    random = np.random.default_rng(seed)
    growth = np.sqrt(np.arange(1, STEPS + 1))[:, None]
    return (random.normal(shift, spread, (count, STEPS, CHANNELS)) * growth).astype(np.float32)


CALIBRATION = Calibration(LEVELS, order_statistics(drawn(499, 0), LEVELS))
STORED = Recalibration.of(CALIBRATION, STEPS)


def held(offsets: np.ndarray, errors: np.ndarray) -> float:
    """The share of errors between the first and the last of some offsets."""
    return float(((offsets[0] <= errors) & (errors <= offsets[-1])).mean())


def test_errors_like_the_stored_ones_hardly_change_offsets() -> None:
    offsets = STORED.offsets(drawn(100, 1), STRIDE, WANTED)
    stored = CALIBRATION.at(np.array(WANTED), STEPS)
    assert offsets.shape == (3, STEPS, CHANNELS)
    np.testing.assert_allclose(offsets, stored, atol=0.6)
    assert held(offsets, drawn(2000, 2)) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(("spread", "shift"), [(3.0, 0.0), (1.0, 2.0), (0.4, 0.0)])
def test_offsets_follow_other_errors(spread: float, shift: float) -> None:
    later = drawn(2000, 2, spread, shift)
    few, many = (
        STORED.offsets(drawn(count, 1, spread, shift), STRIDE, WANTED) for count in (40, 1500)
    )
    stored = CALIBRATION.at(np.array(WANTED), STEPS)
    off = [abs(held(offsets, later) - 0.8) for offsets in (stored, few, many)]
    # With more origins coverage is closer to the level.
    assert off[0] > off[1] > off[2]
    assert off[2] < 0.05
    if shift:
        growth = np.sqrt(np.arange(1, STEPS + 1))
        np.testing.assert_allclose(many[1, :, 0], 2 * growth, rtol=0.2)


def test_bias_of_a_step_does_not_widen_intervals() -> None:
    wave = np.array([0, 4, 0, -4, 0, 0], np.float32)[:, None]
    plain, waved = (
        STORED.offsets(drawn(300, 1) + shift, STRIDE, WANTED) for shift in (0 * wave, wave)
    )
    np.testing.assert_allclose(waved[1] - plain[1], np.tile(wave, (1, CHANNELS)), atol=0.6)
    np.testing.assert_allclose(np.ptp(waved, axis=0), np.ptp(plain, axis=0), rtol=0.15)
    # One origin is too few.
    (once,) = STORED.offsets(np.tile(wave, (1, 1, CHANNELS)), STRIDE, [0.5])
    assert np.abs(once).max() < 1


def test_recent_errors_weigh_more() -> None:
    calm, wild = drawn(150, 1, 0.5), drawn(150, 2, 4.0)
    width = [
        np.ptp(STORED.offsets(np.concatenate(order), STRIDE, WANTED), axis=0).mean()
        for order in ((wild, calm), (calm, wild))
    ]
    assert width[0] < 0.8 * width[1]


def test_channels_are_recalibrated_separately() -> None:
    errors = drawn(500, 1)
    errors[:, :, 1] += 5
    offsets = STORED.offsets(errors, STRIDE, WANTED)
    alone = STORED.offsets(drawn(500, 1), STRIDE, WANTED)
    np.testing.assert_allclose(offsets[:, :, 0], alone[:, :, 0])
    assert (offsets[1, :, 1] > alone[1, :, 1] + 2).all()


def test_unknown_errors_do_not_count() -> None:
    errors = drawn(80, 1)
    unknown = np.full((80, STEPS, CHANNELS), np.nan)
    unknown[:, :, 0] = errors[:, :, 0]
    offsets = STORED.offsets(unknown, STRIDE, WANTED)
    np.testing.assert_allclose(offsets[..., 0], STORED.offsets(errors, STRIDE, WANTED)[..., 0])
    # The stored offsets, for all steps together.
    stored = CALIBRATION.at(np.array(WANTED), STEPS)
    np.testing.assert_allclose(offsets[..., 1], stored[..., 1], atol=0.35)


def test_few_known_origins_correct_a_channel_little() -> None:
    errors = drawn(400, 1) + 5
    few = np.full_like(errors, np.nan)
    few[[100, 300], 2] = errors[[100, 300], 2]
    stored = CALIBRATION.at(np.array(WANTED), STEPS)
    off = [np.abs(STORED.offsets(each, STRIDE, WANTED) - stored).max() for each in (few, errors)]
    assert off[0] < 1
    assert off[1] > 4


def test_channel_without_errors_has_zero_offsets() -> None:
    flat = Calibration(LEVELS, CALIBRATION.offsets * np.array([1, 0], np.float32))
    errors = drawn(80, 1) * np.array([1, 0], np.float32)
    offsets = Recalibration.of(flat, STEPS).offsets(errors, STRIDE, WANTED)
    assert (offsets[..., 1] == 0).all()
    assert np.isfinite(offsets).all()


@settings(max_examples=30)
@given(st.lists(st.floats(0.002, 0.998), min_size=2, max_size=9), st.integers(0, 2**32))
def test_recalibrated_quantiles_never_cross(levels: list[float], seed: int) -> None:
    offsets = STORED.offsets(drawn(12, seed, 3.0, 1.0), STRIDE, sorted(levels))
    assert np.all(np.diff(offsets, axis=0) >= 0)


def test_stride_is_half_of_the_horizon() -> None:
    assert [stride_of(horizon) for horizon in (1, 5, 24, 96)] == [1, 2, 12, 48]
