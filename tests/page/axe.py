"""What axe-core finds wrong with a page."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page


def faults(page: Page) -> list[str]:
    """Of a page as it is: each rule that is broken, where, and what would mend it."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:300]} {node['failureSummary']}"
        for one in found
        for node in one["nodes"]
    ]
