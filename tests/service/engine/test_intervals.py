from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.bundle.bounds import Bound
from foretell.bundle.calibration import Calibration, order_statistics, stored_levels
from foretell.bundle.distribution import Distribution
from foretell.bundle.manifest import Manifest
from foretell.bundle.results import CalibrationReport
from foretell.bundle.scaler import Scaler
from foretell.service.engine.intervals import Intervals
from foretell.service.errors import InvalidInputError, NotSupportedError

HORIZON, CONTEXT, CHANNELS = 3, 8, 2
WINDOWS = (199, 99)
STEPS = HORIZON * len(WINDOWS)
LEVELS = stored_levels(WINDOWS)
ERRORS = np.random.default_rng(2).gamma(2.0, size=(199, STEPS, CHANNELS)).astype(np.float32) - 1.5
CALIBRATION = Calibration(LEVELS, order_statistics(ERRORS, LEVELS))
MANIFEST = Manifest.model_construct(
    name="weather",
    channels=("load", "irradiance"),
    targets=("load", "irradiance"),
    horizon=HORIZON,
    scaler=Scaler(mean=(0.0, 0.0), std=(1.0, 20.0)),
    calibration=CalibrationReport(
        floor=0.1, steps=STEPS, windows=WINDOWS, disjoint=(66, 33), coverage=()
    ),
)
INTERVALS = Intervals(MANIFEST, CALIBRATION)


def changed(calibration: Calibration | None = None, **changes: object) -> Intervals:
    """Intervals of `MANIFEST` with other fields; not calibrated without a calibration."""
    update = changes if calibration else {"calibration": None, **changes}
    return Intervals(MANIFEST.model_copy(update=update), calibration)


NORMAL, STUDENT = (changed(distribution=Distribution.of(name)) for name in ("normal", "student-t"))
QUANTILES = changed(distribution=Distribution.of_quantiles((0.1, 0.5, 0.9)))


def inputs(windows: int = 5, horizon: int = HORIZON, seed: int = 0) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(seed)
    history = random.normal(size=(windows, CONTEXT, CHANNELS)).astype(np.float32)
    forecast = random.normal(size=(windows, horizon, CHANNELS)).astype(np.float32)
    return history, forecast


def test_quantiles_of_distributions_are_clipped_to_bounds() -> None:
    history, forecast = inputs()
    parameters = np.stack([forecast, np.full_like(forecast, 2)], axis=-1)
    assert NORMAL.steps == HORIZON
    # One standard deviation.
    low, middle, high = NORMAL.quantiles(
        history, forecast, [0.15865525, 0.5, 0.84134475], parameters
    )
    np.testing.assert_allclose(middle, forecast, rtol=1e-6)
    np.testing.assert_allclose((low, high), (forecast - 2, forecast + 2), atol=1e-5)
    shorter = NORMAL.quantiles(history, forecast[:, :1], [0.5], parameters)
    np.testing.assert_allclose(shorter[0], forecast[:, :1], rtol=1e-6)
    bounds = {"irradiance": Bound(low=0)}
    bounded = changed(distribution=Distribution.of("normal"), bounds=bounds)
    found = bounded.quantiles(history, forecast, [0.01], parameters)[0]
    assert found[..., 1].min() == 0
    assert found[..., 0].min() < 0


_BARE, _WITH_REASON = changed(), changed(calibration_missing="its validation split is short")


@pytest.mark.parametrize(
    ("intervals", "levels", "horizon", "message"),
    [
        (INTERVALS, (0.0, 1.0, -0.1, 1.1, np.nan, np.inf), 1, "a level between 0 and 1"),
        (NORMAL, (0.0, 1.0, np.nan), 1, "a level between 0 and 1"),
        (INTERVALS, (0.995 / 200, 1 - 0.995 / 200), 1, "0.005 and 0.995.* 199 validation windows"),
        (INTERVALS, (0.995 / 200, 1 - 0.995 / 200), 3, "0.005 and 0.995.* 199 validation windows"),
        (INTERVALS, (0.00999, 0.99001), 4, "0.01 and 0.99.* 99 validation windows"),
        (STUDENT, (9e-7, 1 - 9e-7), 1, "a level between 1e-06 and 0.999999, got "),
        (
            QUANTILES,
            (0.05, 0.95),
            1,
            "between 0.1 and 0.9, got .* no quantile that is further out$",
        ),
        (INTERVALS, (), STEPS + 1, "calibrated for at most 6 steps, got a horizon of 7"),
        (NORMAL, (), 4, "the normal distributions that it forecasts, for at most 3 .* of 4$"),
        (QUANTILES, (), 4, r"those that it forecasts \(0.1, 0.5, 0.9\), for at most 3"),
        (_BARE, (), 1, "^weather has no quantiles: its bundle does not say why$"),
        (_WITH_REASON, (), 1, "^weather has no quantiles: its validation split is short$"),
    ],
)
def test_levels_and_horizons_without_quantiles_are_refused(
    intervals: Intervals, levels: tuple[float, ...], horizon: int, message: str
) -> None:
    for level in levels or (0.5,):
        with pytest.raises(InvalidInputError if levels else NotSupportedError) as raised:
            intervals.check([0.5, level], horizon, "options.quantiles")
        assert re.search(message, raised.value.message)
        assert raised.value.param == "options.quantiles" + "[1]" * bool(levels)


@pytest.mark.parametrize(
    ("intervals", "levels", "horizon"),
    [
        (INTERVALS, [1 / 200, 199 / 200], HORIZON),
        (INTERVALS, [0.01, 0.99], STEPS),
        (NORMAL, [1e-6, 0.5], HORIZON),
        (QUANTILES, [0.1, (1 - 0.8) / 2, 0.3, 0.9], HORIZON),
    ],
)
def test_levels_at_the_edge_are_accepted(
    intervals: Intervals, levels: list[float], horizon: int
) -> None:
    intervals.check(levels, horizon, "options.quantiles")


def test_only_counts_have_a_largest_value() -> None:
    counts = [Distribution.of(name) for name in ("negative-binomial", "poisson")]
    assert [changed(distribution=each).most for each in counts] == [100_000, 100_000]
    others = (STUDENT, INTERVALS, QUANTILES, changed(CALIBRATION, distribution=counts[0]))
    assert [each.most for each in others] == [None] * 4


def test_calibration_takes_precedence_over_distributions() -> None:
    history, forecast = inputs()
    both = changed(CALIBRATION, distribution=Distribution.of("normal"))
    parameters = np.stack([forecast, np.full_like(forecast, 2)], axis=-1)
    found = both.quantiles(history, forecast, [0.2], parameters)
    np.testing.assert_array_equal(found, INTERVALS.quantiles(history, forecast, [0.2]))
    assert [each.steps for each in (both, INTERVALS, changed())] == [STEPS, STEPS, 0]


@pytest.mark.parametrize("horizon", [1, 3, 6])
def test_quantiles_are_the_forecast_and_scaled_offsets(horizon: int) -> None:
    history, forecast = inputs(horizon=horizon)
    levels = [0.9, 0.1, 0.5]
    found = INTERVALS.quantiles(history, forecast, levels)
    assert found.shape == (3, 5, horizon, CHANNELS)
    assert found.dtype == np.float32
    scale = np.maximum(history.astype(float).std(axis=1), [0.1, 2.0])
    for row, level in zip(found, levels, strict=True):
        (place,) = np.flatnonzero(level == LEVELS)
        expected = forecast + scale[:, None] * CALIBRATION.offsets[place, :horizon]
        np.testing.assert_allclose(row, expected, rtol=1e-6, atol=1e-6)


def test_quantiles_of_a_window_do_not_depend_on_the_batch() -> None:
    history, forecast = inputs(windows=7)
    together = INTERVALS.quantiles(history, forecast, [0.2, 0.7])
    for row in range(7):
        one = slice(row, row + 1)
        alone = INTERVALS.quantiles(history[one], forecast[one], [0.2, 0.7])
        np.testing.assert_array_equal(together[:, one], alone)


@settings(max_examples=50)
@given(
    st.lists(st.floats(0.005, 0.995), min_size=2, max_size=12),
    st.integers(0, 2**32),
    st.sampled_from([1e-30, 1e-3, 1.0, 1e6, 1e30]),
)
def test_quantiles_never_cross(levels: list[float], seed: int, size: float) -> None:
    history, forecast = (part * np.float32(size) for part in inputs(2, STEPS, seed))
    found = INTERVALS.quantiles(history, forecast, levels)
    ordered = found[np.argsort(levels, kind="stable")]
    assert np.all(np.diff(ordered, axis=0) >= 0)


def test_quantiles_scale_with_the_units() -> None:
    history, forecast = inputs()
    levels = [0.05, 0.5, 0.95]
    expected = 8 * INTERVALS.quantiles(history, forecast, levels) + 16
    scaler = Scaler(mean=(0.0, 0.0), std=(8.0, 160.0))
    found = changed(CALIBRATION, scaler=scaler).quantiles(
        8 * history + 16, 8 * forecast + 16, levels
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_constant_history_has_intervals() -> None:
    history = np.full((1, CONTEXT, CHANNELS), 7, np.float32)
    low, high = INTERVALS.quantiles(history, history[:, :HORIZON], [0.1, 0.9])
    offsets = CALIBRATION.at(np.array([0.1, 0.9]), HORIZON)
    expected = (offsets[1] - offsets[0]) * [0.1, 2.0]
    np.testing.assert_allclose((high - low)[0], expected, rtol=1e-5)


def test_quantiles_beyond_float32_are_not_finite() -> None:
    largest = np.finfo(np.float32).max
    history, forecast = inputs()
    history[0] *= largest / np.abs(history[0]).max()
    forecast[0] = largest
    found = INTERVALS.quantiles(history, forecast, [0.9, 0.95])
    assert not np.isfinite(found[:, 0]).all()
    assert np.isfinite(found[:, 1:]).all()


def test_errors_are_in_units_of_their_histories() -> None:
    history, forecast = inputs(windows=3)
    future = forecast + 1
    future[0, 0, 0], forecast[1, 1, 1], history[2, :, 1] = np.nan, np.inf, 7
    found = INTERVALS.errors(history, forecast, future)
    assert np.argwhere(np.isnan(found)).tolist() == [[0, 0, 0], [1, 1, 1]]
    assert found[0, 1, 0] == pytest.approx(1 / history[0, :, 0].astype(float).std(), rel=1e-4)
    # A tenth of the training's deviation, 20.
    assert found[2, 0, 1] == pytest.approx(0.5, rel=1e-4)


def test_quantiles_keep_the_bounds_of_their_channels() -> None:
    history, forecast = inputs()
    levels = [0.05, 0.5, 0.95]
    free = INTERVALS.quantiles(history, forecast, levels)
    bounds = {"irradiance": Bound(low=0.0, high=1.5)}
    found = changed(CALIBRATION, bounds=bounds).quantiles(history, forecast, levels)
    np.testing.assert_array_equal(found[..., 0], free[..., 0])
    np.testing.assert_array_equal(found[..., 1], np.clip(free[..., 1], 0, 1.5))
    assert found.dtype == np.float32
    assert (found != free).any()
