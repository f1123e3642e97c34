"""Markdown with text of users: escapes, tables, and YAML front matter."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence

import yaml

# Markdown reads a backslash before a mark as the mark itself. Commas, dots and hyphens mean nothing
# within a line.
_ESCAPES = str.maketrans({mark: f"\\{mark}" for mark in string.punctuation if mark not in ",.-"})


def text(given: str) -> str:
    """A text that Markdown shows as it is, on one line."""
    shown = "".join(character if character.isprintable() else " " for character in given)
    # GitHub makes a link of `www.`, too.
    return shown.strip().translate(_ESCAPES).replace("www.", "www\\.")


def listed(names: Sequence[str], most: int = 12) -> str:
    """Names, escaped and separated by commas; those after the first `most` are counted."""
    shown = ", ".join(map(text, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are escaped already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def front_matter(fields: Mapping[str, object]) -> str:
    """A block of YAML that begins a page."""
    written: str = yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=True)
    return f"---\n{written}---"
