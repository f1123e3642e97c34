from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from foretell.bundle.frequency import Frequency
from foretell.service.arrow.columns import read_groups, read_times, read_values
from foretell.service.errors import InvalidInputError
from foretell.service.times.clocks import FixedClock

HOURLY, DAILY = Frequency.parse("h"), Frequency.parse("D")


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


def days(*numbers: int) -> pa.Array:
    return pa.array([date(2024, 1, number) for number in numbers])


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(["b", "b", "a"]),
        pa.array(["b", "b", "a"], pa.large_string()),
        pa.array(["b", "b", "a"], pa.string_view()),
        pa.array(["b", "b", "a"]).dictionary_encode(),
        pa.chunked_array([["b"], ["b", "a"]]),
        pa.chunked_array(
            [pa.array(["b"]).dictionary_encode(), pa.array(["b", "a"]).dictionary_encode()]
        ),
        pl.Series(["b", "b", "a"]).to_arrow(),
    ],
)
def test_series_in_order_of_appearance(ids: pa.Array) -> None:
    groups = read_groups(table(unique_id=ids))
    assert groups.ids.to_pylist() == ["b", "a"]
    assert [groups.of(0).tolist(), groups.of(1).tolist()] == [[0, 1], [2]]


def test_rows_of_a_series_keep_their_order_when_series_are_mixed() -> None:
    groups = read_groups(table(unique_id=[7, 9, 7, 9, 7]))
    assert groups.ids.to_pylist() == [7, 9]
    assert [groups.of(0).tolist(), groups.of(1).tolist()] == [[0, 2, 4], [1, 3]]


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
        ({"unique_id": [1.5]}, "strings or integers, got double", "unique_id"),
    ],
)
def test_bad_ids(columns: dict[str, Any], message: str, place: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        read_groups(table(**columns))
    assert error.value.param == place


def test_dates_and_timestamps_of_any_unit() -> None:
    expected = np.array(["2024-01-01", "2024-01-02"], "M8[us]")
    kinds = [pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns")]
    for kind in kinds:
        times = read_times(table(ds=days(1, 2).cast(kind)), DAILY)
        assert times is not None
        np.testing.assert_array_equal(times.steps, expected)
        assert times.clock == FixedClock(None)
        assert times.kind == kind


def test_a_name_that_two_columns_have() -> None:
    twice = pa.table([days(1), days(1)], names=["ds", "ds"])
    with pytest.raises(InvalidInputError, match="one column of this name; the table has ds, ds"):
        read_times(twice, DAILY)


def test_no_timestamps() -> None:
    assert read_times(table(load=[1.0]), HOURLY) is None


def test_a_fixed_offset_is_the_wall_clock() -> None:
    moments = pa.array([datetime(2024, 1, 1)], pa.timestamp("us", "+05:30"))
    times = read_times(table(ds=moments), HOURLY)
    assert times is not None
    assert times.steps.tolist() == [datetime(2024, 1, 1, 5, 30)]
    assert times.clock == FixedClock(timedelta(hours=5, minutes=30))


def test_days_of_a_time_zone_begin_at_its_midnight() -> None:
    # The clock goes forward on 31 March.
    moments = [datetime(2024, 3, 30, 23), datetime(2024, 3, 31, 22)]
    column = pa.array(moments, pa.timestamp("us", "Europe/Berlin"))
    times = read_times(table(ds=column), DAILY)
    assert times is not None
    assert times.steps.tolist() == [datetime(2024, 3, 31), datetime(2024, 4, 1)]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["2024-01-01"]), "timestamps or dates, got string"),
        (pa.array([0], pa.timestamp("us", "Mars/Base")), "IANA database"),
    ],
)
def test_bad_times(column: pa.Array, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        read_times(table(ds=column), HOURLY)
    assert error.value.param == "ds"


def test_values_of_any_number_type() -> None:
    kinds = [pa.float16(), pa.float32(), pa.float64(), pa.int8(), pa.uint64()]
    for kind in kinds:
        column = pa.array([1, None, 3]).cast(kind)
        (values,) = read_values(table(load=column), ("load",))
        np.testing.assert_array_equal(values, [1, np.nan, 3])


def test_the_one_channel_may_be_called_y() -> None:
    assert read_values(table(y=[1.0]), ("load",))[0].tolist() == [1.0]


@pytest.mark.parametrize(
    ("columns", "message", "place"),
    [
        ({"load": [1.0]}, "the table has load", "wind"),
        ({"load": [1.0], "wind": ["x"]}, "column of numbers, got string", "wind"),
        ({"load": [1.0], "wind": [True]}, "column of numbers, got bool", "wind"),
        ({"load": [1.0, 2.0], "wind": [1.0, 1e39]}, "float32.*got 1e\\+39", "wind[1]"),
        ({"load": [1.0, 2.0], "wind": [1.0, float("-inf")]}, "got -inf", "wind[1]"),
    ],
)
def test_bad_values(columns: dict[str, Any], message: str, place: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as error:
        read_values(table(**columns), ("load", "wind"))
    assert error.value.param == place
