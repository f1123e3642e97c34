"""Cells of the rows and columns of a table.

Parquet, Arrow and frames have types.

Periods: apache/arrow#35855, pandas-dev/pandas#49641. Decimal commas: pola-rs/polars#18797,
pandas-dev/pandas#14066. Columns of Arrow's types: Nixtla/mlforecast#305.

Rows that begin with `#` are rows: lisad/phaser#11, stevehansen/csv#65 (ids such as `#1`).

Odd tables are read or refused in plain words, and never end in a traceback.
"""

import random
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

from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read, read_frame
from tests.data.panels import write
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
def test_periods_and_intervals_are_read_by_their_starts(tmp_path: Path, frequency: str) -> None:
    periods = pd.period_range("2024-01-01", periods=COUNT, freq=frequency)
    starts = periods.to_timestamp()
    ends = (periods + 1).to_timestamp()
    for column in (periods, pd.IntervalIndex.from_arrays(starts, ends)):
        for panel in read_all(tmp_path, pd.DataFrame({"ds": column, "y": np.arange(COUNT)})):
            (table,) = panel.tables
            assert table.timestamps.tolist() == starts.to_pydatetime().tolist()


def test_ambiguous_numbers_are_refused_with_both_readings(tmp_path: Path) -> None:
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
    # The numbers of column z do not decide the decimal mark of column y.
    frame = pd.DataFrame({"ds": DAYS, "y": written, "z": np.arange(COUNT) / 4})
    expected = [float(text.replace(".", "").replace(",", ".")) for text in written]
    for panel in read_all(tmp_path, frame):
        assert panel.tables[0].values[:, 0].tolist() == expected
        assert panel.tables[0].values[:, 1].tolist() == frame["z"].tolist()
    mixed = frame.assign(y=pd.Series([1.125, "2,5"] * 15, dtype=object))
    assert read_frame(mixed).tables[0].values[:2, 0].tolist() == [1.125, 2.5]


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


def test_row_numbers_are_not_years(tmp_path: Path) -> None:
    frame = pd.DataFrame({"ds": np.arange(1500, 1500 + COUNT), "y": np.arange(COUNT)})
    with pytest.raises(ValueError, match=r"numbers such as 1500 are no timestamps; .*%Y"):
        read_frame(frame)
    assert str(read_frame(frame, Reading(date_format="%Y")).frequency) == "YS"
    assert str(read_frame(frame.rename(columns={"ds": "year"})).frequency) == "YS"


DATES = [f"2024-01-{day:02d}" for day in range(1, 31)]
WIDE = "date,a,b\n" + "".join(f"{day},{i},{i / 4}\n" for i, day in enumerate(DATES))


def long(*names: str, header: str = "unique_id,ds,y") -> str:
    return header + "\n" + "".join(f"{name},{day},1.5\n" for name in names for day in DATES)


@pytest.mark.parametrize(
    ("names", "header", "column"),
    [
        (("A", "#B", "#1001"), "unique_id,ds,y", None),
        (("#general", "#ff0000"), "unique_id,ds,y", None),
        (('"#1, two"', '"x"'), "unique_id,ds,y", None),
        (('"line\n#2"', "#1"), "unique_id,ds,y", None),
        (("A", "#B"), "#,date,y", ("#",)),
        (("A", "#B"), "# shop,date,y", ("shop",)),
    ],
)
def test_ids_that_begin_with_a_hash_are_series(
    tmp_path: Path, names: tuple[str, ...], header: str, column: tuple[str, ...] | None
) -> None:
    panel = read(write(tmp_path, long(*names, header=header)), Reading(id_column=column))
    assert list(panel.series) == [name.strip('"') for name in names]
    assert set(panel.rows.values()) == {30}
    assert panel.channels == ("y",)
    assert column or panel.notes == ()


@pytest.mark.parametrize(
    ("content", "count"),
    [
        ("# a station\n# of 3, by hour, and more\n" + WIDE, 2),
        ("# with, three, cells\n" * 30 + WIDE, 30),
        (WIDE.replace("2024-01-09", "# moved, here\n2024-01-09"), 1),
        (WIDE.replace("2024-01-09", "# one, two, three, four\n2024-01-09") + "# the end\n", 2),
    ],
)
def test_comments_are_skipped_and_counted(tmp_path: Path, content: str, count: int) -> None:
    panel = read(write(tmp_path, content))
    assert panel.tables[0].values.tolist() == [[i, i / 4] for i in range(30)]
    (note,) = panel.notes
    assert note.startswith("a line" if count == 1 else f"{count} lines")
    assert "passed over" in note


@pytest.mark.parametrize(
    "lines",
    [
        ["# text_of by hand, on a Monday, in a hurry", "# date,a,b"],
        ["# date,a,b", "# UTC,MW,m/s"],
        ["# date,a,b", "# of a station, with gaps, and noise", "# of two sensors"],
        ["# day,a,b", "# -,MW,MW"],
    ],
)
def test_the_names_are_in_the_line_that_fits_the_columns(tmp_path: Path, lines: list[str]) -> None:
    content = "\n".join([*lines, WIDE.partition("\n")[2]])
    panel = read(write(tmp_path, content))
    assert panel.source is not None
    assert panel.channels == ("a", "b")
    assert panel.tables[0].values.tolist() == [[i, i / 4] for i in range(30)]
    assert panel.source.reading.time_column in {("date",), ("day",)}
    line = next(i for i, each in enumerate(lines, 1) if each.endswith(",a,b"))
    assert f"may be the columns' names, line {line} is" in panel.notes[0]


def test_comment_among_the_rows_keeps_the_units(tmp_path: Path) -> None:
    content = WIDE.replace("\n", "\nUTC,MW,m/s\n", 1)
    panel = read(write(tmp_path, content.replace("2024-01-04", "# moved\n2024-01-04")))
    assert (panel.channels, len(panel)) == (("a", "b"), 30)
    with pytest.raises(ValueError, match="line 6, column 'date': '# moved'") as raised:
        read(write(tmp_path, content.replace("2024-01-04", "# moved,far,away\n2024-01-04")))
    assert "MW" not in str(raised.value)


ODD = [
    # Dates in a column `hour`.
    "hour,unique_id,y\n"
    + "".join(f"2024-01-{1 + i // 2:02d},{'ab'[i % 2]},{i}\n" for i in range(20)),
    # Each of two columns has one word; one has decimal commas, the other points.
    "ds;a;b\n2024-01-01;0,5;0.25\n2024-01-02;x;0.5\n2024-01-03;0,75;y\n",
    "shop,id,ds,Minute\nB,,,0.25\n00:00,1711929600,,1 000\n",
    "y;year\ntrue;02/27/2024\nFalse;03/01/2024\ntrue;03/01/2024\n",
    "load|ds|_time|timestamp\n99999999999999999999|# x|1708992000|0\n99999999999999999999|x|1|1\n",
    "period,TIME,Date\nNA,,5.754\nx y,,99999999999999999999\n",
    "Minute;year;month\n1.770;-1;NA\n2;99999;5\n",
    "ds,y\n280777401,1\n685474248,2\n",
    "ds,y\n2024-01-01 00:00-24:00,1\n2024-01-02 00:00-25:00,2\n",
    "ds,unique_id,y\n2024-01-01,,1\n2024-01-02,,2\n2024-01-03,,3\n",
    "#\n#,#\n#,#,#\n",
    '"ds,y\n2024-01-01,1\n2024-01-02,2\n',
    # Years that nanoseconds cannot represent, and times after the last one.
    "year,second,y\n" + "".join(f"1000,{i / 2},{i}\n" for i in range(5)),
    "year,second,y\n2262,0.5,1\n2262,1e9,2\n2262,1e300,3\n",
    "year,month,day,hour,y\n" + "".join(f"9999,12,31,{i},{i}\n" for i in range(22, 26)),
]


def read_or_refused(path: Path, how: Reading) -> None:
    try:
        message = f"{path}: {len(read(path, how))} rows"
    except DataError as error:
        message = str(error)
    assert message.startswith(f"{path}: ")


@pytest.mark.parametrize("content", ODD)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_odd_table_is_read_or_refused(tmp_path: Path, content: str, zone: str | None) -> None:
    read_or_refused(write(tmp_path, content), Reading(time_zone=zone, missing="ffill"))


SHORT = long("A", "B").replace("B,2024-01-05,1.5", "B,2024-01-05")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # A spreadsheet's error in the first column.
        (
            "a,date\n"
            + "".join(f"{'#DIV/0!' if i == 4 else i},{d}\n" for i, d in enumerate(DATES)),
            "line 6, column 'a': '#DIV/0!' is no finite number",
        ),
        # Lines are counted below a comment, too.
        (
            WIDE.replace("2024-01-09", "# here\n2024-01-09").replace("01-12,11", "01-12,x"),
            "line 14, column 'a': 'x'",
        ),
        # Rows that are too short lack values, whatever their series.
        *((SHORT.replace("B,", name), "line 36, column 'y': no value") for name in ("B,", "#1,")),
        *(
            (
                SHORT.replace("B,", name).replace(f"{name}2024-01-05", f"{name}2024-01-05,1,2"),
                "line 36: 4 cells, and there are 3 columns",
            )
            for name in ("B,", "#1,")
        ),
        # In columns with words commas and points are decided cell by cell.
        (ODD[1], "line 4, column 'b': 'y' is no finite number"),
        *(
            (
                f"year,{unit},y\n" + "".join(f"2024,{i},{i}\n" for i in range(-1, 5)),
                f"line 2, column 'year,{unit}': no time of year, {unit}",
            )
            for unit in ("hour", "minute", "second")
        ),
    ],
)
def test_error_names_the_line(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(write(tmp_path, content))


def test_parts_of_a_year_far_from_1970_are_one_time(tmp_path: Path) -> None:
    content = "year,hour,y\n" + "".join(f"1000,{i / 2},{i}\n" for i in range(5))
    times = read(write(tmp_path, content)).tables[0].timestamps.astype(str).tolist()
    assert times[:2] == ["1000-01-01T00:00:00.000000", "1000-01-01T00:30:00.000000"]


@pytest.mark.parametrize("minute", ["Minute", "min"])
@pytest.mark.parametrize("form", ["{date},{hour},{i}", "{hour},{date},{i}"])
def test_dates_in_a_column_of_minutes_are_used_once(tmp_path: Path, minute: str, form: str) -> None:
    hours = [(f"2024-01-{1 + i // 8:02d}", i % 8, i) for i in range(40)]
    # The last hour is repeated.
    rows = [form.format(date=date, hour=hour, i=i) for date, hour, i in [*hours, hours[-1]]]
    names = form.format(date=minute, hour="hour", i="y")
    read_or_refused(write(tmp_path, "\n".join([names, *rows])), Reading())


CELLS = (
    *("", "x", "NA", "0", "7", "-1", "0.5", "0,5", "1,500", "1e400", "$3", "true", "#1", "24:00"),
    *("13:00", "HE05", "2024", "2024-03", "2024-03-01", "3/4/2024", "1709251200", "1709251200000"),
    *("2024-03-01 05:00", "2024-03-01T05:00Z", "2024-03-01 05:00-06:00", "2024Q1", "a - b"),
)
NAMES = ("date", "time", "hour", "ds", "year", "month", "y", "id", "shop", "load", "", "#", "2020")


@pytest.mark.parametrize("seed", range(40))
def test_random_tables_are_read_or_refused(tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    width, count = drawn.randint(2, 5), drawn.choice([1, 3, 12])
    columns = [
        [drawn.choice(CELLS)] * count if drawn.random() < 0.3 else drawn.choices(CELLS, k=count)
        for _ in range(width)
    ]
    rows = [";".join(cells) for cells in zip(*columns, strict=True)]
    content = "\n".join([";".join(drawn.sample(NAMES, width)), *rows])
    how = Reading(missing=drawn.choice(["error", "interpolate"]))
    read_or_refused(write(tmp_path, content), how)
