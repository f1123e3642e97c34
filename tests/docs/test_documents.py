"""Programs of the pages run against a real server; their links have targets."""

from __future__ import annotations

import json
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, blocks
from tests.docs.reader import Reader
from tests.support.process import ROOT, Server
from tests.test_architecture import imported_by, tops

TOOLS = ("bash", "curl", "gzip", "jq")
LINK = re.compile(r"\]\((?!https?:)([^)\s#]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
PROGRAMS = {"sh", "bash", "python"}
# Other languages are a typo, or a program that no test runs.
TEXTS = {"json", "text"}
# Results that the Python of a page must have, if running is not enough.
FOUND = {
    "docs/guides/open-inference.md": """
assert forecast.shape == (2, 24, 7)
assert attention.shape == (2, 7, 2, 20, 20)
assert answer.as_numpy("forecast").shape == forecast.shape
assert per_request["compute_infer"] > 0
""",
}


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_has_a_language(page: Path) -> None:
    fences = [line for line in page.read_text().splitlines() if line.lstrip().startswith("```")]
    found = list(blocks(page))
    assert 2 * len(found) == len(fences)
    for block in found:
        # Output of Python programs is not compared.
        assert block.language != "python" or block.answer is None, block
        if block.language == "json":
            json.loads(block.text)
        assert block.language in PROGRAMS | TEXTS or block.reason, (
            f"neither run nor marked with <!-- not run: why -->:\n{block}"
        )


@pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"needs {', '.join(TOOLS)}")
# test_start.py runs the others.
@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "start"], ids=named)
def test_every_program_runs(page: Path, folder: Path, server: Server) -> None:
    run = [block for block in blocks(page) if not block.reason]
    Reader(folder, server.url).run(run, FOUND.get(named(page), ""))


@pytest.mark.parametrize("name", ["http", "python", "open-inference", "nixtla", "predict"])
def test_client_page_begins_with_installation(name: str) -> None:
    page = ROOT / "docs" / "guides" / f"{name}.md"
    install, *others = (block for block in blocks(page) if block.language in PROGRAMS)
    words = {word.strip("'").partition("[")[0] for word in install.text.split()}
    shell = " ".join(block.text for block in others if block.language == "sh")
    python = "\n".join(block.text for block in others if block.language == "python")
    # curl alone is everywhere.
    used = {tool for tool in ("gzip", "jq") if re.search(rf"\b{tool}\b", shell)}
    known = metadata.packages_distributions()
    for module in tops(imported_by(python, str(page))) - set(sys.stdlib_module_names):
        # Modules of an editable installation are not listed.
        assert words & set(known.get(module, [module])), module
    assert words >= used
    assert "make serve" in page.read_text()


def anchors(page: Path) -> set[str]:
    """As GitHub makes them: small letters, digits and hyphens."""
    headings = HEADING.findall(page.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "bench" / "results" / "README.md"], ids=named)
def test_every_link_has_a_target(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text()):
        target = page.parent / path if path else page
        assert target.exists(), path
        if anchor:
            assert anchor in anchors(target), f"{path}#{anchor}"
