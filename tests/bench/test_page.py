from __future__ import annotations

from pathlib import Path

from bench.page import table, write_part


def test_parts_are_written_side_by_side_and_replaced_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write_part("graphs", "## Graphs\n\nold\n", page)
    write_part("servers", "## Servers\n", page)
    write_part("graphs", "## Graphs\n\nnew, with a \\1\n", page)
    text = page.read_text()
    assert text.startswith("# Benchmarks\n")
    assert "old" not in text
    assert text.index("new, with a \\1") < text.index("## Servers")
    assert text.count("## Graphs") == 1


def test_writing_the_same_part_again_changes_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write_part("graphs", "## Graphs", page)
    once = page.read_text()
    write_part("graphs", "## Graphs", page)
    assert page.read_text() == once


def test_table() -> None:
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
