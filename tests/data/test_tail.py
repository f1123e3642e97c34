"""Of a file only the end is read: what is wrong before it is told and does not matter."""

from pathlib import Path

import numpy as np
import pytest

from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read

HOURS = [f"2024-01-01T{hour:02d}:00" for hour in range(10)]


def rows(**cells: str) -> list[str]:
    """Ten hours; cells by the number of their row, such as `_3`."""
    return [f"{time},{cells.get(f'_{i}', i)},{10 * i}" for i, time in enumerate(HOURS)]


def read_last(folder: Path, lines: list[str], last: int = 4, header: str = "ds,a,b") -> Panel:
    path = folder / "data.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return read(path, Reading(channels=("b", "a"), frequency="h"), last=last)


@pytest.mark.parametrize("order", [1, -1], ids=["oldest first", "newest first"])
def test_a_wrong_cell_before_the_end_is_a_note(tmp_path: Path, order: int) -> None:
    panel = read_last(tmp_path, rows(_3="x")[::order])
    assert panel.tables[0].values.tolist() == [[60, 6], [70, 7], [80, 8], [90, 9]]
    line = 5 if order == 1 else 8
    assert f"before the rows that are read: line {line}, column 'a': 'x' is no" in panel.notes[0]


@pytest.mark.parametrize("row", [6, 9])
def test_a_wrong_cell_at_the_end_is_an_error(tmp_path: Path, row: int) -> None:
    with pytest.raises(DataError, match=rf"line {row + 2}, column 'a': 'x'"):
        read_last(tmp_path, rows(**{f"_{row}": "x"}))


def test_times_count_and_not_rows(tmp_path: Path) -> None:
    lines = rows(_5="x")
    panel = read_last(tmp_path, [*lines, lines[-1]])
    assert len(panel) == 4
    assert any("repeats another" in note for note in panel.notes)


def test_a_hole_matters_at_the_end_alone(tmp_path: Path) -> None:
    lines = rows()
    assert len(read_last(tmp_path, lines[:4] + lines[6:])) == 4
    with pytest.raises(DataError, match="rows are missing before it"):
        read_last(tmp_path, lines[:7] + lines[8:])


@pytest.mark.parametrize(("row", "fails"), [(0, False), (3, False), (7, True), (9, True)])
def test_a_wrong_time_is_as_late_as_the_row_before_it(
    tmp_path: Path, row: int, fails: bool
) -> None:
    lines = rows()
    lines[row] = f"soon,{row},{row}"
    if fails:
        with pytest.raises(DataError, match=f"line {row + 2}, column 'ds': 'soon'"):
            read_last(tmp_path, lines, last=3)
    else:
        panel = read_last(tmp_path, lines, last=3)
        assert len(panel) == 3
        assert f"line {row + 2}, column 'ds': 'soon'" in panel.notes[0]


def test_each_series_has_an_end_of_its_own(tmp_path: Path) -> None:
    lines = [f"east,{row}" for row in rows(_1="x")] + [f"west,{row}" for row in rows()[:6]]
    panel = read_last(tmp_path, lines, header="unique_id,ds,a,b")
    ends = {table.series: table.values[:, 1].tolist() for table in panel.tables}
    assert ends == {"east": [6, 7, 8, 9], "west": [2, 3, 4, 5]}
    assert "line 3, column 'a': 'x'" in panel.notes[0]


def test_offsets_that_change(tmp_path: Path) -> None:
    times = ["2024-10-27T01:00+02:00", "2024-10-27T02:00+02:00", "2024-10-27T02:00+01:00"]
    panel = read_last(tmp_path, [f"{time},{i},{i}" for i, time in enumerate(times)], last=2)
    assert panel.tables[0].values[:, 0].tolist() == [1, 2]
    assert np.asarray(panel.tables[0].utc_offset).astype("m8[h]").astype(int).tolist() == [2, 1]
