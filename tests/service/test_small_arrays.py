"""Work that keeps the interpreter's lock."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from foretell.service.arrays import joined
from foretell.service.forecast.series import assign
from foretell.service.forecast.values import ordinary

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
    # The last are not in the order of memory.
    joint = joined([rows[:2], rows[:0], np.asfortranarray(rows)[2:]])
    assert joint.dtype == dtype
    np.testing.assert_array_equal(joint, rows)


@pytest.mark.parametrize("value", [0.0, -0.0, 5e-324, 1e33, -1e33])
def test_ordinary_values(value: float) -> None:
    assert ordinary(with_one(value))


@pytest.mark.parametrize("value", [2e34, -2e34, 3.5e38, -1e300, np.inf, -np.inf, np.nan, -np.nan])
def test_values_that_are_to_be_looked_at(value: float) -> None:
    assert not ordinary(with_one(value))


def test_many_values_are_to_be_looked_at() -> None:
    assert ordinary(np.zeros((4 * 1024, 4)))
    assert not ordinary(np.zeros((4 * 1024 + 1, 4)))


def with_one(value: float) -> NDArray[np.float64]:
    values = VALUES.copy()
    values[100, 3] = value
    return values


@pytest.mark.parametrize(
    "function",
    [
        lambda: assign(np.empty(VALUES.shape, np.float32), VALUES),
        lambda: joined([VALUES, VALUES]),
        lambda: ordinary(VALUES),
    ],
    ids=["assign", "joined", "ordinary"],
)
def test_the_lock_is_kept(function: Callable[[], object]) -> None:
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
        # Until it waits for nothing but the interpreter's lock.
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
