"""Values of requests: how they are read, and how long the GIL is held."""

from __future__ import annotations

import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretell.service.arrays import joined
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.series import assign
from foretell.service.forecast.values import ordinary, read_values

TWO = ("load", "wind")
GAPS = ["load"]
NAN = float("nan")


@pytest.mark.parametrize(
    ("given", "channels", "expected"),
    [
        ([1, 2.5, -3e38], ["load"], [[1], [2.5], [-3e38]]),
        ([[1.0], [2.0]], ["load"], [[1], [2]]),
        ([], ["load"], np.empty((0, 1))),
        ([[1, 2.0], [3.0, 4]], TWO, [[1, 2], [3, 4]]),
        # Gaps are allowed where there is one.
        ([1, None, NAN, 4], GAPS, [[1], [NAN], [NAN], [4]]),
        ([None, NAN], GAPS, [[NAN], [NAN]]),
    ],
)
def test_one_channel_and_many(given: list[Any], channels: Sequence[str], expected: Any) -> None:
    found = read_values(given, channels, "s", gaps=channels is GAPS)
    np.testing.assert_array_equal(found, expected, strict=False)
    assert found.ndim == 2


@pytest.mark.parametrize(
    ("rows", "channels", "place", "message"),
    [
        # Gaps are allowed where there is one.
        ([None, "2"], GAPS, "s[1]", "expected a number, got the string '2'"),
        ([None, False], GAPS, "s[1]", "expected a number, got false"),
        ([None, 10**400], GAPS, "s[1]", "got a number of over 70 digits"),
        ([None, float("nan"), float("inf")], GAPS, "s[2]", "finite number .*, got Infinity"),
        ([float("nan"), -1e39], GAPS, "s[1]", "got -1e.39"),
        ([1, None], ["a"], "s[1]", "missing .null., and options.missing is 'error'"),
        ([1, "2"], ["a"], "s[1]", "expected a number, got the string '2'"),
        ([True], ["a"], "s[0]", "expected a number, got true"),
        ([1, [2]], ["a"], "s[1]", "expected a number, got a list of 1"),
        ([1, {}], ["a"], "s[1]", "expected a number, got an object"),
        ([1, float("nan")], ["a"], "s[1]", "missing .NaN., and options.missing"),
        ([float("-inf")], ["a"], "s[0]", "finite number .*, got -Infinity"),
        ([3.5e38], ["a"], "s[0]", "at most 3.4e38 .float32., got 3.5e.38"),
        ([10**400], ["a"], "s[0]", "got a number of over 70 digits"),
        ([[1, 2], [3]], TWO, "s[1]", "a list of 2 values .load, wind., got a list of 1"),
        ([[1, 2], [3, 4, 5]], TWO, "s[1]", "got a list of 3"),
        ([[1, 2], 3], TWO, "s[1]", "a list of 2 values .load, wind., got 3"),
        ([[1, 2], None], TWO, "s[1]", "a list of 2 values .load, wind., got null"),
        ([[1, 2], "34"], TWO, "s[1]", "a list of 2 values .load, wind., got the string '34'"),
        ([[1, 2], {"3": 3, "4": 4}], TWO, "s[1]", "a list of 2 values .* got an object"),
        ([[1, 2], ""], TWO, "s[1]", "got the string ''"),
        ([[1, None], [1, "2"]], TWO, "s[0][1]", "missing"),
        ([[1, 2], [3, None]], TWO, "s[1][1]", "missing"),
        ([[1, 2], [float("nan"), 4]], TWO, "s[1][0]", "missing"),
        ([[1, [2]]], TWO, "s[0][1]", "expected a number, got a list"),
        ([1, 2], TWO, "s[0]", "a list of 2 values at every time .load, wind., got 1"),
        ([], TWO, "s", "got an empty list"),
        ([1], [f"c{n}" for n in range(32)], "s[0]", "c18, c19 and 12 more"),
    ],
)
def test_error_names_the_wrong_value(
    rows: list[Any], channels: list[str], place: str, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        read_values(rows, channels, "s", gaps=channels is GAPS)
    assert error.value.param == place


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1"), (2.0**63, "9223372036854775808"), (2**64, "1.8446744073709552e.19")],
)
@pytest.mark.parametrize("kind", [list, np.array])
def test_error_shows_integers_as_sent(kind: Any, value: float, text: str) -> None:
    with pytest.raises(InvalidInputError, match=f"got {text}$"):
        read_values(kind([float(value)] * 2), TWO, "s")
    with pytest.raises(InvalidInputError, match=f"got {text}$"):
        read_values([value] * 2, TWO, "s")


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("rows", [4, 40_000])
def test_arrays(rows: int, gaps: bool) -> None:
    given = np.random.default_rng(0).normal(size=(rows, 2))
    if gaps:
        given[1, 0] = np.nan
    np.testing.assert_array_equal(read_values(given, TWO, "s", gaps=gaps), given)
    np.testing.assert_array_equal(read_values(given[:, 0], ["load"], "s", gaps=gaps), given[:, :1])
    given[2, 1] = -1e39
    with pytest.raises(InvalidInputError, match="finite number of at most") as error:
        read_values(given, TWO, "s", gaps=gaps)
    assert error.value.param == "s[2][1]"


def test_long_lists() -> None:
    numbers: list[Any] = np.random.default_rng(0).normal(size=200_000).tolist()
    numbers[1::2] = [0, 1] * 50_000
    np.testing.assert_array_equal(read_values(numbers, ["load"], "s")[:, 0], numbers)
    for place in (70_001, 199_999):
        for wrong in (True, False, "1"):
            with pytest.raises(InvalidInputError) as error:
                read_values([*numbers[:place], wrong, *numbers[place + 1 :]], ["load"], "s")
            assert error.value.param == f"s[{place}]"


@pytest.mark.parametrize("value", [0, 1, 1.5])
def test_reading_numbers_takes_little_memory(value: float) -> None:
    numbers: list[Any] = [value] * 1_000_000
    tracemalloc.start()
    try:
        read_values(numbers, ["load"], "s")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The range check makes one copy, of absolute values.
    assert peak < 8 * len(numbers) * 2.5


@given(
    st.lists(
        st.lists(
            st.one_of(
                st.integers(-3, 3),
                st.floats(),
                st.booleans(),
                st.none(),
                st.text(max_size=2),
                st.sampled_from([0, 1, 0.0, 1.0, -0.0, 2**63, 10**400, [], {}, [1], {"a": 1}]),
            ),
            min_size=1,
            max_size=3,
        )
        | st.sampled_from([None, 1, "ab", {"a": 1, "b": 2}]),
        max_size=6,
    ),
    st.booleans(),
)
def test_only_numbers_are_read(rows: list[Any], gaps: bool) -> None:
    """The fast path equals a check of each value."""

    def number(value: Any) -> float | None:
        if gaps and (value is None or (isinstance(value, float) and np.isnan(value))):
            return float("nan")
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(value) if is_number and abs(value) <= 3.4028234663852886e38 else None

    expected: list[list[float | None]] | None = None
    if rows and all(isinstance(row, list) and len(row) == 2 for row in rows):
        expected = [[number(value) for value in row] for row in rows]
    if expected is None or any(None in row for row in expected):
        with pytest.raises(InvalidInputError):
            read_values(rows, TWO, "s", gaps=gaps)
    else:
        np.testing.assert_array_equal(read_values(rows, TWO, "s", gaps=gaps), expected)


RANDOM = np.random.default_rng(0)
VALUES = RANDOM.normal(size=(336, 7))


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (71, 7), (72, 7), (336, 7), (3, 501), (9000, 2)])
def test_rows_are_assigned(shape: tuple[int, int]) -> None:
    values = RANDOM.normal(size=shape)
    target = np.full(shape, np.nan, np.float32)
    assign(target, values)
    np.testing.assert_array_equal(target, values.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_rows_are_joined(dtype: type) -> None:
    rows: NDArray[np.generic] = RANDOM.normal(scale=9, size=(5, 4, 3)).astype(dtype)
    # The last array is in Fortran order.
    joint = joined([rows[:2], rows[:0], np.asfortranarray(rows)[2:]])
    assert joint.dtype == dtype
    np.testing.assert_array_equal(joint, rows)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((value, True) for value in (0.0, -0.0, 5e-324, 1e33, -1e33)),
        *((value, False) for value in (2e34, -2e34, 3.5e38, -1e300)),
        *((value, False) for value in (np.inf, -np.inf, np.nan, -np.nan)),
    ],
)
def test_ordinary_values_need_no_check(value: float, expected: bool) -> None:
    values = VALUES.copy()
    values[100, 3] = value
    assert ordinary(values) == expected
    # Large arrays are not checked this way.
    assert ordinary(np.zeros((4 * 1024, 4)))
    assert not ordinary(np.zeros((4 * 1024 + 1, 4)))


@pytest.mark.parametrize(
    "function",
    [
        lambda: assign(np.empty(VALUES.shape, np.float32), VALUES),
        lambda: joined([VALUES, VALUES]),
        lambda: ordinary(VALUES),
    ],
    ids=["assign", "joined", "ordinary"],
)
def test_parsing_of_numbers_keeps_the_gil(function: Callable[[], object]) -> None:
    awake = threading.Lock()
    awake.acquire()
    ran: list[bool] = []

    def wait() -> None:
        with awake:
            ran.append(True)

    thread = threading.Thread(target=wait)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        thread.start()
        awake.release()
        # Long enough for the thread to wait for the GIL.
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            pass
        for _ in range(20_000):
            function()
        assert not ran
    finally:
        sys.setswitchinterval(usual)
        thread.join(30)
    assert ran
