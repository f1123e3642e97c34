"""Files as they come: understood, or all their problems in one message."""

import gzip
import io
import zipfile
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet
from pydantic import ValidationError

from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read, read_frame

DAYS = [f"2020-01-{day:02d}" for day in range(1, 11)]
PLAIN = [f"{day},{i},{i / 4}" for i, day in enumerate(DAYS)]
BERLIN = ZoneInfo("Europe/Berlin")


def text(*rows: str, header: str = "date,a,b") -> str:
    return "\n".join([header, *rows]) + "\n"


def write(folder: Path, content: str | bytes, name: str = "data.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read_text(folder: Path, content: str | bytes, **options: Any) -> Panel:
    return read(write(folder, content), Reading(**options))


def refusal(folder: Path, content: str | bytes, **options: Any) -> str:
    with pytest.raises(DataError) as raised:
        read_text(folder, content, **options)
    message = str(raised.value)
    assert message.startswith(f"{folder / 'data.csv'}: ")
    return message


def zipped(*contents: str, mac: bool = False) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for i, content in enumerate(contents):
            archive.writestr(f"{i}.csv", content)
        if mac:
            archive.writestr("__MACOSX/._0.csv", b"\0\5\26\7")
    return buffer.getvalue()


def alternating(count: int = 10) -> list[str]:
    return [f"{name},{DAYS[i]},{i}" for i in range(count) for name in ("x", "y")]


def test_reads_a_wide_table(tmp_path: Path) -> None:
    panel = read_text(tmp_path, text(*PLAIN))
    (table,) = panel.tables
    assert table.channels == ("a", "b")
    assert table.values.dtype == np.float64
    assert table.values.tolist() == [[i, i / 4] for i in range(10)]
    assert table.timestamps.dtype == np.dtype("M8[us]")
    assert table.timestamps[9] == np.datetime64("2020-01-10")
    assert (str(table.frequency), table.utc_offset, table.series) == ("D", None, "")
    assert panel.notes == ()
    assert panel.source is not None
    assert panel.source.reading == Reading(
        time_column=("date",), channels=("a", "b"), frequency="D"
    )


def test_numbers_are_the_nearest_to_what_is_written(tmp_path: Path) -> None:
    written = [repr(number) for number in np.random.default_rng(0).normal(0, 1e3, 300).tolist()]
    seconds = np.datetime64("2020-01-01T00:00:00") + np.arange(300)
    rows = [f"{moment},{number}" for moment, number in zip(seconds, written, strict=True)]
    table = read_text(tmp_path, text(*rows, header="date,a")).tables[0]
    assert [repr(number) for number in table.values[:, 0].tolist()] == written


@pytest.mark.parametrize(
    "content",
    [
        text(*PLAIN).replace(",", "\t"),
        text(*PLAIN).replace(",", ";"),
        text(*PLAIN).replace(",", ";").replace(".", ","),
        text(*PLAIN).replace(",", ", "),
        b"\xef\xbb\xbf" + text(*PLAIN).replace("\n", "\r\n").encode(),
        text(*PLAIN).encode("utf-16"),
        gzip.compress(text(*PLAIN).encode(), mtime=0),
        "# of the station\n\n" + text(*PLAIN) + "# the end\n\n,,\n",
        "# " + text(*PLAIN),
        text(*(f"{row}," for row in PLAIN), header="date,a,b,"),
        zipped(text(*PLAIN)),
        zipped(text(*PLAIN), mac=True),
        text(*PLAIN).replace("\n", "\r"),
        "Weather,,,,\n,,,,\n" + text(*(f"{row},," for row in PLAIN), header="date,a,b,,"),
    ],
    ids=[
        *("tabs", "semicolons", "commas", "spaces", "bom", "utf-16", "gzip", "comments"),
        "marked names",
        *("trailing", "zip", "zip of a Mac", "old Mac", "of a spreadsheet"),
    ],
)
def test_reads_any_text_of_a_table(tmp_path: Path, content: str | bytes) -> None:
    panel = read_text(tmp_path, content)
    np.testing.assert_array_equal(panel.tables[0].values, [[i, i / 4] for i in range(10)])


def _files(frame: pd.DataFrame, folder: Path) -> Iterable[Path]:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    frame.to_csv(folder / "a.csv", index=False)
    yield folder / "a.csv"
    parquet.write_table(table, folder / "a.parquet")
    yield folder / "a.parquet"
    feather.write_feather(table, folder / "a.feather")
    yield folder / "a.feather"
    with ipc.new_stream(folder / "a.arrows", table.schema) as stream:
        stream.write_table(table)
    yield folder / "a.arrows"


@pytest.mark.parametrize("is_long", [False, True])
def test_all_formats_hold_the_same(tmp_path: Path, is_long: bool) -> None:
    frame = pd.DataFrame(
        {"ds": pd.date_range("2020-01-01", periods=6, freq="h"), "y": np.arange(6) / 3}
    )
    if is_long:
        frame = pd.concat([frame.assign(unique_id=name) for name in ("north", "south")])
    first, *others = (read(path) for path in _files(frame, tmp_path))
    frames = [frame, frame.set_index("ds"), pl.from_pandas(frame), pa.Table.from_pandas(frame)]
    others += [read_frame(one) for one in frames]
    assert len(first.tables) == 1 + is_long
    assert [one.fingerprint() for one in others] == [first.fingerprint()] * len(others)
    assert read_frame(frame).source is None


@pytest.mark.parametrize("name", ["damaged.parquet", "damaged.arrow"])
def test_a_damaged_file(tmp_path: Path, name: str) -> None:
    content = b"PAR1\0\0" if name.endswith("parquet") else b"\0" * 20
    with pytest.raises(DataError, match="a damaged file"):
        read(write(tmp_path, content, name))


def test_a_frame_names_its_rows(tmp_path: Path) -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2020-01-01", periods=4), "y": [1, np.inf, 2, 3]})
    with pytest.raises(DataError, match="the frame: row 1, column 'y': 'inf' is no finite number"):
        read_frame(frame)


@pytest.mark.parametrize(
    ("content", "channels", "note"),
    [
        (text(*(f"{i},{row}" for i, row in enumerate(PLAIN)), header=",date,a,b"), "ab", "counts"),
        (text(*(f"{i},{row}" for i, row in enumerate(PLAIN)), header="No,date,a,b"), "ab", "'No'"),
        (text(*PLAIN, header=",a,b"), "ab", None),
        (text(*(f"{row},sun" for row in PLAIN), header="date,a,b,sky"), "ab", "hold texts"),
        (
            text(*(f"{row}," for row in PLAIN), header="date,a,b,c"),
            "ab",
            "have no values are left out: c",
        ),
        (text(*(f"{row},x 2020-01-01" for row in PLAIN), header="date,a,b,c"), "ab", "texts"),
        (text(*(f"{row},$3" for row in PLAIN), header="date,a,b,c"), "ab", "texts such as '$3'"),
        ("Weather of the north\nby hour, 2020\n" + text(*PLAIN), "ab", "names are in line 3"),
        (text(*(f"{row},2020" for row in PLAIN), header="date,a,b,Year"), "ab", "parts of a time"),
        (text(*PLAIN, "2020-01-10T12:00,,"), "ab", "between two steps has no value"),
        (text(*reversed(PLAIN)), "ab", "a series came newest first"),
        (text(PLAIN[1], PLAIN[0], *PLAIN[2:]), "ab", "not in the order of time"),
        (text(*PLAIN, PLAIN[-1]), "ab", "a row repeats another"),
        (text(*(f'{day},"1,{i}00.0"' for i, day in enumerate(DAYS)), header="date,a"), "a", None),
        (text(*(f"{day},{i > 5}" for i, day in enumerate(DAYS)), header="date,a"), "a", None),
    ],
    ids=[
        *(
            "index",
            "index with a name",
            "dates without a name",
            "text",
            "empty column",
            "text and date",
            "sign",
            "title",
        ),
        *("parts of a time", "empty row between", "newest first"),
        *("unsorted", "repeated row", "thousands", "true and false"),
    ],
)
def test_understands_a_mess(tmp_path: Path, content: str, channels: str, note: str | None) -> None:
    panel = read_text(tmp_path, content)
    assert panel.channels == tuple(channels)
    assert len(panel) == 10
    assert (np.diff(panel.tables[0].values[:, 0]) >= 0).all()
    if note is None:
        assert panel.notes == ()
    else:
        (said,) = panel.notes
        assert note in said


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("start", [0, 50])
def test_an_index_without_a_name_is_that_of_any_rows(
    tmp_path: Path, name: str, order: int, start: int
) -> None:
    """Of a slice, or of rows that were sorted newest first."""
    rows = [f"{i},{row}" for i, row in enumerate(PLAIN, start)][::order]
    panel = read_text(tmp_path, text(*rows, header=f"{name},date,a,b"))
    assert panel.channels == ("a", "b")
    assert "counts the rows and is left out" in panel.notes[0]
    assert panel.tables[0].values.tolist() == [[i, i / 4] for i in range(10)]


@pytest.mark.parametrize(
    ("numbers", "name", "kept"),
    [
        ([*range(50, 60)], "No", "No"),
        ([*range(9, -1, -1)], "No", "No"),
        ([*range(0, 20, 2)], "", "unnamed"),
        ([*range(5), *range(6, 11)], "", "unnamed"),
        ([3] * 10, "", "unnamed"),
        ([0, 1] * 5, "", "unnamed"),
    ],
)
def test_what_is_no_index_is_a_channel(
    tmp_path: Path, numbers: list[int], name: str, kept: str
) -> None:
    rows = [f"{number},{row}" for number, row in zip(numbers, PLAIN, strict=True)]
    panel = read_text(tmp_path, text(*rows, header=f"{name},date,a,b"))
    assert panel.channels == (kept, "a", "b")


def test_an_index_that_is_asked_for_is_a_channel(tmp_path: Path) -> None:
    rows = [f"{i},{row}" for i, row in enumerate(PLAIN, 50)]
    panel = read_text(tmp_path, text(*rows, header=",date,a,b"), channels=("a", "unnamed"))
    assert panel.channels == ("a", "unnamed")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("\n,,\n", "the file is empty"),
        ("date\n2020-01-01\n", "line 1: expected at least two columns, separated by commas, semi"),
        (text(), "no rows of data below the names"),
        (text(*PLAIN[:2]), "column 'date': a frequency needs at least three timestamps"),
        (text(*PLAIN, header="date,a,a"), "line 1: two columns are called 'a'; rename one"),
        (text(*PLAIN[1:], header=PLAIN[0]), "line 1: no names of columns but data; add a line"),
        (text(*PLAIN, "2020-01-11,1,2,3"), "line 12: 4 cells, and there are 3 columns; quote"),
        (text("2020-01-11,1,2,3", *PLAIN), "line 2: 4 cells, and there are 3 columns; quote"),
        (text(*PLAIN, '2020-01-11,"1,2'), "not a CSV table: EOF inside string"),
        (text("1,2,3", "2,3,4", header="a,b,c"), "no timestamp column: .*--time-column"),
        (text(*PLAIN, "soon,1,2"), "line 12, column 'date': 'soon': no timestamp like"),
        (text(*PLAIN, ",1,2"), "line 12, column 'date': no timestamp; take the row out"),
        (text(*PLAIN, "2020-01-11,x,2"), "line 12, column 'a': 'x' is no finite number; correct"),
        (text(*PLAIN, "2020-01-11,,2"), "line 12, column 'a': no value; --missing interpolate or"),
        (text(*PLAIN, "2020-01-11,NA,2"), "line 12, column 'a': no value; --missing"),
        (text(*PLAIN, "2020-01-11,1"), "line 12, column 'b': no value; --missing"),
        (text(*PLAIN, "2020-01-13,1,2"), "line 12, column 'date': .*: rows are missing before it"),
        (text(*PLAIN, "2020-01-05,9,9"), "line 12, column 'date': .* has another row, with other"),
        (text(*PLAIN, "2020-01-10T12:00,1,2"), "line 12, column 'date': .*no step of frequency D"),
        (text(*(f"{i}/1/2020,1,2" for i in range(1, 11))), "can be read as %m/%d/%Y and as %d/%m"),
        (text(*(f"{day},'sun'" for day in DAYS), header="date,a"), "no column of numbers; .*: a$"),
        (text(*(f"{row},1,1" for row in PLAIN), header="date,a,b,,"), "columns have no name; ren"),
        ('[{"date": "2020-01-01", "a": 1}]', "JSON or HTML and no table; save it as CSV or"),
        ("<!DOCTYPE html>\n<p>a, b</p>", "JSON or HTML and no table"),
        (text("a,1,2", "b,2,3"), "data.csv: lines 2 and 3, column 'date': 'a': no timestamp; --da"),
        (text(*(f"2020-01-0{i // 8 + 1},{i},1" for i in range(40))), "added up or averaged first"),
        (text(*(f"{day};1,{i}00" for i, day in enumerate(DAYS)), header="date;a"), "--decimal"),
        (text(*alternating(), header="store,date,a"), "told apart by 'store': --id-column store"),
        (b"PK\x03\x04", "a spreadsheet, or no zip file of one table; save it as CSV or Parquet"),
        (zipped(text(*PLAIN), text(*PLAIN)), "no zip file of one table"),
        (b"date,a\n2020-01-01,\xff\n", r"not UTF-8 text \(byte 18\); save it as CSV in UTF-8"),
        (b"\x1f\x8b\x08", "end-of-stream"),
        (gzip.compress(bytes(9), mtime=0)[:10] + b"\xff" * 20, "data.csv: Error -3"),
    ],
)
def test_names_place_and_remedy(tmp_path: Path, content: str | bytes, message: str) -> None:
    assert pd.Series([refusal(tmp_path, content)]).str.contains(message).all()


def test_tells_all_problems_at_once(tmp_path: Path) -> None:
    rows = [*PLAIN[:3], "x,1,2", f"{DAYS[4]},y,1", f"{DAYS[5]},z,", *PLAIN[6:9], "2021-01-01,1,2"]
    message = refusal(tmp_path, text(*rows))
    head, *problems = message.splitlines()
    assert head.endswith("4 problems:")
    assert [problem.partition(":")[0] for problem in problems] == [
        "  line 5, column 'date'",
        "  lines 6 and 7, column 'a'",
        "  lines 6 and 11, column 'date'",
        "  line 7, column 'b'",
    ]


def test_tells_no_more_problems_than_one_reads(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(30)]
    rows = [f"{day}" + ("," if i > 3 else ",1") * 30 for i, day in enumerate(DAYS)]
    message = refusal(tmp_path, text(*rows, header=",".join(["date", *names])))
    assert "30 problems" in message
    assert "lines 6, 7, 8, 9 and 2 more, column 'c0'" in message
    assert message.endswith("\n  and 10 more")
    assert len(message.splitlines()) == 22


def test_columns_that_are_not_there_are_told_before_the_rows(tmp_path: Path) -> None:
    content = text(*PLAIN, "2020-01-11,1,2,3")
    assert "line 12: 4 cells" in refusal(tmp_path, content)
    told = refusal(tmp_path, content, channels="a,c")
    assert told.endswith("data.csv: line 1: no column 'c'; there are date, a, b")
    path = tmp_path / "data.csv"
    with pytest.raises(DataError, match="no column 'load'; there are date, a, b"):
        read(path, needed=("a", "load"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_column": "when"}, "no column 'when'; there are date, a, b"),
        ({"id_column": "who"}, "no column 'who'; there are date, a, b"),
        ({"channels": "c"}, "no column 'c'; there are date, a, b"),
        ({"channels": "a, Dates"}, "no column 'Dates'; did you mean 'date'?"),
        ({"channels": "date"}, "no channel 'date'; there are a, b"),
        ({"channels": "a,a"}, "channel 'a' is chosen twice"),
        ({"channels": "a,sky"}, "columns that hold texts such as 'sun' are no channels: sky"),
        ({"frequency": "30min"}, "no step of frequency 2W"),
    ],
)
def test_refuses_columns_that_are_not_there(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    content = text(*PLAIN)
    if "sky" in options.get("channels", ""):
        content = text(*(f"{row},sun" for row in PLAIN), header="date,a,b,sky")
    if "frequency" in options:
        options = {"frequency": "2W"}
    assert message in refusal(tmp_path, content, **options)


@pytest.mark.parametrize(
    "options",
    [
        *({"frequency": "often"}, {"time_zone": "Mars"}, {"missing": "zero"}, {"decimal": ";"}),
        *({"max_gap": 0}, {"colour": "red"}),
    ],
)
def test_refuses_options_that_mean_nothing(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Reading(**options)


def test_takes_named_columns_in_their_order(tmp_path: Path) -> None:
    rows = [f"x,{row}" for row in PLAIN]
    panel = read_text(
        tmp_path, text(*rows, header="date,day,a,b"), time_column="day", channels="b,a"
    )
    assert panel.channels == ("b", "a")
    assert panel.tables[0].values[1].tolist() == [0.25, 1]


@pytest.mark.parametrize("name", ["Date", "datetime", "TIMESTAMP", "time", "ds", "when"])
def test_finds_the_column_of_times(tmp_path: Path, name: str) -> None:
    rows = [f"{i},{day}" for i, day in enumerate(DAYS)]
    assert read_text(tmp_path, text(*rows, header=f"a,{name}")).channels == ("a",)


@pytest.mark.parametrize(
    ("header", "row", "frequency"),
    [
        ("year,a", lambda i: f"{1959 + i},{i}", "YS"),
        ("date,a", lambda i: f"{1959 + i // 4}Q{i % 4 + 1},{i}", "QS"),
        ("year,quarter,a", lambda i: f"{1959 + i // 4}.0,{i % 4 + 1}.0,{i}", "QS"),
        ("year,month,a", lambda i: f"{1959 + i // 12},{i % 12 + 1},{i}", "MS"),
        ("date,time,a", lambda i: f"2020-01-01,{i:02d}:00,{i}", "h"),
        ("date,a,Hour", lambda i: f"2020-01-0{i // 8 + 1},{i},{i % 8 * 3 + 1}", "3h"),
        (
            "Date (MM/DD/YYYY),Time,a",
            lambda i: f"01/{13 + i // 2}/2020,{i % 2 * 12 + 12}:00,{i}",
            "12h",
        ),
        ("time,a", lambda i: f"{1_577_836_800 + 900 * i},{i}", "15min"),
    ],
)
def test_finds_times_in_other_forms(
    tmp_path: Path, header: str, row: Callable[[int], str], frequency: str
) -> None:
    panel = read_text(tmp_path, text(*map(row, range(16)), header=header))
    assert panel.channels == ("a",)
    assert str(panel.frequency) == frequency
    assert panel.tables[0].values[:, 0].tolist() == list(range(16))


def test_a_form_of_dates_and_a_decimal_mark_are_told(tmp_path: Path) -> None:
    rows = [f"{day}/1/2020;1,{day}00" for day in range(1, 10)]
    content = text(*rows, header="date;a")
    panel = read_text(tmp_path, content, date_format="%d/%m/%Y", decimal=",")
    assert str(panel.frequency) == "D"
    assert panel.tables[0].values[0, 0] == 1.1
    panel = read_text(tmp_path, content, date_format="%m/%d/%Y", decimal=".")
    assert str(panel.frequency) == "MS"
    assert panel.tables[0].values[0, 0] == 1100


@pytest.mark.parametrize("name", ["unique_id", "Symbol", "item_id"])
def test_finds_series_by_the_usual_names(tmp_path: Path, name: str) -> None:
    panel = read_text(tmp_path, text(*alternating(), header=f"{name},ds,y"))
    assert panel.channels == ("y",)
    assert [(table.series, len(table)) for table in panel.tables] == [("x", 10), ("y", 10)]
    assert panel.tables[1].values[:, 0].tolist() == list(range(10))


def test_series_have_lengths_and_times_of_their_own(tmp_path: Path) -> None:
    rows = [*alternating(), *(f"z,2021-0{month}-07,{month}" for month in (3,)), "z,2021-03-08,4"]
    panel = read_text(tmp_path, text(*rows, header="shop,date,a"), id_column="shop")
    assert [len(table) for table in panel.tables] == [10, 10, 2]
    assert panel.tables[2].timestamps[0] == np.datetime64("2021-03-07")


def test_names_of_series_stay_as_they_are_written(tmp_path: Path) -> None:
    rows = [row.replace("x,", "007,").replace("y,", "NA,") for row in alternating()]
    panel = read_text(tmp_path, text(*rows, header="unique_id,ds,y"))
    assert [table.series for table in panel.tables] == ["007", "NA"]


def test_several_columns_may_name_a_series(tmp_path: Path) -> None:
    rows = [f"{shop},{item},{DAYS[i]},{i}" for shop in "xy" for item in "12" for i in range(10)]
    content = text(*rows, header="shop,item,date,a")
    assert "told apart by 'shop' and 'item': --id-column shop,item" in refusal(tmp_path, content)
    panel = read_text(tmp_path, content, id_column="shop,item")
    assert [table.series for table in panel.tables] == ["x/1", "x/2", "y/1", "y/2"]


def test_a_row_without_a_name_is_told(tmp_path: Path) -> None:
    message = refusal(tmp_path, text(*alternating(), ",2020-01-11,1", header="unique_id,ds,y"))
    assert "line 22, column 'unique_id': no name of a series" in message
    assert len(message.splitlines()) == 1


def test_what_counts_the_rows_is_a_channel_where_it_is_named(tmp_path: Path) -> None:
    content = text(*(f"{i},{row}" for i, row in enumerate(PLAIN)), header="id,date,a,b")
    assert read_text(tmp_path, content, channels="id,a").channels == ("id", "a")


@pytest.mark.parametrize("value", ["0", "{i}"])
def test_a_second_column_that_tells_series_apart_is_named(tmp_path: Path, value: str) -> None:
    rows = [
        f"{item},{shop},{day},{value.format(i=i)}"
        for i, (item, shop, day) in enumerate(product("xy", "ab", DAYS))
    ]
    content = text(*rows, header="item_id,shop,date,sales")
    message = refusal(tmp_path, content)
    assert "told apart by 'item_id' and 'shop': --id-column item_id,shop" in message
    assert len(read_text(tmp_path, content, id_column="item_id, shop").series) == 4


def test_rows_that_are_there_twice_are_one(tmp_path: Path) -> None:
    panel = read_text(tmp_path, text(*PLAIN, *PLAIN))
    assert (len(panel), panel.notes[-1]) == (10, "10 rows repeat another and are left out")


def test_categories_name_series() -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2020-01-01", periods=4).repeat(4), "y": range(16)})
    frame["item"] = pd.Categorical([*"aabb"] * 4)
    frame["shop"] = pd.Categorical([*"xyxy"] * 4)
    panel = read_frame(frame, Reading(id_column=("item", "shop")))
    assert list(panel.series) == ["a/x", "a/y", "b/x", "b/y"]


@pytest.mark.parametrize("given", [None, {"ds": 1}, pd.Series([1.0]), pl.LazyFrame({"y": [1]})])
def test_what_is_no_frame_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="expected a frame or a table of Arrow, got a"):
        read_frame(given)


def hours(start: str, count: int = 40) -> list[datetime]:
    first = datetime.fromisoformat(start).replace(tzinfo=UTC)
    return [(first + timedelta(hours=hour)).astimezone(BERLIN) for hour in range(count)]


@pytest.mark.parametrize("start", ["2024-03-30T10:00", "2024-10-26T10:00"])
@pytest.mark.parametrize("written", ["naive", "offsets", "backwards"])
def test_local_time_over_a_change_of_the_clock(tmp_path: Path, start: str, written: str) -> None:
    moments = hours(start)
    naive = [moment.replace(tzinfo=None) for moment in moments]
    rows = [
        f"{(moment if written == 'offsets' else wall).isoformat()},{i}"
        for i, (moment, wall) in enumerate(zip(moments, naive, strict=True))
    ]
    content = text(*(reversed(rows) if written == "backwards" else rows), header="date,a")
    zone = {} if written == "offsets" else {"time_zone": "Europe/Berlin"}
    (table,) = read_text(tmp_path, content, **zone).tables
    # What the clock showed, which calendar features are read off.
    assert table.timestamps.tolist() == naive
    assert table.values[:, 0].tolist() == list(range(40))
    assert str(table.frequency) == "h"
    assert isinstance(table.utc_offset, np.ndarray)
    assert table.utc_offset.tolist() == [moment.utcoffset() for moment in moments]
    if written == "naive":
        assert "--time-zone Europe/Berlin" in refusal(tmp_path, content)


def test_a_time_that_the_clock_skips_is_told(tmp_path: Path) -> None:
    rows = [f"2024-03-31T0{hour}:00,{hour}" for hour in (0, 1, 2, 4)]
    message = refusal(tmp_path, text(*rows, header="date,a"), time_zone="Europe/Berlin")
    assert "line 4, column 'date': the clock of Europe/Berlin skips 2024-03-31T02:00:00" in message
    assert "leave --time-zone out" in message


def test_moments_are_shown_by_the_clock_of_the_zone(tmp_path: Path) -> None:
    rows = [f"2024-03-30T{hour:02d}:00Z,{hour}" for hour in range(24)]
    panel = read_text(tmp_path, text(*rows, header="date,a"), time_zone="Asia/Kolkata")
    assert panel.tables[0].timestamps[0] == np.datetime64("2024-03-30T05:30")
    daily = [f"2024-03-{day}T{'23' if day < 31 else '22'}:00Z,1" for day in range(25, 32)]
    content = text(*daily, header="date,a")
    (table,) = read_text(tmp_path, content, time_zone="Europe/Berlin").tables
    assert str(table.frequency) == "D"
    assert table.timestamps[-1] == np.datetime64("2024-04-01")


def test_a_column_with_a_zone_has_its_clock() -> None:
    moments = pd.date_range("2024-03-30T10:00Z", periods=40, freq="h").tz_convert("Europe/Berlin")
    frame = pd.DataFrame({"ds": moments, "y": np.arange(40.0)})
    for each in (frame, pl.from_pandas(frame)):
        (table,) = read_frame(each).tables
        np.testing.assert_array_equal(
            table.timestamps, moments.tz_localize(None).to_numpy("M8[us]")
        )


@pytest.mark.parametrize("zone", ["UTC", "+05:30"])
def test_a_clock_that_never_changes_has_one_offset(zone: str) -> None:
    moments = pd.date_range("2024-03-30", periods=40, freq="h", tz="UTC").tz_convert(zone)
    (table,) = read_frame(pd.DataFrame({"ds": moments, "y": np.arange(40.0)})).tables
    assert table.utc_offset == moments[0].utcoffset()
    assert table.timestamps[0] == moments[0].tz_localize(None)


def test_frames_have_columns_of_any_type() -> None:
    frame = pd.DataFrame(
        {
            "exact": [Decimal("1.5")] * 3,
            "whole": pd.array([1, None, 3], dtype="Int64"),
            "kind": pd.Categorical(["a", "b", "a"]),
            "seen": pd.date_range("2020-01-01", periods=3),
        },
        index=pd.MultiIndex.from_product([["north"], pd.date_range("2024-01-01", periods=3)]),
    ).rename_axis(["unique_id", "ds"])
    panel = read_frame(frame, Reading(missing="interpolate"))
    assert panel.channels == ("exact", "whole")
    assert panel.tables[0].values.tolist() == [[1.5, 1], [1.5, 2], [1.5, 3]]
    assert panel.tables[0].series == "north"
    assert {note.partition(" are")[0] for note in panel.notes[:2]} == {
        *("columns that hold texts", "columns that hold times")
    }
    plain = pd.DataFrame(np.arange(5.0), index=pd.date_range("2024-01-01", periods=5))
    assert read_frame(plain).channels == ("0",)


def test_an_index_that_is_a_column_too() -> None:
    frame = pd.DataFrame({"ds": hours("2024-01-01T00:00"), "unique_id": "a", "y": range(40)})
    expected = read_frame(frame).tables[0]
    for names in ("ds", ["unique_id", "ds"], ["ds", "y"]):
        (table,) = read_frame(frame.set_index(names, drop=False)).tables
        assert table.timestamps.tolist() == expected.timestamps.tolist()
        assert (table.channels, table.series) == (("y",), "a")
    other = frame.set_index(pd.Index(range(40), name="ds"))
    with pytest.raises(
        DataError, match="the index and a column are called 'ds', and differ"
    ) as told:
        read_frame(other)
    assert str(told.value).endswith("frame.reset_index(drop=True)")
    assert read_frame(other.reset_index(drop=True)).channels == ("y",)


def test_complex_numbers_are_no_channels() -> None:
    frame = pd.DataFrame({"ds": hours("2024-01-01T00:00"), "y": range(40)})
    frame["z"] = frame["y"] * 1j
    panel = read_frame(frame)
    assert panel.channels == ("y",)
    assert panel.notes == ("columns that hold texts such as '0j' are left out: z",)
    with pytest.raises(DataError, match="columns that hold texts such as '0j' are no channels: z"):
        read_frame(frame, Reading(channels="y,z"))


def test_a_type_that_pandas_has_not_is_told_with_its_column() -> None:
    frame = pl.DataFrame({"ds": hours("2024-01-01T00:00"), "y": range(40)})
    wide = frame.with_columns(pl.col("y").cast(pl.Int128).alias("z"))
    with pytest.raises(DataError, match=r"column 'z' has a type that is not read .* cast it"):
        read_frame(wide)
    assert read_frame(wide.cast({"z": pl.Int64})).channels == ("y", "z")


def test_days_of_the_month_that_begin_in_a_short_one(tmp_path: Path) -> None:
    days = ["02-28", *(f"{month:02d}-30" for month in range(3, 11) if month != 9)]
    content = text(*(f"2023-{day},{i}" for i, day in enumerate(days)), header="date,a")
    (table,) = read_text(tmp_path, content, missing="interpolate").tables
    assert len(table) == 9
    assert table.timestamps[7] == np.datetime64("2023-09-30")


def test_points_elsewhere_tell_the_decimal_mark(tmp_path: Path) -> None:
    rows = [f'{day},{i}.5,"1,{i}00"' for i, day in enumerate(DAYS)]
    assert read_text(tmp_path, text(*rows)).tables[0].values[1].tolist() == [1.5, 1100]


def with_holes(*holes: range) -> str:
    start = np.datetime64("2020-01-01", "D")
    left_out = {day for hole in holes for day in hole}
    rows = [f"{start + day},{day},{day * 2}" for day in range(40) if day not in left_out]
    return text(*rows)


def test_missing_rows_and_values_are_filled_as_in_requests(tmp_path: Path) -> None:
    content = with_holes(range(5, 8)).replace("2020-01-11,10,20", "2020-01-11,,20")
    panel = read_text(tmp_path, content, missing="interpolate")
    (table,) = panel.tables
    assert table.values.tolist() == [[day, 2 * day] for day in range(40)]
    assert np.diff(table.timestamps).astype("m8[D]").astype(int).tolist() == [1] * 39
    note = "filled in: 7 of 80 values (8.8%), which histories read and errors leave out"
    assert panel.notes == (note,)
    (table,) = read_text(tmp_path, content, missing="ffill").tables
    assert table.values[4:11, 0].tolist() == [4, 4, 4, 4, 8, 9, 9]


def test_long_holes_split_a_series(tmp_path: Path) -> None:
    content = with_holes(range(5, 8), range(20, 25))
    panel = read_text(tmp_path, content, missing="interpolate", max_gap=4)
    assert [len(table) for table in panel.tables] == [20, 15]
    assert panel.tables[1].values[0].tolist() == [25, 50]
    assert panel.tables[1].timestamps[0] == np.datetime64("2020-01-26")
    assert panel.notes == (
        "filled in: 6 of 70 values (8.6%), which histories read and errors leave out",
        "a hole longer than 4 steps (--max-gap) splits a series",
    )
    assert len(read_text(tmp_path, content, missing="ffill", max_gap=5).tables) == 1
    # Far apart, they cost no memory either.
    far = content + "9020-01-01,1,1\n9020-01-02,1,1\n"
    assert len(read_text(tmp_path, far, missing="ffill", max_gap=5).tables) == 2


def test_a_long_hole_of_one_channel_splits_too(tmp_path: Path) -> None:
    rows = [
        f"{np.datetime64('2020-01-01') + day},{day},{'' if 10 <= day < 16 else day}"
        for day in range(30)
    ]
    panel = read_text(tmp_path, text(*rows), missing="interpolate", max_gap=5)
    assert [len(table) for table in panel.tables] == [10, 14]
    assert panel.notes[-1] == ("6 rows in such holes, or before the first value, are left out")
    assert len(read_text(tmp_path, text(*rows), missing="interpolate").tables) == 1


def test_nothing_is_carried_on_before_the_first_value(tmp_path: Path) -> None:
    rows = [f"{day},{i},{'' if i < 2 else i}" for i, day in enumerate(DAYS)]
    (table,) = read_text(tmp_path, text(*rows), missing="ffill").tables
    assert table.values[:, 1].tolist() == list(range(2, 10))
    (table,) = read_text(tmp_path, text(*rows), missing="interpolate").tables
    assert table.values[:, 1].tolist() == [2, 2, *range(2, 10)]


def test_what_is_carried_on_may_lie_before_the_first_row(tmp_path: Path) -> None:
    given = ["1,", "", ",20", "", "5,", "6,30", "7,40"]
    rows = [f"{day},{values}" for day, values in zip(DAYS, given, strict=False) if values]
    panel = read_text(tmp_path, text(*rows, header="date,a,b"), missing="ffill", frequency="D")
    (table,) = panel.tables
    assert table.timestamps[0] == np.datetime64("2020-01-03")
    assert table.values.tolist() == [[1, 20], [1, 20], [5, 20], [6, 30], [7, 40]]
    assert any(note.startswith("filled in: 4 of 10 values (40.0%)") for note in panel.notes)


def test_a_channel_that_misses_much_is_named(tmp_path: Path) -> None:
    rows = [f"{day},{i},{'' if i % 3 else i}" for i, day in enumerate(DAYS)]
    panel = read_text(tmp_path, text(*rows), missing="interpolate")
    assert panel.notes[0] == "b misses 60% of its values: --channels leaves it out"


def test_filled_rows_have_the_clock_of_their_series(tmp_path: Path) -> None:
    moments = hours("2024-03-30T10:00")
    rows = [
        f"{moment.isoformat()},{i}" for i, moment in enumerate(moments) if i not in (13, 14, 15)
    ]
    content = text(*rows, header="date,a")
    for zone in ({}, {"time_zone": "Europe/Berlin"}):
        (table,) = read_text(tmp_path, content, missing="interpolate", **zone).tables
        assert len(table) == 40
        assert isinstance(table.utc_offset, np.ndarray)
        known = (table.timestamps - table.utc_offset).tolist()
        assert known == [moment.astimezone(UTC).replace(tzinfo=None) for moment in moments]
        # Nothing but the zone tells that the clock changed in a row that is filled in.
        early = 0 if zone else 1
        offsets = [timedelta(hours=1 + (i >= 15 + early)) for i in range(40)]
        assert table.utc_offset.tolist() == offsets


def test_the_spacing_is_that_of_rows_with_values(tmp_path: Path) -> None:
    rows = [f"{day}T00:00,{i}\n{day}T12:00," for i, day in enumerate(DAYS)]
    panel = read_text(tmp_path, text(*rows, header="date,a"))
    assert (len(panel), str(panel.frequency)) == (10, "D")
    assert panel.notes == ("10 rows between two steps have no value and are left out",)


def test_the_spacing_is_that_of_moments(tmp_path: Path) -> None:
    rows = [f"2024-03-01T{i + 1 + i % 2:02d}:00+0{1 + i % 2}:00,{i}" for i in range(12)]
    panel = read_text(tmp_path, text(*rows, header="date,a"))
    assert (len(panel), str(panel.frequency)) == (12, "h")


@pytest.mark.parametrize(
    "frequency",
    [
        *(
            "10ms",
            "50us",
            "s",
            "15min",
            "6h",
            "D",
            "2D",
            "B",
            "W-MON",
            "W-SUN",
            "2W-WED",
            "MS",
            "ME",
            "2MS",
        ),
        *("SMS-15", "SME-15", "BMS", "BME", "WOM-3FRI", "LWOM-FRI", "2BME"),
        *("QS", "QE", "QS-FEB", "YS", "YE", "YE-JUN"),
    ],
)
def test_all_frequencies_are_found_and_filled(frequency: str) -> None:
    dates = pd.date_range("2019-12-01", periods=40, freq=frequency)
    frame = pd.DataFrame({"ds": dates, "y": np.arange(40.0)})
    whole = read_frame(frame)
    np.testing.assert_array_equal(whole.tables[0].timestamps, dates.to_numpy("M8[us]"))
    holey = read_frame(frame.drop(index=[7, 20, 21]), Reading(missing="interpolate"))
    assert holey.tables[0].filled is not None
    np.testing.assert_array_equal(holey.tables[0].timestamps, whole.tables[0].timestamps)
    np.testing.assert_array_equal(holey.tables[0].values, whole.tables[0].values)
    assert np.flatnonzero(holey.tables[0].filled).tolist() == [7, 20, 21]


def test_the_same_reading_reads_the_same(tmp_path: Path) -> None:
    content = text(*(f"{i};{row}" for i, row in enumerate(PLAIN)), header=";date;a;b")
    path = write(tmp_path, content.replace(",", ";").replace(".", ","))
    panel = read(path)
    assert panel.source is not None
    again = read(path, Reading.model_validate_json(panel.source.reading.model_dump_json()))
    assert again.fingerprint() == panel.fingerprint()


PACKAGES = Path(pd.__file__).parent.parent
STOCKS = PACKAGES / "matplotlib" / "mpl-data" / "sample_data"
WEATHER = PACKAGES / "pvlib" / "data"


@pytest.mark.parametrize(
    ("path", "message", "options", "rows"),
    [
        (WEATHER / "soiling_hsu_example_inputs.csv", None, {}, [8760]),
        (STOCKS / "msft.csv", "lines 15 and 55, column 'Date': 2003-09-02", "ffill", [67]),
        (
            STOCKS / "Stocks.csv",
            "line 526, column 'Date': 2022-06-28T00:00:00: no step of frequency M falls on it",
            None,
            None,
        ),
        (WEATHER / "723170TYA.CSV", "column 'Date (MM/DD/YYYY),Time (HH:MM)'", "ffill", None),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
def test_real_files(path: Path, message: str | None, options: Any, rows: list[int] | None) -> None:
    """As they come inside packages: newest first, holidays, comments, a title, hours up to 24."""
    if message is not None:
        with pytest.raises(DataError) as raised:
            read(path)
        assert message in str(raised.value)
    if options is None:
        return
    panel = read(path, Reading(missing=options) if options else None)
    assert sum(map(len, panel.tables)) == (rows[0] if rows else 8760)
    assert np.isfinite(np.concatenate([table.values for table in panel.tables])).all()


def test_thousands_or_fractions_beside_semicolons_are_asked_about(tmp_path: Path) -> None:
    """A German table of 1.500 is no table of 1.5."""
    path = tmp_path / "data.csv"
    lines = [f"{day + 1:02d}.01.2024;{day + 990:_}".replace("_", ".") for day in range(30)]
    path.write_text("\n".join(["Datum;load", *lines]))
    with pytest.raises(DataError, match=r"'1\.000' can be read as 1 and as 1000; --decimal \. or"):
        read(path)
    values = read(path, Reading(decimal=",")).tables[0].values[:, 0]
    assert values.tolist() == list(range(990, 1020))
    assert read(path, Reading(decimal=".")).tables[0].values[-1, 0] == 1.019
    path.write_text("\n".join(["Datum;load", *(f"{line[:10]};7.000" for line in lines)]))
    with pytest.raises(DataError, match="--decimal"):
        read(path)


@pytest.mark.parametrize("other", ["0.125", "1234.567", "1.25", "12.3456"])
def test_one_number_that_is_no_thousand_tells_the_others(tmp_path: Path, other: str) -> None:
    lines = [f"2024-01-{day:02d};{day}.500" for day in range(1, 31)]
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["date;load", f"2023-12-31;{other}", *lines]))
    assert read(path).tables[0].values[:2, 0].tolist() == [float(other), 1.5]
