"""Writes the site's files for language models: `python -m tests.docs.llms site`.

`llms.txt` is an index in the form of https://llmstxt.org, `llms-full.txt` has all pages, and each
page is there as Markdown, next to the HTML. The navigation in zensical.toml names the pages.
"""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# `make docs` runs this without foretell's libraries.
ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
DOCS = ROOT / PROJECT["docs_dir"]

_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
# Headings, tables, lists and raw HTML.
_NOT_PROSE = ("#", "|", "-", "<", "1.")


@dataclass(frozen=True)
class Page:
    """A page of the site.

    Attributes:
        section: Its groups in the navigation.
        path: Its path in docs/.
        title: Its title in the navigation, or else its heading.
    """

    section: str
    path: str
    title: str

    @property
    def text(self) -> str:
        return (DOCS / self.path).read_text()

    @property
    def summary(self) -> str:
        """The first sentence of its text, or nothing if the page is a table."""
        parts = _FENCE.sub("", _COMMENT.sub("", self.text)).split("\n\n")
        prose = [part.strip() for part in parts if not part.strip().startswith(_NOT_PROSE)]
        first = " ".join(next(filter(None, prose), "").split())
        return re.split(r"(?<=[.!?])\s|:$", _LINK.sub(r"\1", first).replace("**", ""))[0]


def pages() -> list[Page]:
    """Every page of the navigation, in its order."""
    return list(_pages(PROJECT["nav"], ""))


def _pages(entries: list[Any], section: str) -> Iterator[Page]:
    for entry in entries:
        if isinstance(entry, str):
            heading = re.search(r"^# (.+)$", (DOCS / entry).read_text(), re.MULTILINE)
            assert heading is not None, entry
            yield Page(section, entry, heading[1])
            continue
        for title, inner in entry.items():
            if isinstance(inner, str):
                yield Page(section, inner, title)
            else:
                yield from _pages(inner, f"{section}: {title}" if section else title)


def write(site: Path) -> None:
    """Write the files into the folder of a site."""
    found = pages()
    lines = [f"# {PROJECT['site_name']}", "", f"> {PROJECT['site_description']}"]
    section = ""
    for page in found:
        if page.section != section:
            section = page.section
            lines += ["", f"## {section}", ""]
        note = f": {page.summary}" if page.summary else ""
        lines.append(f"- [{page.title}]({PROJECT['site_url']}{page.path}){note}")
        target = site / page.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(DOCS / page.path, target)
    (site / "llms.txt").write_text("\n".join([*lines, ""]))
    (site / "llms-full.txt").write_text("\n".join(page.text for page in found))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
