"""What all views have: navigation, colours, keys, and readers of screens."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.page.axe import faults
from tests.page.browser import Look, Watch
from tests.page.conftest import KEY
from tests.support.process import Server

VIEWS = ("Forecast", "Why", "Compare", "Use it", "Operate")
both_widths = pytest.mark.parametrize("look", [Look(1280), Look(390)])


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


def test_colours_follow_the_system_until_one_chooses(page: Page, server: Server) -> None:
    page.goto(server.url)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    assert dark != light
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(ground) == light
    page.reload()
    assert page.evaluate(ground) == light


def test_a_key_is_asked_for_once_and_kept_in_the_tab(
    page: Page, watch: Watch, guarded: Server
) -> None:
    watch.allow(401)
    page.goto(f"{guarded.url}")
    dialog = page.get_by_role("dialog", name="API key")
    dialog.get_by_label("Key").fill("another")
    dialog.get_by_role("button", name="Use it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("refused")
    dialog.get_by_label("Key").fill(KEY)
    assert not faults(page)
    dialog.get_by_role("button", name="Use it").click()
    expect(page.get_by_role("combobox", name="Model")).to_be_visible()
    expect(dialog).to_be_hidden()

    page.reload()
    expect(page.get_by_role("combobox", name="Model")).to_be_visible()
    expect(dialog).to_be_hidden()
    assert KEY not in page.evaluate("JSON.stringify({...localStorage}) + document.cookie")
    page.get_by_role("button", name=re.compile("Key")).click()
    dialog.get_by_role("button", name="Forget it").click()
    assert KEY not in page.evaluate("JSON.stringify({...sessionStorage})")


def test_the_content_can_be_skipped_to(page: Page, server: Server) -> None:
    page.goto(server.url)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


def test_the_interface_is_described_without_other_hosts(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/docs")
    expect(page.get_by_text("/v1/timeseries/forecast").first).to_be_visible()
