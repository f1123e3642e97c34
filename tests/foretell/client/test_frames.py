"""Frames there and back, with what a server would answer in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal
from polars.testing import assert_frame_equal as assert_polars_equal

from foretell.client.errors import InvalidInputError
from foretell.client.frames import Given, channel_of, read
from foretell.client.pieces import by_series

HOURS = pd.date_range("2024-03-01", periods=3, freq="h", name="date")
LONG = pd.DataFrame({"sku": ["a", "a", "b"], "date": HOURS, "load": [1.0, 2.0, 3.0]})


def answered(given: Given[Any]) -> Any:
    """A server's answer with the last two rows: ids without dictionary, values in float32."""
    table = given.table.slice(1)
    ids = table["unique_id"]
    if pa.types.is_dictionary(ids.type):
        ids = ids.cast(ids.type.value_type)
    columns = {"unique_id": ids}
    if "ds" in table.column_names:
        columns["ds"] = table["ds"]
    columns["load"] = table["load"].cast(pa.float32())
    return given.back(pa.table(columns | {"load_q0.9": columns["load"]}))


def expected(frame: pd.DataFrame) -> pd.DataFrame:
    last = frame.tail(2)
    return last.assign(**{"load_q0.9": last["load"]})


@pytest.mark.parametrize(
    "frame",
    [
        LONG,
        LONG.astype({"load": "float32"}),
        LONG.astype({"load": "Float64"}),
        LONG.astype({"load": "double[pyarrow]", "date": "timestamp[ns][pyarrow]"}),
        LONG.astype({"sku": "category", "date": "datetime64[ns]"}),
        LONG.astype({"sku": object}).assign(date=HOURS.tz_localize("Europe/Berlin")),
        LONG.assign(sku=[7, 7, 8]),
        LONG.assign(sku=[7, 7, 8]).astype({"sku": "category"}),
        LONG.assign(date=LONG.date.dt.date),
        LONG.assign(date=LONG.date.dt.to_period("h")),
        LONG.set_index("sku"),
        LONG.set_index(["sku", "date"]),
        LONG.set_index(["date", "sku"]),
    ],
)
def test_long_frames_of_pandas(frame: pd.DataFrame) -> None:
    given = read(frame, "sku", None)
    assert {"unique_id", "ds", "load"} == set(given.table.column_names)
    wanted = expected(frame)
    if list(frame.index.names) == [None]:
        wanted = wanted.reset_index(drop=True)
    assert_frame_equal(answered(given), wanted)


@pytest.mark.parametrize("unit", ["s", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "+01:00"])
@pytest.mark.parametrize("name", [None, "date", "ds"])
def test_one_series_of_pandas_by_its_index(unit: str, zone: str | None, name: str | None) -> None:
    index = HOURS.as_unit(unit).rename(name).tz_localize(zone)
    frame = pd.DataFrame({"load": [1.0, 2.0, 3.0]}, index)
    given = read(frame, None, None)
    assert given.table["unique_id"].to_pylist() == [""] * 3
    found = answered(given)
    assert_frame_equal(found, expected(frame))
    assert found.index.freq == index.freq


def test_other_indices_of_pandas() -> None:
    index = pd.period_range("2024-01", periods=3, freq="M", name="month")
    frame = pd.DataFrame({"load": [1.0, 2.0, 3.0]}, index)
    assert_frame_equal(answered(read(frame, None, None)), expected(frame))
    # An index without information is left out.
    frame = pd.DataFrame({"load": [1, 2, 3]}, index=[5, 6, 7])
    given = read(frame, None, None)
    assert given.table.column_names == ["load", "unique_id"]
    found = answered(given)
    # Forecasts of whole numbers have fractions.
    assert_frame_equal(found, pd.DataFrame({"load": [2.0, 3.0], "load_q0.9": [2.0, 3.0]}))


@pytest.mark.parametrize(
    "casts",
    [
        {},
        {"sku": pl.Categorical, "load": pl.Float32},
        {"sku": pl.Enum(["b", "a"]), "date": pl.Date},
        {"date": pl.Datetime("ms", "Europe/Berlin"), "load": pl.Int32},
    ],
)
def test_frames_of_polars(casts: dict[str, Any]) -> None:
    frame = pl.from_pandas(LONG).cast(casts)
    wanted = frame.tail(2).with_columns(pl.col("load").alias("load_q0.9"))
    if "load" in casts and casts["load"].is_integer():
        wanted = wanted.cast({"load": pl.Float64, "load_q0.9": pl.Float64})
    given = read(frame, "sku", None)
    assert_polars_equal(answered(given), wanted)
    # Dictionaries of views cannot be encoded.
    assert by_series(given.table).ids.to_pylist() == ["a", "b"]


@pytest.mark.parametrize("values", [pa.float32(), pa.float64()])
@pytest.mark.parametrize(
    "ids", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_tables(ids: pa.DataType, values: pa.DataType) -> None:
    table = pa.Table.from_pandas(LONG, preserve_index=False)
    table = table.set_column(2, "load", table["load"].cast(values))
    table = table.set_column(0, "sku", pa.array(["a", "a", "b"], ids))
    found = answered(read(table, "sku", None))
    assert isinstance(found, pa.Table)
    wanted = table.slice(1).append_column("load_q0.9", table["load"].slice(1))
    assert found.equals(wanted)
    assert found.schema.metadata is None


def test_any_frame_that_arrow_reads() -> None:
    class Other:
        def __arrow_c_stream__(self, schema: object = None) -> object:
            return pa.table({"load": [1.0, 2.0]}).__arrow_c_stream__(schema)

    assert answered(read(Other(), None, None)).column_names == ["load", "load_q0.9"]


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (LONG, {"id_column": "skew"}, "^skew: expected one column .* sku, date, load"),
        (LONG, {"time_column": "dat"}, "^dat: .* did you mean 'date'"),
        (LONG.assign(at=HOURS), {}, "^time_column: columns of times: date, at; choose one"),
        (LONG.assign(ds=1), {"time_column": "date"}, "^ds: the column date would get"),
        (LONG["load"], {}, r"^frame: .*; convert it: \.to_frame\(\)"),
        (pl.from_pandas(LONG).lazy(), {}, r"^frame: .* LazyFrame; convert it: \.collect\(\)"),
        ({"load": [1.0]}, {}, "^frame: expected a DataFrame .* Arrow reads: dict$"),
        (LONG.assign(load=["1", 2, None]), {}, "^frame: .* load"),
        (pd.DataFrame(np.zeros((2, 2)), columns=["load", "load"]), {}, "Duplicate column"),
    ],
)
def test_invalid_frames_are_refused(frame: Any, options: dict[str, str], message: str) -> None:
    arguments = {"id_column": None, "time_column": None} | options
    with pytest.raises(InvalidInputError, match=message):
        read(frame, **arguments)


def test_times_are_found_by_their_type_or_name() -> None:
    frame = LONG.astype({"date": str}).rename(columns={"date": "Timestamp"})
    assert read(frame, "sku", None).time_column == "Timestamp"
    # Durations are no times.
    frame = LONG.assign(after=HOURS - HOURS[0])
    assert read(frame, "sku", None).time_column == "date"


def test_places_have_the_callers_names() -> None:
    given = read(LONG, "sku", None)
    assert given.named("unique_id[3]") == "sku[3]"
    assert given.named("unique_id=a") == "sku=a"
    assert given.named("ds") == "date"
    assert given.named("dsp[3]") == "dsp[3]"
    assert given.named("query.quantiles[1]") == "quantiles[1]"
    alone = read(LONG[["load"]], None, None)
    assert alone.named("unique_id[3]") is None
    assert alone.named("ds") == "ds"


def test_channel_named_like_a_quantile_is_a_channel() -> None:
    known = ["load", "load_q0.9"]
    found = [channel_of(name, known) for name in ("load", "load_q0.9", "load_q0.1", "ds")]
    assert found == ["load", "load_q0.9", "load", None]
