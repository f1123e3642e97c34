from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from service.errors import InvalidInputError
from service.series import read_values

TWO = ("load", "wind")


def test_one_channel() -> None:
    values = read_values([1, 2.5, -3e38], ["load"], "s")
    assert values.shape == (3, 1)
    np.testing.assert_array_equal(values[:, 0], [1, 2.5, -3e38])
    assert read_values([[1.0], [2.0]], ["load"], "s").shape == (2, 1)
    assert read_values([], ["load"], "s").shape == (0, 1)


def test_many_channels() -> None:
    values = read_values([[1, 2.0], [3.0, 4]], TWO, "s")
    np.testing.assert_array_equal(values, [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("rows", "channels", "place", "message"),
    [
        ([1, None], ["a"], "s[1]", "missing .null., and options.missing is 'error'"),
        ([1, "2"], ["a"], "s[1]", "expected a number, got the string '2'"),
        ([True], ["a"], "s[0]", "expected a number, got true"),
        ([1, [2]], ["a"], "s[1]", "expected a number, got a list of 1"),
        ([1, {}], ["a"], "s[1]", "expected a number, got an object"),
        ([1, float("nan")], ["a"], "s[1]", "finite number .*, got nan"),
        ([float("-inf")], ["a"], "s[0]", "finite number .*, got -inf"),
        ([3.5e38], ["a"], "s[0]", "at most 3.4e38 .float32., got 3.5e.38"),
        ([10**400], ["a"], "s[0]", "got a number of over 70 digits"),
        ([[1, 2], [3]], TWO, "s[1]", "a list of 2 values .load, wind., got a list of 1"),
        ([[1, 2], [3, 4, 5]], TWO, "s[1]", "got a list of 3"),
        ([[1, 2], 3], TWO, "s[1]", "a list of 2 values .load, wind., got 3"),
        ([[1, 2], [3, None]], TWO, "s[1][1]", "missing"),
        ([[1, 2], [float("nan"), 4]], TWO, "s[1][0]", "finite"),
        ([[1, [2]]], TWO, "s[0][1]", "expected a number, got a list"),
        ([1, 2], TWO, "s[0]", "a list of 2 values at every time .load, wind., got 1"),
        ([], TWO, "s", "got an empty list"),
        ([1], [f"c{n}" for n in range(20)], "s[0]", "c7, … 12 more"),
    ],
)
def test_names_the_culprit(rows: list[Any], channels: list[str], place: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        read_values(rows, channels, "s")
    assert error.value.param == place
