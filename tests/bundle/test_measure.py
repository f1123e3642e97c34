import numpy as np
import pytest

from foretell.bundle.measure import relative_error

ONE = np.array([1.0])


def series(*values: float) -> np.ndarray:
    """One window of one channel, `[1, horizon, 1]`."""
    return np.array(values)[None, :, None]


def test_relative_to_the_largest_value_of_the_window() -> None:
    error = relative_error(series(100.0, 200.0), series(101.0, 200.0), ONE)
    assert error.tolist() == [1 / 200]


def test_relative_to_the_deviation_of_a_channel_near_zero() -> None:
    assert relative_error(series(0.0, 1e-3), series(0.0, 0.0), np.array([2.0])).tolist() == [5e-4]


def test_each_channel_has_its_own_size() -> None:
    expected = np.array([[[1e6, 1.0]], [[1e6, 1.0]]])
    actual = expected + np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    error = relative_error(actual, expected, np.array([1.0, 1.0]))
    assert error.tolist() == [1e-6, 1.0]


def test_the_sign_does_not_matter() -> None:
    assert relative_error(series(-90.0), series(-100.0), ONE).tolist() == [0.1]


def test_differences_are_taken_in_float64() -> None:
    expected = series(1e8).astype(np.float64) + 0.25
    error = relative_error(series(1e8).astype(np.float32), expected, ONE)
    assert error[0] == pytest.approx(0.25e-8, rel=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_infinitely_wrong(value: float) -> None:
    actual = np.concatenate([series(1.0, value), series(1.0, 1.0)])
    expected = np.ones_like(actual)
    assert relative_error(actual, expected, ONE).tolist() == [np.inf, 0.0]
    assert relative_error(expected, actual, ONE).tolist() == [np.inf, 0.0]
    assert relative_error(actual, actual, ONE).tolist() == [np.inf, 0.0]
