"""Tables in Arrow's streaming format: the stream, and what their columns hold."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from foretell.service.errors import InvalidInputError
from foretell.service.forecast.columns import read_groups, read_times, read_values
from foretell.service.forecast.times import FixedClock
from foretell.timeaxis.frequency import Frequency

HOURLY, DAILY = Frequency.parse("h"), Frequency.parse("D")


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


def days(*numbers: int) -> pa.Array:
    return pa.array([date(2024, 1, number) for number in numbers])


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(["b", "b", "a"]),
        *(
            pa.DictionaryArray.from_arrays(pa.array([1, 1, 0], kind), pa.array(["a", "b"]))
            for kind in (pa.int8(), pa.uint32(), pa.uint64())
        ),
        pa.array(["b", "b", "a"], pa.large_string()),
        pa.array(["b", "b", "a"], pa.string_view()),
        pa.array(["b", "b", "a"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays([1, 1, 0], pa.array(["a", "b"], pa.string_view())),
        pa.chunked_array([["b"], ["b", "a"]]),
        pa.chunked_array(
            [pa.array(["b"]).dictionary_encode(), pa.array(["b", "a"]).dictionary_encode()]
        ),
        pl.Series(["b", "b", "a"]).to_arrow(),
    ],
)
def test_series_in_order_of_appearance(ids: pa.Array) -> None:
    groups = read_groups(table(unique_id=ids), 2)
    assert groups.ids.to_pylist() == ["b", "a"]
    assert [groups.of(0).tolist(), groups.of(1).tolist()] == [[0, 1], [2]]


def test_mixed_series_keep_the_order_of_their_rows() -> None:
    """Rows are read in pieces, each of which has its own dictionary."""
    names = np.random.default_rng(0).integers(0, 300, 600_000)
    for kind in (pa.string(), pa.int64()):
        groups = read_groups(table(unique_id=pa.array(names).cast(kind)), 300)
        assert len(groups) == 300
        for series in range(0, 300, 50):
            rows = groups.of(series)
            np.testing.assert_array_equal(
                rows, np.flatnonzero(names == int(groups.ids[series].as_py()))
            )


def ids_of_many(kind: str, count: int) -> pa.Array:
    numbers = pa.array(np.arange(count))
    match kind:
        case "texts":
            return numbers.cast(pa.string())
        case "a dictionary":
            return numbers.dictionary_encode()
    return numbers


# Errors hold frames with arrays of a pool: a pool must live as long as the errors.
POOLS: list[pa.MemoryPool] = []


@contextmanager
def arrow_memory(most: int) -> Iterator[None]:
    """Assert a limit of Arrow's memory."""
    pool, usual = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield
    finally:
        pa.set_memory_pool(usual)
    assert pool.max_memory() < most


@contextmanager
def python_memory(most: int) -> Iterator[None]:
    """Assert a limit of Python's memory."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["numbers", "texts", "a dictionary"])
@pytest.mark.parametrize("count", [1025, 1_000_000])
def test_too_many_series_are_refused_before_reading_rows(kind: str, count: int) -> None:
    whole = table(unique_id=ids_of_many(kind, count))
    with (
        arrow_memory(20 * 2**20),
        python_memory(2 * count + 100_000),
        pytest.raises(InvalidInputError, match="at most 1024 series") as error,
    ):
        read_groups(whole, 1024)
    assert error.value.param == "unique_id"


def test_rows_of_series_one_after_another_take_little_memory() -> None:
    whole = table(unique_id=pa.array(np.repeat(np.arange(10), 100_000)))
    with python_memory(2 * 1_000_000):
        groups = read_groups(whole, 10)
    assert groups.of(9).tolist() == list(range(900_000, 1_000_000))


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view()])
def test_duplicate_values_of_a_dictionary_are_one_series(kind: pa.DataType) -> None:
    # An unused value, a value that is there twice, and rows that alternate.
    values = pa.array(["a", "unused", "b", "a", "c"]).cast(kind)
    ids = pa.DictionaryArray.from_arrays(pa.array([2, 3, 4, 0, 3, 2], pa.int8()), values)
    groups = read_groups(table(unique_id=ids), 4)
    assert groups.ids.to_pylist() == ["a", "b", "c"]
    assert [groups.of(each).tolist() for each in range(3)] == [[1, 3, 4], [0, 5], [2]]
    # The number of runs of rows equals the number of used values.
    groups = read_groups(table(unique_id=ids.take([1, 0, 3])), 4)
    assert [groups.of(each).tolist() for each in range(2)] == [[0, 2], [1]]


def test_long_duplicate_names_of_a_dictionary_are_not_copied() -> None:
    ids = pa.DictionaryArray.from_arrays(np.arange(40_000, dtype=np.int8) % 2, ["a" * 100_000] * 2)
    with arrow_memory(2**20):
        assert len(read_groups(table(unique_id=ids), 2).ids) == 1


@pytest.mark.parametrize(
    ("columns", "message", "place"),
    [
        ({"load": [1.0]}, "one column of this name; the table has load", "unique_id"),
        ({"unique_id": pa.array([], pa.string())}, "at least one row", "unique_id"),
        ({"unique_id": ["a", None]}, "got null", "unique_id[1]"),
        (
            {"unique_id": pa.DictionaryArray.from_arrays([0, 1], ["a", None])},
            "got null",
            "unique_id",
        ),
        (
            {"unique_id": pa.DictionaryArray.from_arrays([0, 2, 1], ["a", None, "a"])},
            "got null",
            "unique_id",
        ),
        ({"unique_id": [1.5]}, "strings or integers, got double", "unique_id"),
    ],
)
def test_bad_ids(columns: dict[str, Any], message: str, place: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        read_groups(table(**columns), 9)
    assert error.value.param == place


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns")])
def test_dates_and_timestamps_of_any_unit(kind: pa.DataType) -> None:
    times = read_times(table(ds=days(1, 2).cast(kind)), DAILY)
    assert times is not None
    expected = np.array(["2024-01-01", "2024-01-02"], "M8[us]")
    np.testing.assert_array_equal(times.steps, expected)
    assert (times.clock, times.kind) == (FixedClock(None), kind)


@pytest.mark.parametrize(
    ("moments", "zone", "frequency", "steps"),
    [
        ([datetime(2024, 1, 1)], "+05:30", HOURLY, [datetime(2024, 1, 1, 5, 30)]),
        # Days of a zone begin at its midnight. The clock goes forward on 31 March.
        (
            [datetime(2024, 3, 30, 23), datetime(2024, 3, 31, 22)],
            *("Europe/Berlin", DAILY, [datetime(2024, 3, 31), datetime(2024, 4, 1)]),
        ),
    ],
)
def test_steps_are_in_local_time(
    moments: list[datetime], zone: str, frequency: Frequency, steps: list[datetime]
) -> None:
    times = read_times(table(ds=pa.array(moments, pa.timestamp("us", zone))), frequency)
    assert times is not None
    assert times.steps.tolist() == steps
    if zone == "+05:30":
        assert times.clock == FixedClock(timedelta(hours=5, minutes=30))


def test_bad_times() -> None:
    # Periods of pandas are stored as numbers of months, and pandas cannot read them here.
    field = pa.field("ds", pa.int64(), metadata={"ARROW:extension:name": "pandas.period"})
    periods = pa.table([[648]], schema=pa.schema([field]))
    twice = pa.table([days(1), days(1)], names=["ds", "ds"])
    for bad, message in (
        (table(ds=pa.array(["2024-01-01"])), "timestamps or dates, got string"),
        (table(ds=pa.array([0], pa.timestamp("us", "Mars/Base"))), "IANA database"),
        (periods, r"got int64; convert .*: df\['ds'\]\.dt\.to_times"),
        (twice, "one column of this name; the table has ds, ds"),
    ):
        with pytest.raises(InvalidInputError, match=message) as error:
            read_times(bad, HOURLY)
        assert error.value.param == "ds"
    assert read_times(table(load=[1.0]), HOURLY) is None


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64(), pa.int8(), pa.uint64()])
def test_values_of_any_number_type(kind: pa.DataType) -> None:
    column = pa.array([1, None, 3]).cast(kind)
    (values,) = read_values(table(load=column), ("load",))
    np.testing.assert_array_equal(values, [1, np.nan, 3])


@pytest.mark.parametrize(
    ("columns", "message", "place"),
    [
        ({"load": [1.0]}, "the table has load$", "wind"),
        ({"load": [1.0], "WIND": [1.0]}, "the table has load, WIND; did you mean 'WIND'", "wind"),
        ({"load": [1.0], "wind": ["x"]}, "column of numbers, got string; convert", "wind"),
        ({"load": [1.0], "wind": [True]}, "column of numbers, got bool", "wind"),
        ({"load": [1.0, 2.0], "wind": [1.0, 1e39]}, "float32.*got 1e\\+39", "wind[1]"),
        ({"load": [1.0, 2.0], "wind": [1.0, float("-inf")]}, "got -inf", "wind[1]"),
    ],
)
def test_bad_values(columns: dict[str, Any], message: str, place: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        list(read_values(table(**columns), ("load", "wind")))
    assert error.value.param == place


def test_columns_take_memory_one_at_a_time() -> None:
    many = [f"c{number}" for number in range(20)]
    whole = table(**dict.fromkeys(many, pa.array(np.zeros(100_000, np.int64))))
    with arrow_memory(4 * 100_000 * 8):
        assert sum(len(values) for values in read_values(whole, many)) == 2_000_000


def test_unused_values_of_a_dictionary_are_not_series() -> None:
    codes, many = pa.array(np.zeros(5, np.int8)), pa.array([str(one) for one in range(100)])
    groups = read_groups(table(unique_id=pa.DictionaryArray.from_arrays(codes, many)), 1)
    assert groups.ids.to_pylist() == ["0"]
