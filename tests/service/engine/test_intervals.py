from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.bundle import layout
from foretell.bundle.bounds import Bound
from foretell.bundle.calibration import Calibration, order_statistics, stored_levels
from foretell.bundle.distribution import Distribution, Family
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import CalibrationReport, Manifest, Scaler
from foretell.service.engine.intervals import Intervals
from foretell.service.engine.model import Model
from foretell.service.errors import InvalidInputError, NotSupportedError, ServiceError
from tests.support.bundles import Spec, rewrite_manifest, write_bundle

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
BARE = Intervals(MANIFEST.model_copy(update={"calibration": None}), None)


def inputs(windows: int = 5, horizon: int = HORIZON, seed: int = 0) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(seed)
    history = random.normal(size=(windows, CONTEXT, CHANNELS)).astype(np.float32)
    forecast = random.normal(size=(windows, horizon, CHANNELS)).astype(np.float32)
    return history, forecast


def refusal(intervals: Intervals, levels: list[float], horizon: int) -> ServiceError:
    with pytest.raises(ServiceError) as raised:
        intervals.check(levels, horizon, "options.quantiles")
    return raised.value


def drawn(family: Family, **changes: object) -> Intervals:
    update = {"calibration": None, "distribution": Distribution.of(family), **changes}
    return Intervals(MANIFEST.model_copy(update=update), None)


def test_of_distributions() -> None:
    history, forecast = inputs()
    parameters = np.stack([forecast, np.full_like(forecast, 2)], axis=-1)
    normal = drawn("normal")
    assert normal.steps == HORIZON
    normal.check([1e-6, 0.5], HORIZON, "options.quantiles")
    # One standard deviation.
    low, middle, high = normal.quantiles(
        history, forecast, [0.15865525, 0.5, 0.84134475], parameters
    )
    np.testing.assert_allclose(middle, forecast, rtol=1e-6)
    np.testing.assert_allclose((low, high), (forecast - 2, forecast + 2), atol=1e-5)
    shorter = normal.quantiles(history, forecast[:, :1], [0.5], parameters)
    np.testing.assert_allclose(shorter[0], forecast[:, :1], rtol=1e-6)
    bounded = drawn("normal", bounds={"irradiance": Bound(low=0)})
    found = bounded.quantiles(history, forecast, [0.01], parameters)[0]
    assert found[..., 1].min() == 0
    assert found[..., 0].min() < 0


def test_levels_and_steps_that_distributions_do_not_tell() -> None:
    for level in (0.0, 1.0, float("nan")):
        error = refusal(drawn("normal"), [0.5, level], HORIZON)
        assert error.param == "options.quantiles[1]"
        assert error.message.startswith("expected a level between 0 and 1")
    for level in (9e-7, 1 - 9e-7):
        error = refusal(drawn("student-t"), [0.5, level], HORIZON)
        assert error.param == "options.quantiles[1]"
        assert error.message.startswith("expected a level between 1e-06 and 0.999999, got ")
    error = refusal(drawn("normal"), [0.5], HORIZON + 1)
    assert isinstance(error, NotSupportedError)
    assert error.message == (
        "the quantiles of weather are of the normal distributions that it forecasts, for at most 3 "
        "steps, got a horizon of 4"
    )


def test_only_counts_are_searched_for() -> None:
    assert drawn("negative-binomial").most == drawn("poisson").most == 100_000
    assert drawn("student-t").most is None
    assert INTERVALS.most is None
    both = MANIFEST.model_copy(update={"distribution": Distribution.of("negative-binomial")})
    assert Intervals(both, CALIBRATION).most is None


def test_quantiles_that_a_model_was_trained_for() -> None:
    described = Distribution.of_quantiles((0.1, 0.5, 0.9))
    update = {"calibration": None, "distribution": described}
    intervals = Intervals(MANIFEST.model_copy(update=update), None)
    intervals.check([0.1, (1 - 0.8) / 2, 0.3, 0.9], HORIZON, "options.quantiles")
    for level in (0.05, 0.95):
        error = refusal(intervals, [0.5, level], HORIZON)
        assert isinstance(error, InvalidInputError)
        assert error.param == "options.quantiles[1]"
        assert str(error) == (
            f"expected a level between 0.1 and 0.9, got {level}: it forecasts no "
            "quantile that is further out"
        )
    error = refusal(intervals, [0.5], HORIZON + 1)
    assert "are those that it forecasts (0.1, 0.5, 0.9), for at most" in str(error)
    assert intervals.most is None


def test_a_calibration_counts_before_distributions() -> None:
    history, forecast = inputs()
    both = Intervals(
        MANIFEST.model_copy(update={"distribution": Distribution.of("normal")}), CALIBRATION
    )
    parameters = np.stack([forecast, np.full_like(forecast, 2)], axis=-1)
    found = both.quantiles(history, forecast, [0.2], parameters)
    np.testing.assert_array_equal(found, INTERVALS.quantiles(history, forecast, [0.2]))
    assert both.steps == STEPS


def test_a_bundle_without_calibration() -> None:
    assert (INTERVALS.steps, BARE.steps) == (6, 0)
    error = refusal(BARE, [0.5], 1)
    assert isinstance(error, NotSupportedError)
    assert error.param == "options.quantiles"
    assert error.message == "weather has no quantiles: its bundle does not say why"
    said = {"calibration": None, "calibration_missing": "its validation split is short"}
    short = Intervals(MANIFEST.model_copy(update=said), None)
    reason = f"weather has no quantiles: {said['calibration_missing']}"
    assert refusal(short, [0.5], 1).message == reason


def test_steps_that_were_not_calibrated() -> None:
    INTERVALS.check([0.5], STEPS, "options.quantiles")
    error = refusal(INTERVALS, [0.5], STEPS + 1)
    assert isinstance(error, NotSupportedError)
    assert error.param == "options.quantiles"
    assert "calibrated for at most 6 steps, got a horizon of 7" in error.message


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.1, float("nan"), float("inf")])
def test_levels_that_are_none(level: float) -> None:
    error = refusal(INTERVALS, [0.5, level], 1)
    assert isinstance(error, InvalidInputError)
    assert error.param == "options.quantiles[1]"
    assert "between 0 and 1" in error.message


@pytest.mark.parametrize(
    ("horizon", "lowest", "windows"), [(1, 1 / 200, 199), (3, 1 / 200, 199), (4, 0.01, 99)]
)
def test_levels_that_the_calibration_does_not_bear(
    horizon: int, lowest: float, windows: int
) -> None:
    INTERVALS.check([lowest, windows / (windows + 1)], horizon, "quantiles")
    for level in (lowest * 0.999, 1 - lowest * 0.999):
        error = refusal(INTERVALS, [0.5, 0.1, level], horizon)
        assert isinstance(error, InvalidInputError)
        assert error.param == "options.quantiles[2]"
        assert f"between {lowest:.3g} and {1 - lowest:.6g}" in error.message
        assert f"{windows} validation windows" in error.message


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


def test_a_window_is_answered_as_it_is_alone() -> None:
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


def test_quantiles_follow_the_units() -> None:
    history, forecast = inputs()
    levels = [0.05, 0.5, 0.95]
    expected = 8 * INTERVALS.quantiles(history, forecast, levels) + 16
    scaler = Scaler(mean=(0.0, 0.0), std=(8.0, 160.0))
    others = Intervals(MANIFEST.model_copy(update={"scaler": scaler}), CALIBRATION)
    found = others.quantiles(8 * history + 16, 8 * forecast + 16, levels)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_constant_history_has_intervals() -> None:
    history = np.full((1, CONTEXT, CHANNELS), 7, np.float32)
    low, high = INTERVALS.quantiles(history, history[:, :HORIZON], [0.1, 0.9])
    offsets = CALIBRATION.at(np.array([0.1, 0.9]), HORIZON)
    expected = (offsets[1] - offsets[0]) * [0.1, 2.0]
    np.testing.assert_allclose((high - low)[0], expected, rtol=1e-5)


def test_what_float32_cannot_hold_is_not_finite() -> None:
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


def test_a_model_has_those_of_its_bundle(
    open_model: Callable[[Path], Model], tmp_path: Path
) -> None:
    assert open_model(write_bundle(tmp_path, Spec(name="bare"))).intervals.steps == 0
    spec = Spec(calibrated=2)
    folder = write_bundle(tmp_path, spec)
    assert open_model(folder).intervals.steps == 8
    (folder / layout.CALIBRATION).write_bytes(b"PK")
    with pytest.raises(BundleError, match=r"calibration\.npz: sha256 differs"):
        open_model(folder)
    rewrite_manifest(folder, spec)
    with pytest.raises(BundleError, match=r"calibration\.npz: cannot be read"):
        open_model(folder)


def test_quantiles_keep_the_bounds_of_their_channels() -> None:
    history, forecast = inputs()
    levels = [0.05, 0.5, 0.95]
    free = INTERVALS.quantiles(history, forecast, levels)
    bounds = {"irradiance": Bound(low=0.0, high=1.5)}
    kept = Intervals(MANIFEST.model_copy(update={"bounds": bounds}), CALIBRATION)
    found = kept.quantiles(history, forecast, levels)
    np.testing.assert_array_equal(found[..., 0], free[..., 0])
    np.testing.assert_array_equal(found[..., 1], np.clip(free[..., 1], 0, 1.5))
    assert found.dtype == np.float32
    assert (found != free).any()
