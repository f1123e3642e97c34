"""Results as tables in Markdown, in the places that the documents have for them.

A place is `<!-- bench CASE: TABLE -->`, what stands there, and `<!-- end -->`. The table `machine`
is the line that says what the case ran on. A place may show a part of a table, or of several:
`<!-- bench server: MODEL; MODEL [server: foretell; Triton] [columns: server; failed] -->` has the
rows whose `server` is one of two, and two columns. `bench/results/README.md` has the whole tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.harness import RESULTS, ROOT, Cell, Row

_PLACE = re.compile(r"(<!-- bench ([\w-]+): (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_CHOICE = re.compile(r" \[(.+?): (.+?)\]")


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


def chosen(tables: Mapping[str, Sequence[Row]], place: str) -> list[Row]:
    """The rows and columns that a place shows.

    Raises:
        KeyError: there is no such table, or no row with a value that the place names.
    """
    names = _CHOICE.sub("", place).split("; ")
    several = len(names) > 1
    rows: list[Row] = [
        {"model": name, **row} if several else row for name in names for row in tables[name]
    ]
    for column, listed in _CHOICE.findall(place):
        wanted = listed.split("; ")
        if column == "columns":
            rows = [{name: row.get(name, "") for name in wanted} for row in rows]
        elif lacking := {*wanted} - {shown(row[column]) for row in rows}:
            raise KeyError(f"{place}: no {column} {', '.join(lacking)}")
        else:
            rows = [row for row in rows if shown(row[column]) in wanted]
    return rows


def fill(text: str, results: Path = RESULTS) -> str:
    """A document with every place filled."""

    def filled(place: re.Match[str]) -> str:
        begin, case, name, _, end = place.groups()
        content = json.loads((results / f"{case}.json").read_text())
        if name == "machine":
            return f"{begin}{content['machine']}\n{end}"
        return f"{begin}\n{table(chosen(content['tables'], name))}\n{end}"

    return _PLACE.sub(filled, text)


def documents() -> list[Path]:
    """Documents that have places."""
    pages = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(RESULTS.glob("*.md"))]
    return [page for page in pages if _PLACE.search(page.read_text())]


def write() -> None:
    """Fill the places of all documents."""
    for page in documents():
        page.write_text(fill(page.read_text()))
