"""Parquet, Arrow and frames say what they hold.

Periods: apache/arrow#35855, pandas-dev/pandas#49641. Decimal commas: pola-rs/polars#18797,
pandas-dev/pandas#14066. Columns of Arrow's types: Nixtla/mlforecast#305.
"""

from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet

from foretell.data.panel import Panel
from foretell.data.reading import Reading, read, read_frame
from tests.reported.following import flags

COUNT = 30
DAYS = pd.date_range("2024-01-01", periods=COUNT)


def read_all(folder: Path, frame: pd.DataFrame, **options: Any) -> list[Panel]:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    parquet.write_table(table, folder / "a.parquet")
    feather.write_feather(table, folder / "a.feather")
    with ipc.new_stream(folder / "a.arrows", table.schema) as stream:
        stream.write_table(table)
    how = Reading(**options)
    files = [read(folder / name, how) for name in ("a.parquet", "a.feather", "a.arrows")]
    return [*files, read_frame(frame, how), read_frame(table, how)]


@pytest.mark.parametrize("frequency", ["s", "min", "h", "D", "W-SUN", "M", "Q-DEC", "Y-DEC"])
def test_periods_are_read_by_their_starts(tmp_path: Path, frequency: str) -> None:
    periods = pd.period_range("2024-01-01", periods=COUNT, freq=frequency)
    for panel in read_all(tmp_path, pd.DataFrame({"ds": periods, "y": np.arange(COUNT)})):
        (table,) = panel.tables
        assert table.timestamps.tolist() == periods.to_timestamp().to_pydatetime().tolist()


def test_intervals_are_read_by_their_starts(tmp_path: Path) -> None:
    hours = pd.date_range("2024-01-01", periods=COUNT + 1, freq="h")
    frame = pd.DataFrame({"ds": pd.IntervalIndex.from_breaks(hours), "y": np.arange(COUNT)})
    for panel in read_all(tmp_path, frame):
        assert panel.tables[0].timestamps.tolist() == hours[:-1].to_pydatetime().tolist()


def test_texts_that_can_be_read_in_two_ways_are_asked_about(tmp_path: Path) -> None:
    frame = pd.DataFrame({"ds": DAYS, "y": [f"{i + 1},250" for i in range(COUNT)]})
    with pytest.raises(ValueError, match=r"'1,250' can be read as 1250 and as 1\.25; ") as raised:
        read_all(tmp_path, frame)
    assert flags(str(raised.value))["decimal"] in (".", ",")
    for mark, first in ((",", 1.25), (".", 1250)):
        for panel in read_all(tmp_path, frame, decimal=mark):
            assert panel.tables[0].values[0, 0] == first


@pytest.mark.parametrize("texts", ["{},50", "1.00{},50", "0,05{}"])
def test_decimal_commas_are_found(tmp_path: Path, texts: str) -> None:
    written = [texts.format(i % 10) for i in range(COUNT)]
    # Of other columns, numbers say nothing of the texts.
    frame = pd.DataFrame({"ds": DAYS, "y": written, "z": np.arange(COUNT) / 4})
    expected = [float(text.replace(".", "").replace(",", ".")) for text in written]
    for panel in read_all(tmp_path, frame):
        assert panel.tables[0].values[:, 0].tolist() == expected
        assert panel.tables[0].values[:, 1].tolist() == frame["z"].tolist()


def test_numbers_among_texts_have_no_mark() -> None:
    frame = pd.DataFrame({"ds": DAYS, "y": pd.Series([1.125, "2,5"] * 15, dtype=object)})
    assert read_frame(frame).tables[0].values[:2, 0].tolist() == [1.125, 2.5]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([Decimal("1.250")] * COUNT),
        pa.array(np.full(COUNT, 1.25, np.float16)),
        pa.array([1.25] * COUNT, pa.float32()),
        pa.array(["1.25"] * COUNT, pa.large_string()),
        pa.array(["1.25"] * COUNT).dictionary_encode(),
    ],
    ids=lambda column: str(column.type)[:12],
)
@pytest.mark.parametrize(
    "times",
    [
        pa.array(DAYS.date.tolist(), pa.date32()),
        pa.array(DAYS.date.tolist(), pa.date64()),
        pa.array(DAYS, pa.timestamp("s")),
        pa.array([str(day) for day in DAYS.date]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type)[:12],
)
def test_columns_of_arrows_types(column: pa.Array, times: pa.Array) -> None:
    table = pa.table({"ds": times, "y": column, "odd": [[1, 2]] * COUNT})
    frames = [table, table.to_pandas(types_mapper=pd.ArrowDtype), table.to_pandas()]
    if column.type != pa.float16():
        frames.append(pl.from_arrow(table))
    for frame in frames:
        (read_table,) = read_frame(frame).tables
        assert read_table.channels == ("y",)
        assert read_table.values[:, 0].tolist() == [1.25] * COUNT
        assert read_table.timestamps.tolist() == DAYS.to_pydatetime().tolist()


def test_dates_and_times_of_the_day_of_pythons_types() -> None:
    days = [date(2024, 1, 1 + hour // 24) for hour in range(48)]
    clock = [time(hour % 24) for hour in range(48)]
    panel = read_frame(pd.DataFrame({"date": days, "place": "x", "at": clock, "y": range(48)}))
    assert (str(panel.frequency), len(panel)) == ("h", 48)


def test_numbers_that_count_rows_are_no_years(tmp_path: Path) -> None:
    frame = pd.DataFrame({"ds": np.arange(1500, 1500 + COUNT), "y": np.arange(COUNT)})
    with pytest.raises(ValueError, match=r"numbers such as 1500 are no timestamps; .*%Y"):
        read_frame(frame)
    assert str(read_frame(frame, Reading(date_format="%Y")).frequency) == "YS"
    assert str(read_frame(frame.rename(columns={"ds": "year"})).frequency) == "YS"
