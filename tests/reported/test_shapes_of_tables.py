"""Tables of another shape are read, or refused with what makes one of them.

Names in several lines: pola-rs/polars#8402, tidyverse/readr#784. Several lines of names:
ranaroussi/yfinance#2269. Files of attributes: rakshitha123/TSForecasting#2. Missing values:
London's meters, FRED.

Tables with several times in a row are refused with what makes long ones; ordinary ones are read.

Series in rows: Kaggle's web traffic, M5, the World Bank.
NASA's GISTEMP (`Year,Jan,...,Dec`), load profiles (`date,HE1,...,HE24`), Met Office (`Year,Month,1`
to `31`), gauges numbered by station (`2001`), flows (`Q1`).
"""

from __future__ import annotations

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
from contextlib import chdir
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from foretell.data.reading import Reading, read, read_frame
from tests.data.panels import write
from tests.reported.following import follow

MONTH = [f"2024-01-{day:02d}" for day in range(1, 31)]
ROWS = "".join(f"{day},{i},{i / 4}\n" for i, day in enumerate(MONTH))
TABLE = f"date,a,b\n{ROWS}"
VALUES = [[i, i / 4] for i in range(30)]


@pytest.mark.parametrize(
    "above", ["", "A title\n\n", '"A title",\n', "# of 3, lines\n", 'A 5" pipe\n']
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_name_in_several_lines(tmp_path: Path, above: str, end: str) -> None:
    content = f'{above}"Date\n(UTC)","Load\n(MW)",b\n{ROWS}2024-01-31,x,1\n'.replace("\n", end)
    line = content.count("\n")
    with pytest.raises(ValueError, match=rf"line {line}, column 'Load \(MW\)': 'x'"):
        read(write(tmp_path, content))
    panel = read(write(tmp_path, content.replace("x,1", "30,7.5")))
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
    panel = read(write(tmp_path, f"{names}\n{ROWS}"))
    assert panel.source is not None
    (time,) = panel.source.reading.time_column or ()
    assert time.lower() == "date"
    assert (panel.channels, panel.tables[0].values.tolist()) == (channels, VALUES)
    assert "below the columns' names: no data, and passed over" in panel.notes[0]


def test_message_suggests_code_that_adds_times(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b\n" + "".join(f"{i * 1.5},{i}\n" for i in range(30)))
    with pytest.raises(ValueError, match=r"frame\.insert\(0, 'ds', pd\.date_range\(") as raised:
        read(path)
    suggested = re.search(r"(frame\.insert.*\)) of pandas", str(raised.value))
    assert suggested
    read_csv, to_csv = "frame = pd.read_csv('data.csv')", "frame.to_csv('b.csv')"
    code = f"import pandas as pd; {read_csv}; {suggested[1]}; {to_csv}"
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
    assert read(write(tmp_path, PACKED[name])).tables[0].values.tolist() == VALUES


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (archive("w:gz", "a.csv", "b.csv"), r"2 files \(a\.csv, b\.csv\); extract the one"),
        (archive("zip", "a.csv", "b.csv"), r"2 files \(a\.csv, b\.csv\); extract the one"),
        (archive("zip", "[Content_Types].xml", "xl/a.xml"), "a spreadsheet; save it as CSV"),
        (b"\xd0\xcf\x11\xe0", "a spreadsheet and no table; save it as CSV"),
        (b"SQLite format 3\0", "a database of SQLite and no table"),
        (bz2.compress(TABLE.encode())[:40], r"data\.csv: Compressed data ended"),
        # A file of attributes.
        (
            "# of trams\n@relation trams\n@attribute series_name string\n@data\nT1:1,2,3\n",
            "columns unique_id, ds and y",
        ),
        # A first row with a wrong cell is not a second line of names.
        *(
            (f"date,a,b\n{row}\n{ROWS}", "line 2, column")
            for row in ("x,1,2", "2024-01-01,x,2", "2024-01-01,x,y")
        ),
        # A file without names of columns is recognised.
        (
            "".join(f"{day},{i * 7},{i * 3}\n" for i, day in enumerate(MONTH, 1)),
            "no names of columns but data",
        ),
    ],
)
def test_file_without_a_table_is_refused(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path, content))


@pytest.mark.parametrize(
    "mark",
    ["Null", "NaT", "N.A.", "n.a.", ".", "..", "*", r"\N", ":", "nil", "N/a", "unavailable"],
)
@pytest.mark.parametrize("number", ["0.0{:02d}", "1.0{:02d}"])
def test_missing_marks_do_not_make_numbers_ambiguous(
    tmp_path: Path, mark: str, number: str
) -> None:
    """Three digits after the point are a fraction, such as in 0.123."""
    cells = [mark if i == 4 else number.format(i) for i in range(30)]
    rows = "".join(f"{day},{cell}\n" for day, cell in zip(MONTH, cells, strict=True))
    panel = read(write(tmp_path, f"date,a\n{rows}"), Reading(missing="ffill"))
    cells[4] = cells[3]
    assert panel.tables[0].values[:, 0].tolist() == [float(cell) for cell in cells]


def test_series_may_have_odd_names(tmp_path: Path) -> None:
    names = ["NA", "007", "7", "1e3", "a,b", "*", ".", "NAT", "unknown", "x/y"]
    rows = "".join(f'{day},"{name}",1.5\n' for name in names for day in MONTH)
    assert list(read(write(tmp_path, f"ds,unique_id,y\n{rows}")).series) == names


HOURS = pd.date_range("2024-02-20", periods=40 * 24, freq="h")
HALVES = pd.date_range("2024-02-20", periods=40 * 48, freq="30min")
MONTHS = pd.date_range("1990-01-01", periods=240, freq="MS")
QUARTERS = pd.date_range("1990-01-01", periods=120, freq="QS")
DAYS = pd.date_range("2023-01-01", "2024-12-31")
HOUR = pd.Timedelta(1, "h")
# Times, name and cell of the first column in each row, and names of the columns of times.
Wide = tuple[pd.DatetimeIndex, list[tuple[str, str]], list[str]]


def dates(times: pd.DatetimeIndex) -> list[tuple[str, str]]:
    return [("date", f"{day:%Y-%m-%d}") for day in times.normalize().unique()]


def years(times: pd.DatetimeIndex, name: str = "Year") -> list[tuple[str, str]]:
    return [(name, str(year)) for year in times.year.unique()]


GERMAN = "Januar Februar M\u00e4rz April Mai Juni Juli August September Oktober November Dezember"
WIDE: dict[str, Wide] = {
    "months": (MONTHS, years(MONTHS), [f"{month:%b}" for month in MONTHS[:12]]),
    "MONTHS": (MONTHS, years(MONTHS, "YEAR"), [f"{month:%B}".upper() for month in MONTHS[:12]]),
    "Monate": (MONTHS, years(MONTHS, "Jahr"), GERMAN.split()),
    "numbers of months": (MONTHS, years(MONTHS), [str(month) for month in range(1, 13)]),
    "quarters": (QUARTERS, years(QUARTERS), ["Q1", "Q2", "Q3", "Q4"]),
    "clocks": (HOURS, dates(HOURS), [f"{hour:02d}:00" for hour in range(24)]),
    "ends of hours": (HOURS + HOUR, dates(HOURS), [f"{hour:02d}:00" for hour in range(1, 25)]),
    "HE": (HOURS + HOUR, dates(HOURS), [f"HE{hour}" for hour in range(1, 25)]),
    "h": (HOURS + HOUR, dates(HOURS), [f"h{hour}" for hour in range(1, 25)]),
    "Hour": (HOURS, dates(HOURS), [f"Hour {hour}" for hour in range(24)]),
    "0 to 23": (HOURS, dates(HOURS), [str(hour) for hour in range(24)]),
    "1 to 24": (HOURS + HOUR, dates(HOURS), [str(hour) for hour in range(1, 25)]),
    "0000 to 2300": (HOURS, dates(HOURS), [f"{hour:02d}00" for hour in range(24)]),
    "0000 to 2330": (HALVES, dates(HALVES), [f"{i // 2:02d}{i % 2 * 30:02d}" for i in range(48)]),
    "P": (HALVES + HOUR / 2, dates(HALVES), [f"P{i}" for i in range(1, 49)]),
}


def written(folder: Path, wide: Wide, more: str = "") -> Path:
    _, rows, names = wide
    lines = [f"{rows[0][0]},{','.join(names)}"]
    for i, (_, row) in enumerate(rows):
        values = range(i * len(names), (i + 1) * len(names))
        lines.append(f"{row},{','.join(str(value / 4) for value in values)}")
    if more:
        lines = [f"{line},{more if i == 0 else i / 8}" for i, line in enumerate(lines)]
    path = folder / "data.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def made_long(path: Path) -> Path:
    """Run the suggested command."""
    with pytest.raises(
        ValueError, match=r"expected a row for each time|each row is a series"
    ) as raised:
        read(path)
    with chdir(path.parent):
        exec(suggestion(str(raised.value)), {})
    return path.parent / "long.csv"


def suggestion(message: str) -> str:
    """The Python of the command that a message names."""
    command = re.search(r"python -c ('.*') writes them to long\.csv", message)
    assert command
    return shlex.split(command[1])[0]


@pytest.mark.parametrize("more", ["", "Annual"])
@pytest.mark.parametrize("name", WIDE)
def test_suggested_command_gives_each_time_a_row(tmp_path: Path, name: str, more: str) -> None:
    path = written(tmp_path, WIDE[name], more)
    (table,) = read(made_long(path)).tables
    assert table.timestamps.tolist() == WIDE[name][0].to_pydatetime().tolist()
    assert (table.channels, table.values[:, 0].tolist()) == (
        ("y",),
        (np.arange(len(table)) / 4).tolist(),
    )
    names = tuple(WIDE[name][2][:2])
    assert read(path, Reading(channels=names)).channels == names


def test_days_of_months(tmp_path: Path) -> None:
    frame = pd.DataFrame({"Year": DAYS.year, "Month": DAYS.month, "day": DAYS.day, "y": DAYS.day})
    wide = frame.pivot(index=["Year", "Month"], columns="day", values="y")
    wide.to_csv(tmp_path / "data.csv")
    (table,) = read(made_long(tmp_path / "data.csv")).tables
    assert table.timestamps.tolist() == DAYS.to_pydatetime().tolist()
    assert table.values[:, 0].tolist() == DAYS.day.tolist()


def test_hours_of_several_places(tmp_path: Path) -> None:
    frame = pd.DataFrame({"date": HOURS.strftime("%Y-%m-%d"), "hour": HOURS.hour + 1})
    both = pd.concat([frame.assign(site=site, y=np.arange(len(frame)) + site) for site in (7, 8)])
    wide = both.pivot(index=["site", "date"], columns="hour", values="y")
    wide.add_prefix("h").to_csv(tmp_path / "data.csv")
    panel, options = follow(made_long(tmp_path / "data.csv"))
    assert options == {"id_column": "site"}
    assert [table.values[0, 0] for table in panel.tables] == [7, 8]
    assert list(panel.rows.values()) == [960, 960]


def test_a_frame_whose_names_are_numbers() -> None:
    frame = pd.DataFrame(np.arange(240).reshape(20, 12), columns=range(1, 13))
    frame.insert(0, "Year", range(1990, 2010))
    with pytest.raises(ValueError, match="are months of Year") as raised:
        read_frame(frame)
    code = suggestion(str(raised.value)).removesuffix(".to_csv('long.csv', index=False)")
    made: dict[str, object] = {"frame": frame}
    exec(code.replace("frame.rename", "made = frame.rename"), made)
    (table,) = read_frame(made["made"]).tables  # type: ignore[arg-type]
    assert table.timestamps.tolist() == MONTHS.to_pydatetime().tolist()


@pytest.mark.parametrize("unit", ["h", "d", "w", "m"])
def test_column_names_give_the_frequency(tmp_path: Path, unit: str) -> None:
    names = [f"{unit}{i}" for i in range(1, 31)]
    panel = read(made_long(write(tmp_path, of(names, "id", "a", "b"))))
    assert list(panel.rows.values()) == [30, 30]
    assert str(panel.frequency) == {"h": "h", "d": "D", "w": "W-MON", "m": "MS"}[unit]
    assert panel.tables[0].timestamps[0] == np.datetime64("2024-01-01")


def of(times: list[str], names: str, *rows: str) -> str:
    """Series in rows, below a line of names and times."""
    values = ",".join(str(i * 2.5) for i in range(len(times)))
    return "\n".join([f"{names},{','.join(times)}", *(f"{row},{values}" for row in rows)]) + "\n"


YEARS = [f"{1960 + i}" for i in range(30)]
SERIES = {
    "days": of(MONTH, "Page", "x", '"y, z"'),
    "American": of(
        [f"1/{i + 1}/20" for i in range(30)], "Province/State,Country,Lat", ",x,1.5", ",y,2"
    ),
    "steps": of([f"d_{i + 1}" for i in range(30)], "id,store", "x_1,x", "y_1,y"),
    "years": of(YEARS, "Country", "x", "y"),
    "years of a bank": "Data,World\n\n"
    + of([f"{year} [YR{year}]" for year in YEARS], "Country Name,Code", "x,X", "y,Y"),
    "months": of([f"{2020 + i // 12}-{i % 12 + 1:02d}" for i in range(30)], "it's", "x", "y"),
    # Other forms of files.
    "UTF-16 below a title": f"A title\n{of(MONTH, 'shop', 'A', 'B')}".encode("utf-16"),
    "packed": gzip.compress(f'"Two\nlines"\n{of(MONTH, "shop", "A", "B")}'.encode()),
}


@pytest.mark.parametrize("name", SERIES)
def test_suggested_command_makes_series_in_rows_long(tmp_path: Path, name: str) -> None:
    panel, _ = follow(made_long(write(tmp_path, SERIES[name])))
    assert list(panel.rows.values()) == [30, 30]
    for table in panel.tables:
        values = table.values[:, table.channels.index("y")]
        assert values.tolist() == [i * 2.5 for i in range(30)]


@pytest.mark.parametrize(
    "names",
    [
        ["t1", "t2", "t3"],
        ["Q1", "Q2", "Q3", "Q4"],
        ["d_1", "d_2", "d_3"],
        ["2001", "2002", "2003"],
        ["2001", "2007"],
        ["101", "102", "205"],
        [f"h{i}" for i in range(1, 25)],
        [f"{i:02d}:00" for i in range(24)],
        ["May", "June", "April"],
        [f"x{i}" for i in range(1, 25)],
    ],
)
def test_channels_of_any_name_beside_times(tmp_path: Path, names: list[str]) -> None:
    values = np.arange(50 * len(names)).reshape(50, -1) / 4
    frame = pd.DataFrame(values, columns=names)
    frame.insert(0, "date", HOURS[:50])
    frame.to_csv(tmp_path / "data.csv", index=False)
    panel = read(tmp_path / "data.csv")
    assert panel.channels == tuple(names)
    np.testing.assert_array_equal(panel.tables[0].values, values)
