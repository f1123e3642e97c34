from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from foretell.batch import plan, tables
from foretell.batch.errors import BatchError
from foretell.batch.places import LocalPlace
from foretell.batch.plan import divide
from foretell.batch.tables import Columns, Piece, Tables

LENGTHS = (3, 1, 9, 2, 5, 1, 7, 4)
COLUMNS = Columns("unique_id", None, ("y",))


def ids(*, numbers: bool = False) -> list[object]:
    # Of -2 and -1 Python has one hash.
    numbered = range(-2, len(LENGTHS) - 2)
    names = numbered if numbers else map("s{}".format, numbered)
    return [name for name, length in zip(names, LENGTHS, strict=True) for _ in range(length)]


def write(
    folder: Path, names: list[object], *, per_file: int, group: int, kind: str, **options: Any
) -> Tables:
    for start in range(0, len(names), per_file):
        some = names[start : start + per_file]
        table = pa.table({"unique_id": some, "y": [float(start + at) for at in range(len(some))]})
        if kind == "csv":
            csv.write_csv(table, folder / f"{start:03d}.csv")
        else:
            path = folder / f"{start:03d}.parquet"
            parquet.write_table(table, path, row_group_size=group, **options)
    return Tables(LocalPlace(folder), COLUMNS, ("y",))


def divided(tables: Tables, rows: int) -> list[list[tuple[object, float]]]:
    """What the parts hold, and whether places are where the rows are."""
    files = [file.name for file in tables.place.files()]
    found = []
    first = dict.fromkeys(files, 0)
    for part in divide(tables, files, rows, 3, 2):
        tables_read = list(tables.rows(part.spans))
        read = [row for rows in tables_read for row in rows.table.to_pylist()]
        numbers = [rows.number(at) for rows in tables_read for at in range(len(rows))]
        assert part.rows == len(read)
        for number in numbers:
            file, at = part.place(number)
            assert first[file] == at
            first[file] += 1
        found.append([(row["unique_id"], row["y"]) for row in read])
    return found


@pytest.mark.parametrize("kind", ["parquet", "csv", "blocks"])
@pytest.mark.parametrize("rows", [1, 6, 13, 1000])
@pytest.mark.parametrize(("per_file", "group"), [(100, 100), (100, 4), (7, 3), (1, 1), (11, 11)])
@pytest.mark.parametrize("names", ["texts", "numbers", "ascending"])
def test_parts_are_whole_series_and_every_row_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    per_file: int,
    group: int,
    kind: str,
    names: str,
) -> None:
    if kind == "blocks":
        # Of one or two lines.
        monkeypatch.setattr(tables, "_BLOCK", 12)
        kind = "csv"
    # Of a series that is longer than what is read to find its end as well.
    monkeypatch.setattr(plan, "_FIRST_ROWS", 2)
    given = ids(numbers=names == "numbers")
    given = sorted(given) if names == "ascending" else given
    parts = divided(write(tmp_path, given, per_file=per_file, group=group, kind=kind), rows)
    if kind == "csv":
        given = list(map(str, given))
    every = [row for part in parts for row in part]
    assert every == [(name, float(at)) for at, name in enumerate(given)]
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


@pytest.mark.parametrize(
    ("names", "options", "is_read"),
    [
        ([*"aabbbccdeefff"], {}, False),
        ([*"fffeedccbbbaa"], {}, True),
        ([*"aabbbccdeefff"], {"write_statistics": False}, True),
        ([*"aabbbccdeefff"], {"write_statistics": ["y"]}, True),
        # Too long to be told.
        ([name * 5000 for name in "aabbbccdeefff"], {}, True),
        ([1, 1, 2, 3, 3, 3, 3, 3, 3, 3, 9], {}, False),
    ],
)
def test_names_that_ascend_are_not_all_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: list[object],
    options: dict[str, Any],
    *,
    is_read: bool,
) -> None:
    read = []

    def runs(of: Tables, piece: Piece) -> object:
        read.append(piece)
        return whole(of, piece)

    whole = plan._runs
    monkeypatch.setattr(plan, "_runs", runs)
    tables = write(tmp_path, names, per_file=8, group=3, kind="parquet", **options)
    parts = divided(tables, 1)
    assert [name for part in parts for name, _ in part] == names
    assert bool(read) == is_read
    files = [file.name for file in tables.place.files()]
    assert all(part.is_read == is_read for part in divide(tables, files, 1, 1, 1))


def test_a_name_inside_of_what_comes_next_is_read(tmp_path: Path) -> None:
    """What files tell leaves open whether `b` ends the one piece and begins the other."""
    tables = write(tmp_path, [*"abcb"], per_file=2, group=2, kind="parquet")
    with pytest.raises(BatchError, match=r"002.parquet: .* 'b' do not .* begins again at row 1"):
        divided(tables, 1)


def test_a_part_knows_of_the_series_that_its_first_piece_begins_with(tmp_path: Path) -> None:
    tables = write(tmp_path, [*"aabbbccd"], per_file=4, group=4, kind="parquet")
    files = [file.name for file in tables.place.files()]
    parts = divide(tables, files, 1, 1, 9)
    assert [(part.before, part.rows) for part in parts] == [(None, 5), ("b", 3)]


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
    tables = write(tmp_path, ["a", "b", "a", "b"], per_file=1, group=1, kind="parquet")
    with pytest.raises(BatchError, match=r"002.parquet: .* series 'a' do not .* again at row 0"):
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
