"""Regular series: frequencies, holes, and files of which only the end is read."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read, read_frame
from tests.data.panels import DAYS, read_text, text, write

FREQUENCIES = (
    "10ms 50us s 15min 6h D 2D B W-MON W-SUN 2W-WED MS ME 2MS SMS-15 SME-15 BMS BME WOM-3FRI "
    "LWOM-FRI 2BME QS QE QS-FEB YS YE YE-JUN"
)


@pytest.mark.parametrize("frequency", FREQUENCIES.split())
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


@pytest.mark.parametrize(
    ("rows", "frequency", "notes"),
    [
        (
            [f"{day}T00:00,{i}\n{day}T12:00," for i, day in enumerate(DAYS)],
            "D",
            ("10 rows between two steps have no value and are left out",),
        ),
        ([f"2024-03-01T{i + 1 + i % 2:02d}:00+0{1 + i % 2}:00,{i}" for i in range(10)], "h", ()),
    ],
    ids=["rows with values", "moments"],
)
def test_spacing_is_inferred(
    tmp_path: Path, rows: list[str], frequency: str, notes: tuple[str, ...]
) -> None:
    panel = read_text(tmp_path, text(*rows, header="date,a"))
    assert (len(panel), str(panel.frequency), panel.notes) == (10, frequency, notes)


def test_days_of_the_month_that_begin_in_a_short_one(tmp_path: Path) -> None:
    days = ["02-28", *(f"{month:02d}-30" for month in range(3, 11) if month != 9)]
    content = text(*(f"2023-{day},{i}" for i, day in enumerate(days)), header="date,a")
    (table,) = read_text(tmp_path, content, missing="interpolate").tables
    assert len(table) == 9
    assert table.timestamps[7] == np.datetime64("2023-09-30")


def with_holes(*holes: range) -> str:
    start = np.datetime64("2020-01-01", "D")
    missing = {day for hole in holes for day in hole}
    rows = [f"{start + day},{day},{day * 2}" for day in range(40) if day not in missing]
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
    distant = content + "9020-01-01,1,1\n9020-01-02,1,1\n"
    assert len(read_text(tmp_path, distant, missing="ffill", max_gap=5).tables) == 2


def test_a_long_hole_of_one_channel_splits_too(tmp_path: Path) -> None:
    rows = [
        f"{np.datetime64('2020-01-01') + day},{day},{'' if 10 <= day < 16 else day}"
        for day in range(30)
    ]
    panel = read_text(tmp_path, text(*rows), missing="interpolate", max_gap=5)
    assert [len(table) for table in panel.tables] == [10, 14]
    assert panel.notes[-1] == ("6 rows in such holes, or before the first value, are left out")
    assert len(read_text(tmp_path, text(*rows), missing="interpolate").tables) == 1


def test_ffill_leaves_rows_before_the_first_value_out(tmp_path: Path) -> None:
    rows = [f"{day},{i},{'' if i < 2 else i}" for i, day in enumerate(DAYS)]
    (table,) = read_text(tmp_path, text(*rows), missing="ffill").tables
    assert table.values[:, 1].tolist() == list(range(2, 10))
    (table,) = read_text(tmp_path, text(*rows), missing="interpolate").tables
    assert table.values[:, 1].tolist() == [2, 2, *range(2, 10)]


def test_ffill_carries_values_from_before_the_first_whole_row(tmp_path: Path) -> None:
    given = ["1,", "", ",20", "", "5,", "6,30", "7,40"]
    rows = [f"{day},{values}" for day, values in zip(DAYS, given, strict=False) if values]
    panel = read_text(tmp_path, text(*rows, header="date,a,b"), missing="ffill", frequency="D")
    (table,) = panel.tables
    assert table.timestamps[0] == np.datetime64("2020-01-03")
    assert table.values.tolist() == [[1, 20], [1, 20], [5, 20], [6, 30], [7, 40]]
    assert any(note.startswith("filled in: 4 of 10 values (40.0%)") for note in panel.notes)


def test_channel_with_many_missing_values_is_named(tmp_path: Path) -> None:
    rows = [f"{day},{i},{'' if i % 3 else i}" for i, day in enumerate(DAYS)]
    panel = read_text(tmp_path, text(*rows), missing="interpolate")
    assert panel.notes[0] == "b misses 60% of its values: --channels leaves it out"


HOURS = [f"2024-01-01T{hour:02d}:00" for hour in range(10)]


def rows(**cells: str) -> list[str]:
    """Ten hours; cells by the number of their row, such as `_3`."""
    return [f"{time},{cells.get(f'_{i}', i)},{10 * i}" for i, time in enumerate(HOURS)]


def read_last(folder: Path, lines: list[str], last: int = 4, header: str = "ds,a,b") -> Panel:
    path = write(folder, text(*lines, header=header))
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


def test_repeated_times_count_once(tmp_path: Path) -> None:
    lines = rows(_5="x")
    panel = read_last(tmp_path, [*lines, lines[-1]])
    assert len(panel) == 4
    assert any("repeats another" in note for note in panel.notes)


def test_only_holes_in_the_last_rows_matter(tmp_path: Path) -> None:
    lines = rows()
    assert len(read_last(tmp_path, lines[:4] + lines[6:])) == 4
    with pytest.raises(DataError, match="rows are missing before it"):
        read_last(tmp_path, lines[:7] + lines[8:])


@pytest.mark.parametrize(("row", "fails"), [(0, False), (3, False), (7, True), (9, True)])
def test_wrong_time_has_the_place_of_the_row_before(tmp_path: Path, row: int, fails: bool) -> None:
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
