from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.service.errors import InvalidInputError
from foretell.service.forecast.requests import Missing
from foretell.service.forecast.series import fill

NAN = np.nan


def filled(values: list[float], method: Missing, window: int = 5) -> tuple[list[float], int]:
    given = np.array(values)[:, None]
    array, counts = fill(given, method, window, ["load"], lambda row, _: f"s[{row}]")
    np.testing.assert_array_equal(given[:, 0], values)
    return array[:, 0].tolist(), counts.get("load", 0)


@pytest.mark.parametrize(
    ("values", "result", "count"),
    [
        ([1, NAN, NAN, 4, 5], [1, 2, 3, 4, 5], 2),
        ([NAN, NAN, 3, NAN, 5], [3, 3, 3, 4, 5], 3),
        ([1, 2, 3, NAN, NAN], [1, 2, 3, 3, 3], 2),
        # Earlier rows help, and are left as they came.
        ([0, NAN, NAN, 3, 4, 5, 6], [0, NAN, 2, 3, 4, 5, 6], 1),
        ([NAN, NAN, 2, 3, 4, 5, 6], [NAN, NAN, 2, 3, 4, 5, 6], 0),
    ],
)
def test_interpolates(values: list[float], result: list[float], count: int) -> None:
    found, counted = filled(values, "interpolate")
    np.testing.assert_array_equal(found, result)
    assert counted == count


@pytest.mark.parametrize(
    ("values", "result", "count"),
    [
        ([1, NAN, NAN, 4, NAN], [1, 1, 1, 4, 4], 3),
        ([7, NAN, NAN, 3, 4, 5, 6], [7, NAN, 7, 3, 4, 5, 6], 1),
        ([NAN, NAN, 2, 3, 4, 5, 6], [NAN, NAN, 2, 3, 4, 5, 6], 0),
    ],
)
def test_carries_forward(values: list[float], result: list[float], count: int) -> None:
    found, counted = filled(values, "ffill")
    np.testing.assert_array_equal(found, result)
    assert counted == count


def test_nothing_to_carry_forward() -> None:
    with pytest.raises(InvalidInputError, match="no value of 'load' comes before it") as error:
        filled([NAN, NAN, NAN, 4, 5, 6], "ffill")
    assert error.value.param == "s[1]"


@pytest.mark.parametrize("method", ["interpolate", "ffill"])
def test_a_channel_without_a_value_in_the_context(method: Missing) -> None:
    values = np.array([[1, 1], [2, 2], [3, NAN], [4, NAN]])
    with pytest.raises(InvalidInputError, match="'b' has no value in the last 2 rows") as error:
        fill(values, method, 2, ["a", "b"], lambda row, column: f"s[{row}][{column}]")
    assert error.value.param == "s[2][1]"


@given(st.data(), st.integers(1, 12), st.integers(0, 5), st.integers(1, 3))
def test_fills_as_pandas_does(data: st.DataObject, window: int, before: int, channels: int) -> None:
    numbers = st.one_of(st.just(NAN), st.integers(-100, 100).map(float))
    rows = window + before
    values = np.array(
        data.draw(st.lists(numbers, min_size=rows * channels, max_size=rows * channels))
    ).reshape(rows, channels)
    values[-1][np.isnan(values[before:]).all(axis=0)] = 0.0
    names = [f"c{index}" for index in range(channels)]
    expected = pd.DataFrame(values).interpolate(limit_direction="both").to_numpy()
    found, counts = fill(values, "interpolate", window, names, lambda row, _: f"s[{row}]")
    np.testing.assert_allclose(found[before:], expected[before:], atol=1e-9)
    missing = np.isnan(values[before:]).sum(axis=0)
    assert counts == {name: int(n) for name, n in zip(names, missing, strict=True) if n}
