from __future__ import annotations

import pyarrow as pa
import pytest

from foretell.batch.rows import Rows


def numbered(*stretches: tuple[int, int]) -> Rows:
    """Rows from one to before another, which hold their numbers."""
    return Rows.joined([Rows.of(pa.table({"row": range(*each)}), each[0]) for each in stretches])


def numbers(rows: Rows) -> list[int]:
    return [rows.number(at) for at in range(len(rows))]


def test_joined_rows_know_which_they_were() -> None:
    rows = numbered((5, 8), (20, 21), (40, 44))
    assert numbers(rows) == [5, 6, 7, 20, 40, 41, 42, 43] == rows.table["row"].to_pylist()
    assert rows.table["row"].num_chunks == 1
    again = Rows.joined([rows, numbered((1, 3)), rows.part(2, 5)])
    assert numbers(again) == again.table["row"].to_pylist()


@pytest.mark.parametrize("begin", range(8))
@pytest.mark.parametrize("length", [1, 2, 3, 5, 8])
def test_a_part_has_its_stretches_alone(begin: int, length: int) -> None:
    rows = numbered((5, 8), (20, 21), (40, 44))
    part = rows.part(begin, min(begin + length, 8))
    assert numbers(part) == numbers(rows)[begin : begin + length] == part.table["row"].to_pylist()
    assert part.begins[0] == 0
    assert part.begins[-1] < len(part)
