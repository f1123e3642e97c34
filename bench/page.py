"""docs/benchmarks.md: one page, of which each command writes its own part."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def write_part(name: str, text: str, page: Path = PAGE) -> None:
    """Put a part in the place of its last version, or at the end.

    Args:
        name: Identifies the part; stands in the page as a comment around it.
        text: Markdown.
        page: The file.
    """
    begin, end = (f"<!-- {word} {name} -->\n" for word in ("begin", "end"))
    part = f"{begin}{text.rstrip()}\n{end}"
    old = page.read_text() if page.exists() else "# Benchmarks\n"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    found = pattern.search(old)
    if found:
        page.write_text(old[: found.start()] + part + old[found.end() :])
    else:
        page.write_text(f"{old.rstrip()}\n\n{part}")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown."""
    head = tuple(head)
    lines = [head, ("---",) * len(head), *(tuple(row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def judged(text: str, limit: float | None, *, is_reached: bool) -> str:
    """A cell of a table: what was measured and, if there is a limit, whether it is reached."""
    if limit is None:
        return text
    return f"{text} ({'reached' if is_reached else 'missed'}: {limit})"


def machine(*libraries: str) -> str:
    """What was measured on: processor, Python, and the versions of these libraries."""
    processor = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.split(":", 1)[1].strip()
            break
    versions = "".join(f", {name} {version(name)}" for name in libraries)
    python = platform.python_version()
    return f"Machine: {processor}, {os.cpu_count()} CPUs; Python {python}{versions}."
