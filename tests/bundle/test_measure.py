import math

import numpy as np
import pytest

from foretell.bundle.measure import relative_error
from foretell.bundle.results import Accuracy, TestResult
from foretell.bundle.verdict import baseline_names, is_worth_nothing, verdict
from foretell.timeaxis.frequency import Frequency

ONE = np.array([1.0])
HOURLY = Frequency.parse("h")


def series(*values: float) -> np.ndarray:
    """One window of one channel, `[1, horizon, 1]`."""
    return np.array(values)[None, :, None]


TWO_CHANNELS = np.array([[[1e6, 1.0]], [[1e6, 1.0]]])


@pytest.mark.parametrize(
    ("actual", "expected", "deviation", "error"),
    [
        # Relative to the largest value of the window, whatever its sign.
        (series(100.0, 200.0), series(101.0, 200.0), ONE, [1 / 200]),
        (series(-90.0), series(-100.0), ONE, [0.1]),
        # Relative to the deviation of a channel near zero.
        (series(0.0, 1e-3), series(0.0, 0.0), np.array([2.0]), [5e-4]),
        # Relative to each channel's own size.
        (TWO_CHANNELS + np.eye(2)[:, None], TWO_CHANNELS, np.ones(2), [1e-6, 1.0]),
        # In float64.
        (series(1e8).astype(np.float32), series(1e8) + 0.25, ONE, [0.25e-8]),
    ],
)
def test_errors_are_relative(
    actual: np.ndarray, expected: np.ndarray, deviation: np.ndarray, error: list[float]
) -> None:
    np.testing.assert_allclose(relative_error(actual, expected, deviation), error, rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_relative_error_of_nonfinite_values_is_infinite(value: float) -> None:
    actual = np.concatenate([series(1.0, value), series(1.0, 1.0)])
    expected = np.ones_like(actual)
    for pair in ((actual, expected), (expected, actual), (actual, actual)):
        assert relative_error(*pair, ONE).tolist() == [np.inf, 0.0]


def result(mse: float, mae: float, *, seasonal: bool = True) -> TestResult:
    return TestResult(
        windows=9,
        model=Accuracy(mse=mse, mae=mae),
        last_value=Accuracy(mse=1.29, mae=0.71),
        seasonal_naive=Accuracy(mse=0.51, mae=0.5) if seasonal else None,
        season=24 if seasonal else None,
    )


@pytest.mark.parametrize(
    ("mse", "mae", "last", "day", "nothing"),
    [
        (0.38, 0.4, "better", "better", False),
        (0.6, 0.4, "better", "better in MAE alone", False),
        (0.5, 0.9, "better in MSE alone", "better in MSE alone", False),
        (0.6, 0.6, "better", "no better", False),
        (1.29, 0.71, "no better", "no better", True),
        (math.nan, math.nan, "no better", "no better", True),
    ],
)
def test_verdict_compares_both_errors(
    mse: float, mae: float, last: str, day: str, nothing: bool
) -> None:
    found = result(mse, mae)
    assert verdict(found, HOURLY) == (
        f"{last} than repeating the last value (MSE {mse:.3g} against 1.29, MAE {mae:.3g} against "
        f"0.71) and {day} than repeating the last day (MSE {mse:.3g} against 0.51, MAE {mae:.3g} "
        "against 0.5)"
    )
    assert is_worth_nothing(found) is nothing


def test_verdict_without_a_season_compares_the_last_value_only() -> None:
    found = result(1.5, 0.9, seasonal=False)
    assert is_worth_nothing(found)
    assert verdict(found, HOURLY).startswith("no better than repeating the last value (MSE 1.5 ")
    assert " and " not in verdict(found, HOURLY)


def test_verdict_is_by_the_errors_of_the_graph() -> None:
    found = result(0.1, 0.1).model_copy(update={"onnx": Accuracy(mse=2, mae=2)})
    assert is_worth_nothing(found)
    assert "MSE 2 against 1.29" in verdict(found, HOURLY)


@pytest.mark.parametrize(("frequency", "name"), [("h", "the last day"), ("MS", "the last year")])
def test_the_season_has_the_name_of_its_frequency(frequency: str, name: str) -> None:
    assert list(baseline_names(Frequency.parse(frequency)).values()) == ["the last value", name]
