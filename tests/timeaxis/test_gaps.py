import numpy as np
import pytest

from foretell.timeaxis.gaps import Missing, fill

NAN = np.nan


@pytest.mark.parametrize(
    ("method", "expected"),
    [("interpolate", [1, 1, 2, 3, 4, 4]), ("ffill", [NAN, 1, 1, 1, 4, 4])],
)
def test_fills_in_place(method: Missing, expected: list[float]) -> None:
    values = np.array([NAN, 1, NAN, NAN, 4, NAN])
    gaps = np.flatnonzero(np.isnan(values))
    fill(values, gaps if method == "interpolate" else gaps[1:], method)
    np.testing.assert_array_equal(values, expected)


def test_leaves_the_gaps_that_are_not_named() -> None:
    values = np.array([1, NAN, 3, NAN, 5])
    fill(values, np.array([3]), "interpolate")
    np.testing.assert_array_equal(values, [1, NAN, 3, 4, 5])
