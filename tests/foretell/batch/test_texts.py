"""CSV: what is wrong in it is of single series, and a large file is read by blocks."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from foretell.batch import tables, texts
from foretell.batch.errors import BatchError, RowError
from tests.foretell.batch.tables import forecasts, many, rejected, run, wave


def text_of(given: pa.Table, end: str = "\n") -> str:
    sink = pa.BufferOutputStream()
    csv.write_csv(given, sink)
    return sink.getvalue().to_pybytes().decode().replace("\n", end)


def with_cell(text: str, row: int, column: int, value: str) -> str:
    """A text with another value in a cell."""
    lines = text.split("\n")
    cells = lines[row + 1].split(",")
    cells[column] = value
    lines[row + 1] = ",".join(cells)
    return "\n".join(lines)


def written(folder: Path, text: str) -> Path:
    path = folder / "given.csv"
    path.write_bytes(text.encode())
    return path


def values(folder: Path) -> dict[str, list[tuple[Any, float]]]:
    """Forecasts by series."""
    found: dict[str, list[tuple[Any, float]]] = {}
    for row in forecasts(folder).to_pylist():
        found.setdefault(row["unique_id"], []).append((row["ds"], row["forecast"]))
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a text few rows are parsed at a time."""
    monkeypatch.setattr(texts, "_BYTES", 400)


@pytest.mark.parametrize("row", [1, 41, 77])
@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        (2, "n/a?", "expected a number, got the string 'n/a?'"),
        (2, '"1,5"', "expected a number, got the string '1,5'"),
        (1, "soon", "expected a time like those of other rows, got the string 'soon'"),
    ],
)
@pytest.mark.usefixtures("small")
def test_text_in_place_of_a_number_is_of_one_series(
    models: Path, tmp_path: Path, row: int, column: int, value: str, told: str
) -> None:
    given = many(10)
    path = written(tmp_path, with_cell(text_of(given), row, column, value))
    assert run(path, models / "calendar" / "1", tmp_path, missing="ffill").counts == (9, 1)
    name = given["unique_id"][row].as_py()
    bad = rejected(tmp_path)
    assert bad.keys() == {name}
    assert (bad[name]["reason"], bad[name]["row"]) == (told, row)
    assert bad[name]["column"] == given.column_names[column]
    other = tmp_path / "other"
    other.mkdir()
    run(given, models / "calendar" / "1", other, missing="ffill")
    whole = values(other)
    del whole[name]
    assert values(tmp_path) == whole


@pytest.mark.usefixtures("small")
def test_what_the_model_does_not_read_may_be_anything(models: Path, tmp_path: Path) -> None:
    given = many(6, 20)
    path = written(tmp_path, with_cell(text_of(given), 45, 2, "closed"))
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


def test_a_column_without_numbers_is_refused(models: Path, tmp_path: Path) -> None:
    text = "unique_id,ds,load\n" + 'a,2024-01-01,"1,5"\n' * 8
    with pytest.raises(BatchError, match=r"column 'load': expected numbers, got the string '1,5'"):
        run(written(tmp_path, text), models / "repeat" / "1", tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_column_without_times_is_refused(models: Path, tmp_path: Path) -> None:
    text = "unique_id,ds,load\n" + "a,1st of May,1\n" * 8
    with pytest.raises(BatchError, match=r"column 'ds': expected timestamps .*, got string"):
        run(written(tmp_path, text), models / "repeat" / "1", tmp_path)


@pytest.mark.parametrize(
    ("times", "kind"),
    [
        (["2024-01-01", "soon", "2024-01-02"], pa.date32()),
        (["2024-01-01", "soon", "2024-01-02 03:00"], pa.timestamp("s")),
        (["2024-01-01", "", "never", "2024-01-02T00:00:00.5"], pa.timestamp("ns")),
        (["2024-01-01 00:00Z", "2024-01-02 00:00", "2024-01-03 00:00Z"], pa.timestamp("s", "UTC")),
        (["2024-01-01 00:00Z", "soon", "2024-01-02 00:00:00.5Z"], pa.timestamp("ns", "UTC")),
        # However often each is said.
        (["2024-01-01 00:00Z"] * 3 + ["2024-01-02 00:00", "2024-01-03 00:00"], pa.timestamp("s")),
        (["soon", "", "20240101"], pa.string()),
    ],
)
def test_what_most_texts_are_times_of(times: list[str], kind: pa.DataType) -> None:
    assert texts.kind_of_times(pa.array(times)) == kind


def test_a_column_that_is_there_twice_is_refused(models: Path, tmp_path: Path) -> None:
    text = "unique_id,ds,load,load\n" + "a,2024-01-01,1,2\n" * 8
    with pytest.raises(BatchError, match=r"given.csv: expected one column 'load'"):
        run(written(tmp_path, text), models / "repeat" / "1", tmp_path)


def test_times_that_are_there_twice_are_refused(models: Path, tmp_path: Path) -> None:
    text = "unique_id,ds,ds,load\n" + "a,2024-01-01,2024-01-01,1\n" * 8
    said = r"given.csv: expected one column 'ds'; the table has unique_id, ds, ds, load"
    with pytest.raises(BatchError, match=said):
        run(written(tmp_path, text), models / "repeat" / "1", tmp_path)


def test_a_file_without_the_times_of_others_is_refused(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    (folder / "0.csv").write_text(text_of(many(2)))
    (folder / "1.csv").write_text(text_of(many(2).drop(["ds"])))
    said = r"1.csv: expected one column 'ds'; the table has unique_id, load"
    with pytest.raises(BatchError, match=said):
        run(folder, models / "repeat" / "1", tmp_path)


@pytest.mark.parametrize("block", [40, 333, 1_000_000])
@pytest.mark.usefixtures("small")
def test_rows_that_are_no_rows_are_told(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(tables, "_BLOCK", block)
    folder = tmp_path / "table"
    folder.mkdir()
    (folder / "0.csv").write_text(text_of(many(10)))
    (folder / "1.csv").write_text(text_of(many(20)[80:]) + "s9999,2024-01-01\n" * 2)
    said = r"1.csv: row 80 \(from 0\): CSV parse error: Expected 3 columns, got 2: s9999,2024-01-01"
    with pytest.raises(BatchError, match=said):
        run(folder, models / "repeat" / "1", tmp_path)


@pytest.mark.usefixtures("small")
def test_a_row_that_only_its_part_reads_is_told(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_BLOCK", 1000)
    path = written(tmp_path, text_of(many(20)))
    lines = path.read_bytes().split(b"\n")
    lines[101] = lines[101].rpartition(b",")[0] + b",\xff"
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(BatchError, match=r"given.csv: row 100 \(from 0\): .*invalid UTF8 data"):
        run(path, models / "repeat" / "1", tmp_path, part_rows=1)


def test_where_a_row_is_comes_from_another_process() -> None:
    error = pickle.loads(pickle.dumps(RowError("given.csv", 7, "cannot be read")))
    assert str(error.after(3)) == "given.csv: row 10 (from 0): cannot be read"


@pytest.mark.parametrize("block", [40, 333, 1000])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_large_text_is_divided(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, end: str
) -> None:
    given = many(30)
    # Longer than a block.
    text = with_cell(text_of(given), 100, 2, "x" * 100).replace("\n", end)
    monkeypatch.setattr(tables, "_BLOCK", block)
    path = written(tmp_path, text.removesuffix(end))
    assert run(path, models / "calendar" / "1", tmp_path, part_rows=40).counts == (29, 1)
    assert len(list((tmp_path / "out" / "forecasts").iterdir())) > 3
    assert rejected(tmp_path)["s0012"]["row"] == 100
    other = tmp_path / "other"
    other.mkdir()
    run(given, models / "calendar" / "1", other)
    whole = values(other)
    del whole["s0012"]
    assert values(tmp_path) == whole


def test_a_zipped_text_is_one_part(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_BLOCK", 40)
    path = tmp_path / "given.csv.gz"
    path.write_bytes(gzip.compress(text_of(many(30)).encode()))
    assert run(path, models / "repeat" / "1", tmp_path, part_rows=40).counts == (30, 0)
    assert len(list((tmp_path / "out" / "forecasts").iterdir())) == 1


HEAD, BELOW = "unique_id,ds,load\n", text_of(many(6)).split("\n", 1)[1]


@pytest.mark.parametrize("block", [20, 10**6])
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("# six series\n" + HEAD + BELOW, "line 1 begins with #"),
        ("# a\n# b\n\n" + HEAD + BELOW, "line 1 begins with #"),
        ("\ufeff# six series\n" + HEAD + BELOW, "line 1 begins with #"),
        ("# of, six, series\n" + HEAD + BELOW, "expected one column 'unique_id'"),
        (HEAD + "# the first\n" + BELOW, "row 0 .*got 1: # the first"),
        (HEAD + "# a, b, c, d\n" + BELOW, "row 0 .*got 4: # a, b, c, d"),
        (HEAD + BELOW + "# the end\n", "row 48 .*got 1: # the end"),
    ],
)
def test_comments_are_refused_with_a_remedy_that_works(
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    block: int,
    zipped: bool,
    content: str,
    told: str,
) -> None:
    monkeypatch.setattr(tables, "_BLOCK", block)

    def forecast(text: str) -> tuple[int, int]:
        path = tmp_path / ("given.csv.gz" if zipped else "given.csv")
        path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
        return run(path, models / "repeat" / "1", tmp_path).counts

    with pytest.raises(BatchError, match=rf"{told}.*take out the lines that begin with #"):
        forecast(content)
    lines = content.removeprefix("\ufeff").splitlines(keepends=True)
    assert forecast("".join(line for line in lines if line[0] != "#")) == (6, 0)


@pytest.mark.parametrize("searched", range(80, 120, 5))
def test_names_that_begin_with_a_hash_are_names(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searched: int
) -> None:
    monkeypatch.setattr(texts, "_SEARCHED", searched)
    text = "#shop" + text_of(many(6)).replace("s000", "#100").removeprefix('"unique_id"')
    path = written(tmp_path, text)
    assert run(path, models / "repeat" / "1", tmp_path, id_column="#shop").counts == (6, 0)
    assert set(forecasts(tmp_path)["#shop"].to_pylist()) == {f"#100{i}" for i in range(6)}


@pytest.mark.parametrize("block", [20, 333, 10**6])
def test_names_of_several_lines_are_those_of_every_block(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(tables, "_BLOCK", block)
    rows = "".join(f"1,{line}\n" for line in BELOW.splitlines())
    path = written(tmp_path, '"the\nshop",' + HEAD + rows)
    assert run(path, models / "repeat" / "1", tmp_path).counts == (6, 0)
