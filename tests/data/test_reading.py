"""Files as they come: understood, or all their problems in one message."""

import gzip
import io
import zipfile
from collections.abc import Iterable
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet
from pydantic import ValidationError

from foretell.data.errors import DataError
from foretell.data.reading import Reading, read, read_frame
from tests.data.panels import DAYS, PLAIN, read_text, refusal, text, write


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


TEXTS: dict[str, str | bytes] = {
    "tabs": text(*PLAIN).replace(",", "\t"),
    "semicolons": text(*PLAIN).replace(",", ";"),
    "commas": text(*PLAIN).replace(",", ";").replace(".", ","),
    "spaces": text(*PLAIN).replace(",", ", "),
    "bom": b"\xef\xbb\xbf" + text(*PLAIN).replace("\n", "\r\n").encode(),
    "utf-16": text(*PLAIN).encode("utf-16"),
    "gzip": gzip.compress(text(*PLAIN).encode(), mtime=0),
    "comments": "# of the station\n\n" + text(*PLAIN) + "# the end\n\n,,\n",
    "marked names": "# " + text(*PLAIN),
    "trailing": text(*(f"{row}," for row in PLAIN), header="date,a,b,"),
    "zip": zipped(text(*PLAIN)),
    "zip of a Mac": zipped(text(*PLAIN), mac=True),
    "old Mac": text(*PLAIN).replace("\n", "\r"),
    "of a spreadsheet": "Weather,,,,\n,,,,\n"
    + text(*(f"{row},," for row in PLAIN), header="date,a,b,,"),
}


@pytest.mark.parametrize("content", TEXTS.values(), ids=TEXTS)
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


@pytest.mark.parametrize(("name", "content"), [("a.parquet", b"PAR1\0\0"), ("a.arrow", b"\0" * 20)])
def test_a_damaged_file_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(DataError, match="a damaged file"):
        read(write(tmp_path, content, name))


def wider(cell: str, name: str) -> str:
    """The plain table with one more column, of one value."""
    return text(*(f"{row},{cell}" for row in PLAIN), header=f"date,a,b,{name}")


def indexed(name: str, first: int = 0) -> str:
    """The plain table with a column that counts its rows before it."""
    return text(*(f"{i},{row}" for i, row in enumerate(PLAIN, first)), header=f"{name},date,a,b")


MESSES: dict[str, tuple[str, str, str | None]] = {
    "index with a name": (indexed("No"), "ab", "'No'"),
    "dates without a name": (text(*PLAIN, header=",a,b"), "ab", None),
    "text": (wider("sun", "sky"), "ab", "hold texts"),
    "text and date": (wider("x 2020-01-01", "c"), "ab", "texts"),
    "sign": (wider("$3", "c"), "ab", "texts such as '$3'"),
    "empty column": (wider("", "c"), "ab", "have no values are left out: c"),
    "parts of a time": (wider("2020", "Year"), "ab", "parts of a time"),
    "title": ("Weather of the north\nby hour, 2020\n" + text(*PLAIN), "ab", "names are in line 3"),
    "empty row between": (
        text(*PLAIN, "2020-01-10T12:00,,"),
        "ab",
        "between two steps has no value",
    ),
    "newest first": (text(*reversed(PLAIN)), "ab", "a series came newest first"),
    "unsorted": (text(PLAIN[1], PLAIN[0], *PLAIN[2:]), "ab", "not in the order of time"),
    "repeated row": (text(*PLAIN, PLAIN[-1]), "ab", "a row repeats another"),
    "repeated rows": (text(*PLAIN, *PLAIN), "ab", "10 rows repeat another and are left out"),
    "thousands": (
        text(*(f'{day},"1,{i}00.0"' for i, day in enumerate(DAYS)), header="date,a"),
        "a",
        None,
    ),
    "true and false": (
        text(*(f"{day},{i > 5}" for i, day in enumerate(DAYS)), header="date,a"),
        "a",
        None,
    ),
}


@pytest.mark.parametrize(("content", "channels", "note"), MESSES.values(), ids=MESSES)
def test_messy_table_is_read(tmp_path: Path, content: str, channels: str, note: str | None) -> None:
    panel = read_text(tmp_path, content)
    assert panel.channels == tuple(channels)
    assert len(panel) == 10
    assert (np.diff(panel.tables[0].values[:, 0]) >= 0).all()
    if note is None:
        assert panel.notes == ()
    else:
        assert note in panel.notes[-1]


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("start", [0, 50])
def test_unnamed_index_is_left_out(tmp_path: Path, name: str, order: int, start: int) -> None:
    """Index of a slice, or of rows that were sorted newest first."""
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
def test_columns_that_only_look_like_an_index_are_channels(
    tmp_path: Path, numbers: list[int], name: str, kept: str
) -> None:
    rows = [f"{number},{row}" for number, row in zip(numbers, PLAIN, strict=True)]
    panel = read_text(tmp_path, text(*rows, header=f"{name},date,a,b"))
    assert panel.channels == (kept, "a", "b")


@pytest.mark.parametrize(("name", "chosen"), [("", "unnamed"), ("id", "id")])
def test_requested_index_is_a_channel(tmp_path: Path, name: str, chosen: str) -> None:
    panel = read_text(tmp_path, indexed(name, 50), channels=("a", chosen))
    assert panel.channels == ("a", chosen)


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
        # In a German table 1.500 is not 1.5.
        (
            text(*(f"{day};{1 + i}.000" for i, day in enumerate(DAYS)), header="date;a"),
            r"'1\.000' can be read as 1 and as 1000; --decimal \. or",
        ),
        (text(*(f"{day};7.000" for day in DAYS), header="date;a"), "--decimal"),
        (text(*alternating(), header="store,date,a"), "named by 'store': --id-column store"),
        (b"PK\x03\x04", "a spreadsheet, or no zip file of one table; save it as CSV or Parquet"),
        (zipped(text(*PLAIN), text(*PLAIN)), "no zip file of one table"),
        (b"date,a\n2020-01-01,\xff\n", r"not UTF-8 text \(byte 18\); save it as CSV in UTF-8"),
        (b"\x1f\x8b\x08", "end-of-stream"),
        (gzip.compress(bytes(9), mtime=0)[:10] + b"\xff" * 20, "data.csv: Error -3"),
    ],
)
def test_names_place_and_remedy(tmp_path: Path, content: str | bytes, message: str) -> None:
    assert pd.Series([refusal(tmp_path, content)]).str.contains(message).all()


def test_all_problems_are_listed_at_once(tmp_path: Path) -> None:
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


def test_list_of_problems_is_short(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(30)]
    rows = [f"{day}" + ("," if i > 3 else ",1") * 30 for i, day in enumerate(DAYS)]
    message = refusal(tmp_path, text(*rows, header=",".join(["date", *names])))
    assert "30 problems" in message
    assert "lines 6, 7, 8, 9 and 2 more, column 'c0'" in message
    assert message.endswith("\n  and 10 more")
    assert len(message.splitlines()) == 22


def test_missing_columns_are_reported_before_rows(tmp_path: Path) -> None:
    content = text(*PLAIN, "2020-01-11,1,2,3")
    assert "line 12: 4 cells" in refusal(tmp_path, content)
    message = refusal(tmp_path, content, channels="a,c")
    assert message.endswith("data.csv: line 1: no column 'c'; there are date, a, b")
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
        ({"frequency": "2W"}, "no step of frequency 2W"),
    ],
)
def test_options_that_do_not_fit_the_table_are_refused(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    content = wider("sun", "sky") if "sky" in message else text(*PLAIN)
    assert message in refusal(tmp_path, content, **options)


@pytest.mark.parametrize(
    "options",
    [
        *({"frequency": "often"}, {"time_zone": "Mars"}, {"missing": "zero"}, {"decimal": ";"}),
        *({"max_gap": 0}, {"colour": "red"}),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
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


def test_given_date_format_and_decimal_mark_are_used(tmp_path: Path) -> None:
    rows = [f"{day}/1/2020;1,{day}00" for day in range(1, 10)]
    content = text(*rows, header="date;a")
    panel = read_text(tmp_path, content, date_format="%d/%m/%Y", decimal=",")
    assert str(panel.frequency) == "D"
    assert panel.tables[0].values[0, 0] == 1.1
    panel = read_text(tmp_path, content, date_format="%m/%d/%Y", decimal=".")
    assert str(panel.frequency) == "MS"
    assert panel.tables[0].values[0, 0] == 1100


def test_points_in_other_columns_decide_the_decimal_mark(tmp_path: Path) -> None:
    rows = [f'{day},{i}.5,"1,{i}00"' for i, day in enumerate(DAYS)]
    assert read_text(tmp_path, text(*rows)).tables[0].values[1].tolist() == [1.5, 1100]


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


def test_names_of_series_are_kept_as_written(tmp_path: Path) -> None:
    rows = [row.replace("x,", "007,").replace("y,", "NA,") for row in alternating()]
    panel = read_text(tmp_path, text(*rows, header="unique_id,ds,y"))
    assert [table.series for table in panel.tables] == ["007", "NA"]


@pytest.mark.parametrize("columns", [("shop", "item"), ("item_id", "shop")])
@pytest.mark.parametrize("value", ["0", "{i}"])
def test_several_columns_may_name_a_series(
    tmp_path: Path, columns: tuple[str, str], value: str
) -> None:
    rows = [
        f"{one},{other},{day},{value.format(i=i)}"
        for i, (one, other, day) in enumerate(product("xy", "12", DAYS))
    ]
    content = text(*rows, header=",".join([*columns, "date", "sales"]))
    first, second = columns
    message = f"named by '{first}' and '{second}': --id-column {first},{second}"
    assert message in refusal(tmp_path, content)
    panel = read_text(tmp_path, content, id_column=", ".join(columns))
    assert [table.series for table in panel.tables] == ["x/1", "x/2", "y/1", "y/2"]


def test_row_without_a_series_name_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, text(*alternating(), ",2020-01-11,1", header="unique_id,ds,y"))
    assert "line 22, column 'unique_id': no name of a series" in message
    assert len(message.splitlines()) == 1


def test_a_frame_names_its_rows(tmp_path: Path) -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2020-01-01", periods=4), "y": [1, np.inf, 2, 3]})
    with pytest.raises(DataError, match="the frame: row 1, column 'y': 'inf' is no finite number"):
        read_frame(frame)


@pytest.mark.parametrize("given", [None, {"ds": 1}, pd.Series([1.0]), pl.LazyFrame({"y": [1]})])
def test_values_other_than_frames_are_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="expected a frame or a table of Arrow, got a"):
        read_frame(given)


def test_categories_name_series() -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2020-01-01", periods=4).repeat(4), "y": range(16)})
    frame["item"] = pd.Categorical([*"aabb"] * 4)
    frame["shop"] = pd.Categorical([*"xyxy"] * 4)
    panel = read_frame(frame, Reading(id_column=("item", "shop")))
    assert list(panel.series) == ["a/x", "a/y", "b/x", "b/y"]


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
    frame = pd.DataFrame(
        {"ds": pd.date_range("2024-01-01", periods=40), "unique_id": "a", "y": range(40)}
    )
    expected = read_frame(frame).tables[0]
    for names in ("ds", ["unique_id", "ds"], ["ds", "y"]):
        (table,) = read_frame(frame.set_index(names, drop=False)).tables
        assert table.timestamps.tolist() == expected.timestamps.tolist()
        assert (table.channels, table.series) == (("y",), "a")
    other = frame.set_index(pd.Index(range(40), name="ds"))
    with pytest.raises(
        DataError, match="the index and a column are called 'ds', and differ"
    ) as raised:
        read_frame(other)
    assert str(raised.value).endswith("frame.reset_index(drop=True)")
    assert read_frame(other.reset_index(drop=True)).channels == ("y",)


def test_columns_of_a_nonnumeric_type_are_left_out() -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=40), "y": range(40)})
    frame["z"] = frame["y"] * 1j
    panel = read_frame(frame)
    assert panel.channels == ("y",)
    assert panel.notes == ("columns that hold texts such as '0j' are left out: z",)
    with pytest.raises(DataError, match="columns that hold texts such as '0j' are no channels: z"):
        read_frame(frame, Reading(channels="y,z"))
    wide = pl.from_pandas(frame[["ds", "y"]]).with_columns(z=pl.col("y").cast(pl.Int128))
    with pytest.raises(DataError, match=r"column 'z' has a type that is not read .* cast it"):
        read_frame(wide)
    assert read_frame(wide.cast({"z": pl.Int64})).channels == ("y", "z")


def test_equal_readings_give_equal_panels(tmp_path: Path) -> None:
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
