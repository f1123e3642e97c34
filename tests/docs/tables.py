"""Tables of Markdown pages."""

from __future__ import annotations

from pathlib import Path


def rows_below(page: Path, head: str) -> list[list[str]]:
    """The rows of the one table whose head begins like this, as their cells."""
    lines = page.read_text().splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith(head))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows
