"""The site's files for language models."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import llms

_ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)\s]+)\)(: .+)?$")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    llms.write(tmp_path)
    return tmp_path


def test_index_has_the_form_of_llmstxt(site: Path) -> None:
    heading, empty, summary, *lines = (site / "llms.txt").read_text().splitlines()
    assert (heading, empty) == ("# foretell", "")
    assert summary.startswith("> From a trained forecasting transformer")
    assert all(not line or line.startswith("## ") or _ENTRY.match(line) for line in lines)
    assert "## Guides: Use it" in lines


def test_every_link_leads_to_a_page_and_every_page_is_linked(site: Path) -> None:
    lines = (site / "llms.txt").read_text().splitlines()
    urls = [found[2] for found in map(_ENTRY.match, lines) if found]
    paths = [url.removeprefix(llms.PROJECT["site_url"]) for url in urls]
    for path in paths:
        assert (site / path).read_text() == (llms.DOCS / path).read_text()
    known = {str(path.relative_to(llms.DOCS)) for path in llms.DOCS.rglob("*.md")}
    assert sorted(paths) == sorted(known)


def test_summaries_are_sentences(site: Path) -> None:
    found = [page for page in llms.pages() if page.summary]
    assert len(found) > len(llms.pages()) - 3
    for page in found:
        assert 15 < len(page.summary) < 250, (page.path, page.summary)
        assert not re.search(r"\]\(|```|<!--|\*\*", page.summary), (page.path, page.summary)


def test_all_pages_are_one_file(site: Path) -> None:
    whole = (site / "llms-full.txt").read_text()
    assert all(page.text in whole for page in llms.pages())
