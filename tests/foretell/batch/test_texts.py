"""CSV: what is wrong in it is of single series."""

from __future__ import annotations

import gzip
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from foretell.batch import tables, texts
from foretell.batch.errors import BatchError
from tests.foretell.batch.tables import forecasts, many, rejected, run, wave


def text_of(given: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    csv.write_csv(given, sink)
    return sink.getvalue().to_pybytes().decode()


def with_cell(text: str, row: int, column: int, value: str) -> str:
    lines = text.split("\n")
    cells = lines[row + 1].split(",")
    cells[column] = value
    lines[row + 1] = ",".join(cells)
    return "\n".join(lines)


def written(folder: Path, text: str, name: str = "given.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def values(folder: Path) -> dict[str, list[tuple[Any, float]]]:
    """Forecasts by series."""
    rows = groupby(forecasts(folder).to_pylist(), itemgetter("unique_id"))
    return {name: [(row["ds"], row["forecast"]) for row in own] for name, own in rows}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are read at a time."""
    monkeypatch.setattr(tables, "_BYTES", 400)


@pytest.mark.parametrize("row", [1, 41, 77])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        (2, "n/a?", "expected a number, got the string 'n/a?'"),
        (2, '"1,\n5"', "expected a number, got the string '1,\\n5'"),
        (1, "soon", "expected a time like those of other rows, got the string 'soon'"),
    ],
)
@pytest.mark.usefixtures("small")
def test_text_in_place_of_a_number_is_of_one_series(
    models: Path, tmp_path: Path, row: int, end: str, column: int, value: str, reason: str
) -> None:
    given = many(10)
    text = with_cell(text_of(given), row, column, value)
    path = written(tmp_path, text.replace("\n", end) if "\n" not in value else text)
    assert run(path, models / "calendar" / "1", tmp_path, missing="ffill").counts == (9, 1)
    name = given["unique_id"][row].as_py()
    bad = rejected(tmp_path)
    assert bad.keys() == {name}
    assert (bad[name]["reason"], bad[name]["row"]) == (reason, row)
    assert bad[name]["column"] == given.column_names[column]
    run(given, models / "calendar" / "1", tmp_path / "other", missing="ffill")
    whole = values(tmp_path / "other")
    del whole[name]
    assert values(tmp_path) == whole


@pytest.mark.usefixtures("small")
def test_cells_before_the_context_may_be_texts(models: Path, tmp_path: Path) -> None:
    path = written(tmp_path, with_cell(text_of(many(6, 20)), 45, 2, "closed"))
    assert run(path, models / "repeat" / "1", tmp_path).counts == (6, 0)
    assert values(tmp_path)["s0002"][0][1] == np.float32(wave(2, 20)[-1])


def test_numbers_next_to_texts_are_read_as_without_them(models: Path, tmp_path: Path) -> None:
    text = text_of(many(10))
    # The last value of each of three series; the forecast repeats it.
    for row, value in ((47, "NA"), (55, "  2.5 "), (63, "+1e-1"), (70, "none"), (71, "none too")):
        text = with_cell(text, row, 2, value)
    path = written(tmp_path, text)
    assert run(path, models / "repeat" / "1", tmp_path, missing="ffill").counts == (9, 1)
    found = values(tmp_path)
    assert found["s0005"][0][1] == np.float32(wave(5, 8)[6])
    assert found["s0006"][0][1] == np.float32(2.5)
    assert found["s0007"][0][1] == np.float32(0.1)
    assert rejected(tmp_path)["s0008"]["row"] == 70


@pytest.mark.parametrize(
    ("times", "kind"),
    [
        (["2024-01-01", "soon", "2024-01-02"], pa.date32()),
        (["2024-01-01", "soon", "2024-01-02 03:00"], pa.timestamp("s")),
        (["2024-01-01", "", "never", "2024-01-02T00:00:00.5"], pa.timestamp("ns")),
        (["2024-01-01 00:00Z", "2024-01-02 00:00", "2024-01-03 00:00Z"], pa.timestamp("s", "UTC")),
        (["2024-01-01 00:00Z", "soon", "2024-01-02 00:00:00.5Z"], pa.timestamp("ns", "UTC")),
        # The number of cells of each kind does not matter.
        (["2024-01-01 00:00Z"] * 3 + ["2024-01-02 00:00", "2024-01-03 00:00"], pa.timestamp("s")),
        (["soon", "", "20240101"], pa.string()),
    ],
)
def test_type_of_times_is_that_of_the_majority(times: list[str], kind: pa.DataType) -> None:
    assert texts.kind_of_times(pa.array(times)) == kind


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('unique_id,ds,load\na,2024-01-01,"1,5"\n', "column 'load': expected numbers, got the "),
        ("unique_id,ds,load\na,1st of May,1\n", "column 'ds': expected timestamps .*, got string"),
        ("unique_id,ds,load,load\na,2024-01-01,1,2\n", "given.csv: .*multiple columns named load"),
        ("unique_id,load,day\na,1,2\n", "a column of times is required"),
        ("unique_id,ds\na,2\n", "expected one column 'load'; the table has unique_id, ds"),
        ("unique_id,ds,load\na,2024-01-01,1\nb,2024-01-01\n", "Expected 3 columns, got 2: b,20"),
        ("unique_id,ds,load\na,2024-01-01,\xff\n", "invalid UTF8 data"),
    ],
)
def test_table_that_cannot_be_read_is_refused(
    models: Path, tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "given.csv"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(BatchError, match=message):
        run(path, models / "calendar" / "1", tmp_path)
    assert not list((tmp_path / "out").glob("*/*"))


@pytest.mark.usefixtures("small")
def test_malformed_line_is_named(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    written(folder, text_of(many(10)), "0.csv")
    written(folder, text_of(many(20)[80:]) + "s9999,2024-01-01\n" * 2, "1.csv")
    message = r"1.csv: .*Row #82: Expected 3 columns, got 2: s9999,2024-01-01"
    with pytest.raises(BatchError, match=message):
        run(folder, models / "repeat" / "1", tmp_path)


HEAD, BELOW = "unique_id,ds,load\n", text_of(many(6)).split("\n", 1)[1]


@pytest.mark.parametrize("name", ["given.csv", "given.csv.gz"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("# six series\n" + HEAD + BELOW, ""),
        ("# a\n# b\n\n" + HEAD + BELOW, ""),
        ("\ufeff# six series\n" + HEAD + BELOW, ""),
        ("# of, six, series\n" + HEAD + BELOW, "expected one column 'unique_id'"),
        (HEAD + "# the first\n" + BELOW, "Row #2: .*got 1: # the first"),
        (HEAD + "# a, b, c, d\n" + BELOW, "Row #2: .*got 4: # a, b, c, d"),
        (HEAD + BELOW + "# the end\n", "got 1: # the end"),
    ],
)
def test_comments_are_refused_with_a_remedy(
    models: Path, tmp_path: Path, name: str, content: str, message: str
) -> None:
    def forecast(text: str) -> tuple[int, int]:
        return run(written(tmp_path, text, name), models / "repeat" / "1", tmp_path).counts

    with pytest.raises(BatchError, match=rf"{message}.*remove the lines that begin with #"):
        forecast(content)
    lines = content.removeprefix("\ufeff").splitlines(keepends=True)
    assert forecast("".join(line for line in lines if line[0] != "#")) == (6, 0)


def test_names_that_begin_with_a_hash_are_names(models: Path, tmp_path: Path) -> None:
    text = "#shop" + text_of(many(6)).replace("s000", "#100").removeprefix('"unique_id"')
    path = written(tmp_path, text)
    assert run(path, models / "repeat" / "1", tmp_path, id_column="#shop").counts == (6, 0)
    assert set(forecasts(tmp_path)["#shop"].to_pylist()) == {f"#100{i}" for i in range(6)}


@pytest.mark.usefixtures("small")
def test_columns_of_several_lines(models: Path, tmp_path: Path) -> None:
    rows = "".join(f'"1\n2",{line}\n' for line in BELOW.splitlines())
    path = written(tmp_path, '"the\nshop",' + HEAD + rows)
    assert run(path, models / "repeat" / "1", tmp_path).counts == (6, 0)


def test_categories_are_missing_where_they_are_in_training() -> None:
    given = pa.array(["NA", "none", " ", "n/a", "NULL", "01"])
    found, wrong = texts.parsed(given, pa.string())
    assert found.to_pylist() == ["NA", "none", None, None, None, "01"]
    assert not wrong.any()
