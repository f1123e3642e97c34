"""Tables of another shape are read, or refused with what makes one of them.

Names in several lines: pola-rs/polars#8402, tidyverse/readr#784. Several lines of names:
ranaroussi/yfinance#2269. Wide tables: Kaggle's web traffic, M5, the World Bank. Files of
attributes: rakshitha123/TSForecasting#2. Missing values: London's meters, FRED.
"""

import bz2
import gzip
import io
import lzma
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from foretell.data.reading import Reading, read
from tests.reported.following import follow

DAYS = [f"2024-01-{day:02d}" for day in range(1, 31)]
ROWS = "".join(f"{day},{i},{i / 4}\n" for i, day in enumerate(DAYS))
TABLE = f"date,a,b\n{ROWS}"
VALUES = [[i, i / 4] for i in range(30)]


def written(folder: Path, content: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "above", ["", "A title\n\n", '"A title",\n', "# of 3, lines\n", 'A 5" pipe\n']
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_name_in_several_lines(tmp_path: Path, above: str, end: str) -> None:
    content = f'{above}"Date\n(UTC)","Load\n(MW)",b\n{ROWS}2024-01-31,x,1\n'.replace("\n", end)
    line = content.count("\n")
    with pytest.raises(ValueError, match=rf"line {line}, column 'Load \(MW\)': 'x'"):
        read(written(tmp_path, content))
    panel = read(written(tmp_path, content.replace("x,1", "30,7.5")))
    assert (panel.channels, panel.tables[0].values.tolist()) == (
        ("Load (MW)", "b"),
        [*VALUES, [30, 7.5]],
    )


@pytest.mark.parametrize(
    ("names", "channels"),
    [
        ("date,a,b\n-,MW,m/s", ("a", "b")),
        ("date,a,b\niso8601,degC,%", ("a", "b")),
        ("Price,Close,High\nTicker,ABC,ABC\nDate,,", ("Close", "High")),
        ("Price,Close,Close\nTicker,ABC,XYZ\nDate,,", ("Close ABC", "Close XYZ")),
        (",Close,Close\n,ABC,XYZ\nDate,,", ("Close ABC", "Close XYZ")),
        ("date,a,b\nUTC,,", ("a", "b")),
        ("date,a,a\nUTC,MW,kW", ("a MW", "a kW")),
    ],
)
def test_lines_below_the_names(tmp_path: Path, names: str, channels: tuple[str, ...]) -> None:
    panel = read(written(tmp_path, f"{names}\n{ROWS}"))
    assert panel.source is not None
    (time,) = panel.source.reading.time_column or ()
    assert time.lower() == "date"
    assert (panel.channels, panel.tables[0].values.tolist()) == (channels, VALUES)
    assert "below the columns' names: no data, and passed over" in panel.notes[0]


@pytest.mark.parametrize("row", ["x,1,2", "2024-01-01,x,2", "2024-01-01,x,y"])
def test_a_first_row_with_a_mistake_is_no_line_of_names(tmp_path: Path, row: str) -> None:
    with pytest.raises(ValueError, match="line 2, column"):
        read(written(tmp_path, f"date,a,b\n{row}\n{ROWS}"))


def of(times: list[str], names: str, *rows: str) -> str:
    values = [",".join(str(i * 2.5) for i in range(len(times))) for _ in rows]
    lines = [f"{row},{value}" for row, value in zip(rows, values, strict=True)]
    return "\n".join([f"{names},{','.join(times)}", *lines]) + "\n"


WIDE = {
    "days": of(DAYS, "Page", "x", '"y, z"'),
    "American": of(
        [f"1/{i + 1}/20" for i in range(30)], "Province/State,Country,Lat", ",x,1.5", ",y,2"
    ),
    "steps": of([f"d_{i + 1}" for i in range(30)], "id,store", "x_1,x", "y_1,y"),
    "years": of([f"{1960 + i}" for i in range(30)], "Country", "x", "y"),
    "years of a bank": "Data,World\n\n"
    + of([f"{1960 + i} [YR{1960 + i}]" for i in range(30)], "Country Name,Code", "x,X", "y,Y"),
    "months": of([f"{2020 + i // 12}-{i % 12 + 1:02d}" for i in range(30)], "it's", "x", "y"),
}


@pytest.mark.parametrize("name", WIDE)
def test_the_command_that_is_told_makes_a_wide_table_long(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, WIDE[name])
    with pytest.raises(ValueError, match="are times, and each row is a series") as raised:
        read(path)
    command = re.search(r"python (-c '.*') writes them to long\.csv", str(raised.value))
    assert command
    subprocess.run([sys.executable, *shlex.split(command[1])], cwd=tmp_path, check=True)
    panel, _ = follow(tmp_path / "long.csv")
    assert list(panel.rows.values()) == [30, 30]
    for table in panel.tables:
        values = table.values[:, table.channels.index("y")]
        assert values.tolist() == [i * 2.5 for i in range(30)]


def test_channels_that_are_numbered_are_no_wide_table(tmp_path: Path) -> None:
    panel = read(written(tmp_path, f"date,d_1,d_2\n{ROWS}"))
    assert panel.channels == ("d_1", "d_2")


def test_a_file_of_attributes_is_named(tmp_path: Path) -> None:
    content = "# of trams\n@relation trams\n@attribute series_name string\n@data\nT1:1,2,3\n"
    with pytest.raises(ValueError, match="columns unique_id, ds and y"):
        read(written(tmp_path, content, "trams.tsf"))


def test_a_table_without_times_is_told_how_to_get_some(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\n" + "".join(f"{i * 1.5},{i}\n" for i in range(30)))
    with pytest.raises(ValueError, match=r"frame\.insert\(0, 'ds', pd\.date_range\(") as raised:
        read(path)
    told = re.search(r"(frame\.insert.*\)) of pandas", str(raised.value))
    assert told
    code = f"import pandas as pd; frame = pd.read_csv('data.csv'); {told[1]}; frame.to_csv('b.csv')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert (len(read(tmp_path / "b.csv")), str(read(tmp_path / "b.csv").frequency)) == (30, "h")


def archive(mode: str, *names: str) -> bytes:
    buffer = io.BytesIO()
    if mode == "zip":
        with zipfile.ZipFile(buffer, "w") as held:
            for name in names:
                held.writestr(name, "" if name.endswith("/") else TABLE)
        return buffer.getvalue()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
        for name in names:
            about = tarfile.TarInfo(name)
            about.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            about.size = 0 if name.endswith("/") else len(TABLE)
            tar.addfile(about, io.BytesIO(TABLE.encode()))
    return buffer.getvalue()


def by_arrow(codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(TABLE.encode())
    return bytes(sink.getvalue())


PACKED = {
    "bz2": bz2.compress(TABLE.encode()),
    "xz": lzma.compress(TABLE.encode()),
    "zst": by_arrow("zstd"),
    "lz4": by_arrow("lz4"),
    **{mode: archive(mode, "d/", "d/a.csv", "d/._a.csv") for mode in ("w", "w:gz", "w:xz")},
    "zip": archive("zip", "d/", "d/a.csv", "__MACOSX/", "__MACOSX/._a.csv", ".DS_Store"),
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_tables_are_read(tmp_path: Path, name: str) -> None:
    assert read(written(tmp_path, PACKED[name])).tables[0].values.tolist() == VALUES


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (archive("w:gz", "a.csv", "b.csv"), r"2 files \(a\.csv, b\.csv\); extract the one"),
        (archive("zip", "a.csv", "b.csv"), r"2 files \(a\.csv, b\.csv\); extract the one"),
        (archive("zip", "[Content_Types].xml", "xl/a.xml"), "a spreadsheet; save it as CSV"),
        (b"\xd0\xcf\x11\xe0", "a spreadsheet and no table; save it as CSV"),
        (b"SQLite format 3\0", "a database of SQLite and no table"),
        (bz2.compress(TABLE.encode())[:40], r"data\.csv: Compressed data ended"),
    ],
)
def test_what_holds_no_table_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(written(tmp_path, content))


@pytest.mark.parametrize(
    "mark",
    ["Null", "NaT", "N.A.", "n.a.", ".", "..", "*", r"\N", ":", "nil", "N/a", "unavailable"],
)
@pytest.mark.parametrize("number", ["0.0{:02d}", "1.0{:02d}"])
def test_missing_values_are_no_reason_to_ask(tmp_path: Path, mark: str, number: str) -> None:
    """A fraction of three digits is no thousand, least of all one that begins with 0."""
    cells = [mark if i == 4 else number.format(i) for i in range(30)]
    rows = "".join(f"{day},{cell}\n" for day, cell in zip(DAYS, cells, strict=True))
    panel = read(written(tmp_path, f"date,a\n{rows}"), Reading(missing="ffill"))
    cells[4] = cells[3]
    assert panel.tables[0].values[:, 0].tolist() == [float(cell) for cell in cells]


def test_odd_marks_name_series_all_the_same(tmp_path: Path) -> None:
    names = ["NA", "007", "7", "1e3", "a,b", "*", ".", "NAT", "unknown", "x/y"]
    rows = "".join(f'{day},"{name}",1.5\n' for name in names for day in DAYS)
    assert list(read(written(tmp_path, f"ds,unique_id,y\n{rows}")).series) == names


@pytest.mark.parametrize(
    ("encoding", "above", "pack"),
    [("utf-16", "A title\n", bytes), ("utf-8", '"Two\nlines"\n', gzip.compress)],
)
def test_what_makes_a_wide_table_long_reads_any_file_that_is_read(
    tmp_path: Path, encoding: str, above: str, pack: Callable[[bytes], bytes]
) -> None:
    days = [f"2024-01-{day:02d}" for day in range(1, 31)]
    content = f"{above}shop,{','.join(days)}\n" + "".join(
        f"{shop},{','.join(str(i / 4) for i in range(30))}\n" for shop in ("A", "B")
    )
    packed = pack(content.encode(encoding))
    with pytest.raises(ValueError, match="each row is a series") as told:
        read(written(tmp_path, packed))
    command = shlex.split(str(told.value).partition("a row for each time: ")[2])[:3]
    subprocess.run([sys.executable, *command[1:]], check=True, cwd=tmp_path)
    panel, _ = follow(tmp_path / "long.csv")
    assert set(panel.series) == {"A", "B"}
    assert panel.tables[0].values[:, 0].tolist() == [i / 4 for i in range(30)]
