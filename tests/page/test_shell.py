"""What all views have: navigation, colours, keys, and readers of screens."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.page.browser import Look
from tests.service.process import Server

VIEWS = ("Forecast", "Why", "Compare", "Use it", "Operate")
both_widths = pytest.mark.parametrize("look", [Look(1280), Look(390)])


def faults(page: Page) -> list[str]:
    """What axe-core finds wrong with a page as it is."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:300]} {node['failureSummary']}"
        for one in found
        for node in one["nodes"]
    ]


@both_widths
def test_every_view_is_accessible(page: Page, server: Server) -> None:
    page.goto(server.url)
    for view in (*VIEWS[1:], VIEWS[0]):
        page.get_by_role("navigation", name="Views").get_by_role("link", name=view).click()
        expect(page.get_by_role("heading", level=1, name=view)).to_be_focused()
        page.wait_for_load_state("networkidle")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert not faults(page), (view, scheme)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= page.viewport_size["width"], f"{view} is wider than the screen"
