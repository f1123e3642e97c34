"""The fenced blocks of Markdown pages, those of them that are programs, and tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.process import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?"
    r"(?P<indent> *)```(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: The page of the block.
        line: Number of its first line of text, from 1.
        language: Language of its fence.
        text: Its content.
        reason: Why it is not run, from the comment `<!-- not run: … -->` right above it.
        answer: The block of JSON directly after this one.
    """

    page: Path
    line: int
    language: str
    text: str
    reason: str | None
    answer: Any

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}\n{self.text}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        following = _BLOCK.match(text, re.compile(r"\s*").match(text, found.end()).end())
        is_answer = following is not None and following["language"] == "json"
        yield Block(
            page,
            text.count("\n", 0, found.start("text")) + 1,
            found["language"],
            found["text"],
            found["reason"],
            json.loads(following["text"]) if is_answer else None,
        )


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
