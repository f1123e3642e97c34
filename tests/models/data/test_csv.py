from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from foretell.bundle.frequency import Frequency
from foretell.models.data.csv import read_csv
from foretell.models.data.errors import DataError
from foretell.models.data.panel import Source


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "data.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


HOURLY = "date,a,b\n2020-01-01 00:00:00,1,2\n2020-01-01 01:00:00,3,4.5\n2020-01-01 02:00:00,5,-6\n"


def test_reads_a_wide_table(tmp_path: Path) -> None:
    path = write(tmp_path, HOURLY)
    panel = read_csv(path)
    (table,) = panel.tables
    assert panel.source == Source(path, "date")
    assert table.channels == ("a", "b")
    assert table.values.dtype == np.float64
    assert table.values.tolist() == [[1, 2], [3, 4.5], [5, -6]]
    assert table.timestamps.dtype == np.dtype("M8[us]")
    assert table.timestamps[2] == np.datetime64("2020-01-01T02:00")
    assert table.frequency == Frequency.parse("h")
    assert (table.utc_offset, table.series, len(table)) == (None, "", 3)


@pytest.mark.parametrize("extra", ["\n", "\n\n", ",,\n"])
def test_ignores_blank_lines_at_the_end(tmp_path: Path, extra: str) -> None:
    assert len(read_csv(write(tmp_path, HOURLY + extra))) == 3


def test_reads_a_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    content = b"\xef\xbb\xbf" + HOURLY.replace("\n", "\r\n").encode()
    assert read_csv(write(tmp_path, content)).channels == ("a", "b")


@pytest.mark.parametrize("name", ["Date", "datetime", "TIMESTAMP", "time", "ds"])
def test_finds_the_timestamp_column_by_name(tmp_path: Path, name: str) -> None:
    text = f"a,{name}\n1,2020-01-01\n2,2020-01-02\n3,2020-01-03\n"
    assert read_csv(write(tmp_path, text)).channels == ("a",)


def test_finds_the_timestamp_column_by_content(tmp_path: Path) -> None:
    text = "a,when\n20200101,2020-01-01\n20200102,2020-01-02\n20200103,2020-01-03\n"
    assert read_csv(write(tmp_path, text)).channels == ("a",)


def test_takes_named_columns_in_their_order(tmp_path: Path) -> None:
    text = "date,day,a,b\nx,2020-01-01,1,2\ny,2020-01-02,3,4\nz,2020-01-03,5,6\n"
    table = read_csv(write(tmp_path, text), timestamp_column="day", channels=["b", "a"]).tables[0]
    assert table.channels == ("b", "a")
    assert table.values[0].tolist() == [2, 1]


def test_keeps_the_utc_offset_and_the_wall_clock(tmp_path: Path) -> None:
    rows = "".join(f"2020-01-01T0{hour}:00:00+05:30,1\n" for hour in range(3))
    (table,) = read_csv(write(tmp_path, "date,a\n" + rows)).tables
    assert table.utc_offset == timedelta(hours=5, minutes=30)
    assert table.timestamps[0] == np.datetime64("2020-01-01T00:00")


def test_a_given_frequency_is_checked(tmp_path: Path) -> None:
    path = write(tmp_path, HOURLY)
    assert read_csv(path, frequency=Frequency.parse("60min")).frequency.multiple == 60
    with pytest.raises(DataError, match=r"line 3, column 'date': .* frequency of 30min"):
        read_csv(path, frequency=Frequency.parse("30min"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("date\n2020-01-01\n", "line 1: expected at least two columns"),
        ("date;a\n2020-01-01;1\n", "line 1: expected at least two columns separated by commas"),
        ("date,a,a\n", "line 1: two columns are called 'a'"),
        ("date,a,\n", "line 1: column 3 has no name"),
        ("a,b\n1,2\n3,4\n5,6\n", "line 1: no timestamp column"),
        ("date,a\n2020-01-01,1\n2020-01-02,2\n", "expected at least 3 rows of data, got 2"),
        (HOURLY + "2020-01-01 04:00:00,7,8\n", "line 5, column 'date': .*rows are missing before"),
        (HOURLY + "2020-01-01 02:00:00,7,8\n", "line 5, column 'date': .*repeats the row before"),
        (HOURLY + "2020-01-01 00:00:00,7,8\n", "line 5, column 'date': .*earlier than the row"),
        (HOURLY + "2020-01-01 02:30:00,7,8\n", "line 5, column 'date': .*between two steps"),
        (HOURLY + "soon,7,8\n", "line 5, column 'date': .*'soon'"),
        (HOURLY + "2020-01-01 03:00:00,7,n/a\n", "line 5, column 'b': 'n/a' is no finite number"),
        (HOURLY + "2020-01-01 03:00:00,inf,8\n", "line 5, column 'a': 'inf' is no finite number"),
        (HOURLY + "2020-01-01 03:00:00,nan,8\n", "line 5, column 'a': 'nan' is no finite number"),
        (HOURLY + "2020-01-01 03:00:00,,8\n", "line 5, column 'a': no value"),
        (HOURLY + "2020-01-01 03:00:00,7\n", "line 5, column 'b': no value"),
        (HOURLY + "\n2020-01-01 03:00:00,7,8\n", "line 5, column 'date'"),
        (HOURLY + "2020-01-01 03:00:00,7,8,9\n", "Expected 3 fields in line 5, saw 4"),
        (HOURLY + '2020-01-01 03:00:00,"7,8\n', "not a CSV table: EOF inside string"),
        (b"date,a\n2020-01-01,\xff\n", r"not UTF-8 text \(byte 18\)"),
    ],
)
def test_names_file_line_and_column(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(DataError, match=message) as raised:
        read_csv(path)
    assert str(raised.value).startswith(f"{path}: ")


def test_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.csv: No such file"):
        read_csv(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timestamp_column": "when"}, "no column 'when'; there are date, a, b"),
        ({"channels": ["c"]}, "no channel 'c'; there are a, b"),
        ({"channels": ["date"]}, "no channel 'date'; there are a, b"),
        ({"channels": ["a", "a"]}, "channel 'a' is chosen twice"),
        ({"channels": []}, "no channel chosen"),
    ],
)
def test_refuses_columns_that_are_not_there(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_csv(write(tmp_path, HOURLY), **options)  # type: ignore[arg-type]
