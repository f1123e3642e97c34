"""Results as tables in Markdown, in the places that the documents have for them.

A place is `<!-- bench CASE: TABLE -->`, what stands there, and `<!-- end -->`. The table `machine`
is the line that says what the case ran on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from bench.harness import RESULTS, ROOT, Cell, Row

_PLACE = re.compile(r"(<!-- bench ([\w-]+): (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def shown(value: Cell) -> str:
    """A cell: whole numbers in full, others with three digits."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return f"{value:.1e}" if "e" in text else text


def table(rows: Sequence[Row]) -> str:
    """A table; its columns are those of all rows, in the order in which they come first."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[shown(row.get(name, "")) for name in columns] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def fill(text: str, results: Path = RESULTS) -> str:
    """A document with every place filled."""

    def filled(place: re.Match[str]) -> str:
        begin, case, name, _, end = place.groups()
        content = json.loads((results / f"{case}.json").read_text())
        if name == "machine":
            return f"{begin}{content['machine']}\n{end}"
        return f"{begin}\n{table(content['tables'][name])}\n{end}"

    return _PLACE.sub(filled, text)


def documents() -> list[Path]:
    """Those that have places."""
    return [
        page for page in sorted((ROOT / "docs").rglob("*.md")) if _PLACE.search(page.read_text())
    ]


def write() -> None:
    """Fill the places of all documents."""
    for page in documents():
        page.write_text(fill(page.read_text()))
