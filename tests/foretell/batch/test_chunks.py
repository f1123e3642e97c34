from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from foretell.batch.chunks import read_chunks
from foretell.batch.rows import Rows

LENGTHS = (3, 1, 9, 2, 5, 1, 7)
# Which of all rows the first is.
FIRST = 100


def rows() -> list[tuple[str, int]]:
    return [(f"s{name}", at) for name, length in enumerate(LENGTHS) for at in range(length)]


def tables(size: int, *, dictionary: bool) -> Iterator[Rows]:
    every = rows()
    for start in range(0, len(every), size):
        ids, numbers = zip(*every[start : start + size], strict=True)
        found = pa.array(ids)
        found = found.dictionary_encode() if dictionary else found
        yield Rows.of(pa.table({"unique_id": found, "row": pa.array(numbers)}), FIRST + start)


@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
@pytest.mark.parametrize("last", [1, 4, 20])
@pytest.mark.parametrize("most", [1, 6, 100])
def test_every_series_is_in_one_chunk(size: int, last: int, most: int, *, dictionary: bool) -> None:
    every, found = rows(), {}
    chunks = list(read_chunks(tables(size, dictionary=dictionary), last, rows=most))
    for chunk in chunks:
        assert chunk.table.column("unique_id").num_chunks == 1
        own: dict[str, list[int]] = {}
        for at, row in enumerate(chunk.table.to_pylist()):
            assert every[chunk.number(at) - FIRST] == (row["unique_id"], row["row"])
            own.setdefault(row["unique_id"], []).append(row["row"])
        assert not own.keys() & found.keys()
        found |= own
    assert found == {f"s{name}": list(range(length))[-last:] for name, length in enumerate(LENGTHS)}
    # Neither all at once nor one after the other, where there are more than fit.
    if (size, last, most) == (5, 20, 6):
        assert 1 < len(chunks) < len(LENGTHS)


def test_of_a_long_series_little_is_held() -> None:
    held = []

    def long() -> Iterator[Rows]:
        for start in range(0, 1000, 10):
            held.append(pa.total_allocated_bytes())
            yield Rows.of(
                pa.table({"unique_id": ["a"] * 10, "row": range(start, start + 10)}), start
            )

    [chunk] = read_chunks(long(), 4)
    assert [chunk.number(at) for at in range(4)] == [996, 997, 998, 999]
    assert held[-1] - held[10] < 2000
