"""How tables are divided and read: in whole series, and every row once."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

from foretell.batch import plan, tables
from foretell.batch.chunks import read_chunks
from foretell.batch.errors import BatchError
from foretell.batch.places import place_of
from foretell.batch.plan import divide
from foretell.batch.tables import Table, files_of, open_table

# Runs of rows, each of one series: number of the series and of rows.
STRETCHES = st.lists(st.tuples(st.integers(-2, 12), st.integers(1, 9)), min_size=1, max_size=12)


def write(folder: Path, names: list[Any], per_file: int, group: int, *, text: bool) -> list[str]:
    """Files with these numbers of rows; the first and the last are empty."""
    starts = [0, *range(0, len(names), per_file), len(names)]
    for number, start in enumerate(starts):
        some = names[start : start + per_file] if 0 < number < len(starts) - 1 else []
        rows = pa.table(
            {
                "unique_id": pa.array(
                    some, pa.string() if isinstance(names[0], str) else pa.int64()
                ),
                "y": pa.array(range(len(some)), pa.float64()),
            }
        )
        if text:
            csv.write_csv(rows, folder / f"{number:03d}.csv")
        else:
            parquet.write_table(rows, folder / f"{number:03d}.parquet", row_group_size=group)
    return sorted(path.name for path in folder.iterdir())


def table_in(folder: object) -> Table:
    place = place_of(str(folder))
    about: Any = SimpleNamespace(channels=("y",), covariates=None)
    return open_table(place, tuple(files_of(place)), "unique_id", "ds", about)


def place_of_row(files: list[str], row: int, per_file: int) -> tuple[str, int]:
    return files[1 + row // per_file], row % per_file


@settings(max_examples=150, deadline=None)
@given(
    stretches=STRETCHES,
    distinct=st.booleans(),
    kind=st.sampled_from(["texts", "numbers", "csv"]),
    per_file=st.integers(1, 40),
    group=st.integers(1, 12),
    batch=st.integers(1, 24),
    rows=st.sampled_from([1, 6, 13, 1000]),
    last=st.sampled_from([1, 4, 20]),
    most=st.sampled_from([1, 3, 100]),
)
def test_parts_and_chunks_are_whole_series(
    stretches: list[tuple[int, int]],
    distinct: bool,
    kind: str,
    per_file: int,
    group: int,
    batch: int,
    rows: int,
    last: int,
    most: int,
) -> None:
    if distinct:
        stretches = list({name: (name, length) for name, length in stretches}.values())
    numbered = [name for name, length in stretches for _ in range(length)]
    names: list[Any] = numbered if kind == "numbers" else [f"s{number}" for number in numbered]
    series = [(name, len(list(own))) for name, own in groupby(names)]
    with TemporaryDirectory() as folder, mock.patch.object(tables, "_CELLS", batch):
        files = write(Path(folder), names, per_file, group, text=kind == "csv")
        table = table_in(folder)
        known: set[Any] = set()
        begin = 0
        for name, length in series:
            if name in known:
                file, row = place_of_row(files, begin, per_file)
                with pytest.raises(BatchError) as raised:
                    divide(table, rows, 3, 2)
                assert str(raised.value) == (
                    f"{folder}/{file}: the rows of series {name!r} are not consecutive: it "
                    f"begins again at row {row} (from 0); sort the table by unique_id and time"
                )
                return
            known.add(name)
            begin += length
        left, found = len(names), []
        parts = divide(table, rows, 3, 2)
        for number, part in enumerate(parts):
            assert part.number == number
            if part is not parts[-1]:
                # Each of two workers has at least two of the remaining parts; a quarter is small
                # enough.
                assert part.rows >= min(rows, max(rows // 4, left // 4))
            first = len(names) - left
            left -= part.rows
            for chunk in read_chunks(table, part, last, most):
                assert len(chunk.names) <= most
                for own, low, high in zip(
                    chunk.names.to_pylist(), chunk.begins, chunk.ends, strict=True
                ):
                    kept = chunk.table.column("y").to_pylist()[low:high]
                    places = [part.place(chunk.row + row) for row in range(low, high)]
                    assert [row for _, row in places] == kept
                    expected = range(first + chunk.row + low, first + chunk.row + high)
                    assert places == [place_of_row(files, row, per_file) for row in expected]
                    found.append((own, len(kept)))
        assert left == 0
        assert found == [(name, min(length, last)) for name, length in series]
        if (rows, group, per_file) == (1, 1, 1):
            assert len(parts) == len(series)


def test_last_parts_are_smaller(tmp_path: Path) -> None:
    """Two workers end at nearly the same time."""
    write(tmp_path, [f"s{at:02d}" for at in range(96)], 96, 1, text=False)
    parts = divide(table_in(tmp_path), 16, 3, 2)
    assert [part.rows for part in parts] == [16, 16, 16, 12, 9, 6, 5, 4, 4, 4, 4]


def test_row_without_a_name_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_CELLS", 2)
    write(tmp_path, [*"abcdefghijklmno", None], 8, 4, text=False)
    with pytest.raises(BatchError, match=r"002.parquet: row 7 \(from 0\): the series name"):
        divide(table_in(tmp_path), 5, 3, 2)


def test_table_in_order_of_time_is_refused_with_few_names_held(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(10)] * 100
    write(tmp_path, names, 1000, 200, text=False)
    table = table_in(tmp_path)
    runs = [plan._runs(table, piece)[1] for piece in table.pieces()]
    assert {sum(len(own) for _, own in each) for each in runs} == {0, 11}
    with pytest.raises(BatchError, match=r"series 's0' are not .* again at row 10 \(from 0\)"):
        divide(table, 100, 1, 1)


def test_long_series_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_CELLS", 20)
    write(tmp_path, ["a"] * 1000, 1000, 1000, text=False)
    table = table_in(tmp_path)
    [part] = divide(table, 1, 1, 1)
    rows, most = Table.rows, [0]

    def watched(*given: Any) -> Any:
        for found in rows(*given):
            yield found.combine_chunks()

    concat = pa.concat_tables

    def joined(some: list[pa.Table]) -> pa.Table:
        most.append(sum(map(len, some)))
        return concat(some)

    monkeypatch.setattr(Table, "rows", watched)
    monkeypatch.setattr(pa, "concat_tables", joined)
    [chunk] = read_chunks(table, part, 4, 100)
    assert chunk.table.column("y").to_pylist()[-4:] == [996, 997, 998, 999]
    assert 0 < max(most) <= 14
