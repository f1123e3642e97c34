"""Rows that begin with `#` are rows: lisad/phaser#11, stevehansen/csv#65 (ids such as `#1`)."""

from pathlib import Path

import pytest

from foretell.data.reading import Reading, read

DAYS = [f"2024-01-{day:02d}" for day in range(1, 31)]
WIDE = "date,a,b\n" + "".join(f"{day},{i},{i / 4}\n" for i, day in enumerate(DAYS))


def written(folder: Path, content: str) -> Path:
    path = folder / "data.csv"
    path.write_text(content)
    return path


def long(*names: str, header: str = "unique_id,ds,y") -> str:
    return header + "\n" + "".join(f"{name},{day},1.5\n" for name in names for day in DAYS)


@pytest.mark.parametrize(
    "names",
    [("A", "#B", "#1001"), ("#general", "#ff0000"), ('"#1, two"', '"x"'), ('"line\n#2"', "#1")],
)
def test_ids_that_begin_with_a_hash_are_series(tmp_path: Path, names: tuple[str, ...]) -> None:
    panel = read(written(tmp_path, long(*names)))
    assert list(panel.series) == [name.strip('"') for name in names]
    assert set(panel.rows.values()) == {30}
    assert panel.notes == ()


@pytest.mark.parametrize(("header", "name"), [("#,date,y", "#"), ("# shop,date,y", "shop")])
def test_a_first_column_whose_name_begins_with_a_hash(
    tmp_path: Path, header: str, name: str
) -> None:
    path = written(tmp_path, long("A", "#B", header=header))
    panel = read(path, Reading(id_column=(name,)))
    assert (list(panel.series), panel.channels) == (["A", "#B"], ("y",))


@pytest.mark.parametrize(
    ("content", "count"),
    [
        ("# a station\n# of 3, by hour, and more\n" + WIDE, 2),
        ("# with, three, cells\n" * 30 + WIDE, 30),
        (WIDE.replace("2024-01-09", "# moved, here\n2024-01-09"), 1),
        (WIDE.replace("2024-01-09", "# one, two, three, four\n2024-01-09") + "# the end\n", 2),
    ],
)
def test_comments_are_passed_over_and_counted(tmp_path: Path, content: str, count: int) -> None:
    panel = read(written(tmp_path, content))
    assert panel.tables[0].values.tolist() == [[i, i / 4] for i in range(30)]
    (note,) = panel.notes
    assert note.startswith("a line" if count == 1 else f"{count} lines")
    assert "passed over" in note


def test_a_spreadsheets_error_in_the_first_column_is_told(tmp_path: Path) -> None:
    rows = [f"{'#DIV/0!' if i == 4 else i},{day}" for i, day in enumerate(DAYS)]
    with pytest.raises(ValueError, match="line 6, column 'a': '#DIV/0!' is no finite number"):
        read(written(tmp_path, "a,date\n" + "\n".join(rows)))


def test_lines_are_still_counted_below_a_comment(tmp_path: Path) -> None:
    content = WIDE.replace("2024-01-09", "# here\n2024-01-09").replace(
        "2024-01-12,11", "2024-01-12,x"
    )
    with pytest.raises(ValueError, match="line 14, column 'a': 'x'"):
        read(written(tmp_path, content))


@pytest.mark.parametrize(
    "lines",
    [
        ["# written by hand, on a Monday, in a hurry", "# date,a,b"],
        ["# date,a,b", "# UTC,MW,m/s"],
        ["# date,a,b", "# of a station, with gaps, and noise", "# of two sensors"],
        ["# day,a,b", "# -,MW,MW"],
    ],
)
def test_the_names_are_in_the_line_that_fits_the_columns(tmp_path: Path, lines: list[str]) -> None:
    content = "\n".join([*lines, WIDE.partition("\n")[2]])
    panel = read(written(tmp_path, content))
    assert panel.source is not None
    assert panel.channels == ("a", "b")
    assert panel.tables[0].values.tolist() == [[i, i / 4] for i in range(30)]
    assert panel.source.reading.time_column in {("date",), ("day",)}
    line = next(i for i, each in enumerate(lines, 1) if each.endswith(",a,b"))
    assert f"may be the columns' names, line {line} is" in panel.notes[0]


def test_a_comment_among_the_rows_leaves_units_what_they_are(tmp_path: Path) -> None:
    content = WIDE.replace("\n", "\nUTC,MW,m/s\n", 1)
    panel = read(written(tmp_path, content.replace("2024-01-04", "# moved\n2024-01-04")))
    assert (panel.channels, len(panel)) == (("a", "b"), 30)
    with pytest.raises(ValueError, match="line 6, column 'date': '# moved'") as told:
        read(written(tmp_path, content.replace("2024-01-04", "# moved,far,away\n2024-01-04")))
    assert "MW" not in str(told.value)


@pytest.mark.parametrize("name", ["#1", "B"])
def test_short_rows_are_missing_values_of_any_series(tmp_path: Path, name: str) -> None:
    content = long("A", name).replace(f"{name},2024-01-05,1.5", f"{name},2024-01-05")
    with pytest.raises(ValueError, match="line 36, column 'y': no value"):
        read(written(tmp_path, content))
    content = content.replace(f"{name},2024-01-05", f"{name},2024-01-05,1,2")
    with pytest.raises(ValueError, match="line 36: 4 cells, and there are 3 columns"):
        read(written(tmp_path, content))
