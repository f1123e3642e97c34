from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from foretell.batch import tables
from foretell.batch.errors import BatchError
from foretell.batch.places import LocalPlace
from foretell.batch.plan import divide
from foretell.batch.tables import ROW, Columns, Tables

LENGTHS = (3, 1, 9, 2, 5, 1, 7, 4)
COLUMNS = Columns("unique_id", None, ("y",))


def ids(*, numbers: bool = False) -> list[object]:
    # Of -2 and -1 Python has one hash.
    numbered = range(-2, len(LENGTHS) - 2)
    names = numbered if numbers else map("s{}".format, numbered)
    return [name for name, length in zip(names, LENGTHS, strict=True) for _ in range(length)]


def write(folder: Path, names: list[object], *, per_file: int, group: int, kind: str) -> Tables:
    for start in range(0, len(names), per_file):
        some = names[start : start + per_file]
        table = pa.table({"unique_id": some, "y": [float(start + at) for at in range(len(some))]})
        if kind == "csv":
            csv.write_csv(table, folder / f"{start:03d}.csv")
        else:
            parquet.write_table(table, folder / f"{start:03d}.parquet", row_group_size=group)
    return Tables(LocalPlace(folder), COLUMNS, ("y",))


def divided(tables: Tables, rows: int) -> list[list[tuple[object, float]]]:
    """What the parts hold, and whether places are where the rows are."""
    files = [file.name for file in tables.place.files()]
    found = []
    first = dict.fromkeys(files, 0)
    for part in divide(tables, files, rows, 3, 2):
        read = [row for table in tables.rows(part.spans) for row in table.to_pylist()]
        assert part.series == len({row["unique_id"] for row in read})
        for row in read:
            file, at = part.place(row[ROW])
            assert first[file] == at
            first[file] += 1
        found.append([(row["unique_id"], row["y"]) for row in read])
    return found


@pytest.mark.parametrize("kind", ["parquet", "csv", "blocks"])
@pytest.mark.parametrize("rows", [1, 6, 13, 1000])
@pytest.mark.parametrize(("per_file", "group"), [(100, 100), (100, 4), (7, 3), (1, 1), (11, 11)])
@pytest.mark.parametrize("numbers", [False, True])
def test_parts_are_whole_series_and_every_row_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    per_file: int,
    group: int,
    kind: str,
    *,
    numbers: bool,
) -> None:
    if kind == "blocks":
        # Of one or two lines.
        monkeypatch.setattr(tables, "_BLOCK", 12)
        kind = "csv"
    names = ids(numbers=numbers)
    parts = divided(write(tmp_path, names, per_file=per_file, group=group, kind=kind), rows)
    if kind == "csv":
        names = list(map(str, names))
    every = [row for part in parts for row in part]
    assert every == [(name, float(at)) for at, name in enumerate(names)]
    series = [{name for name, _ in part} for part in parts]
    assert sum(map(len, series)) == len(LENGTHS)
    left = len(every)
    for part in parts[:-1]:
        # Of what is left, each of two has two parts at least; a quarter is small enough.
        assert len(part) >= min(rows, max(rows // 4, left // 4))
        left -= len(part)
    if (rows, group, per_file) == (1, 1, 1):
        assert len(parts) == len(LENGTHS)


def test_the_last_parts_are_smaller(tmp_path: Path) -> None:
    """So that none of two is long at work when the other has nothing left."""
    tables = write(tmp_path, [f"s{at}" for at in range(96)], per_file=96, group=1, kind="parquet")
    sizes = [len(part) for part in divided(tables, 16)]
    assert sizes == [16, 16, 16, 12, 9, 6, 5, 4, 4, 4, 4]


@pytest.mark.parametrize("group", [2, 5, 100])
def test_a_series_that_begins_again_is_told_with_its_place(tmp_path: Path, group: int) -> None:
    names = [*ids(), "s2", "s2"]
    tables = write(tmp_path, names, per_file=30, group=group, kind="parquet")
    with pytest.raises(BatchError) as told:
        divided(tables, 5)
    assert str(told.value) == (
        f"{tmp_path}/030.parquet: the rows of series 's2' do not follow each other: it begins "
        "again at row 2 (from 0); sort the table by unique_id and time"
    )


def test_of_several_that_begin_again_the_first_is_told(tmp_path: Path) -> None:
    tables = write(tmp_path, ["a", "b", "a", "b"], per_file=9, group=9, kind="parquet")
    with pytest.raises(BatchError, match=r"series 'a' do not .* again at row 2"):
        divided(tables, 5)


def test_a_row_without_a_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretell.batch.tables._ROWS", 2)
    tables = write(tmp_path, [*"abcdefghijklmno", None], per_file=8, group=4, kind="parquet")
    with pytest.raises(BatchError, match=r"008.parquet: row 7 \(from 0\): it has no name of its"):
        divided(tables, 5)


def test_empty_files_are_passed_over(tmp_path: Path) -> None:
    tables = write(tmp_path, ids(), per_file=7, group=5, kind="parquet")
    empty = pa.table({"unique_id": pa.array([], pa.string()), "y": pa.array([], pa.float64())})
    # Also between two that have rows of the same series.
    for name in ("0", "000a", "007a", "9"):
        parquet.write_table(empty, tmp_path / f"{name}.parquet")
    assert len([row for part in divided(tables, 5) for row in part]) == sum(LENGTHS)
