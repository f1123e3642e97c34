"""Parts of all views: navigation, colours, keys, accessibility; and the report."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from foretell.report.page import render
from tests.page.browser import Look, Watch, faults
from tests.page.conftest import KEY
from tests.page.person import charts
from tests.support.process import Server
from tests.support.reported import full_bundle

pytestmark = pytest.mark.browser
VIEWS = ("Forecast", "Why", "Compare", "Use it", "Operate")


@pytest.mark.parametrize("look", [Look(1280), Look(390)])
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


def test_colours_follow_the_system_until_the_user_chooses(page: Page, server: Server) -> None:
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


def test_key_dialog_opens_once_and_the_tab_keeps_the_key(
    page: Page, watch: Watch, guarded: Server
) -> None:
    watch.allow(401)
    page.goto(guarded.url)
    dialog = page.get_by_role("dialog", name="API key")
    dialog.get_by_label("Key").fill("another")
    dialog.get_by_role("button", name="Use key").click()
    expect(dialog.get_by_role("alert")).to_contain_text("refused")
    assert not faults(page)
    dialog.get_by_label("Key").fill(KEY)
    page.keyboard.press("Enter")
    expect(charts(page).first).to_be_visible()
    page.reload()
    expect(charts(page).first).to_be_visible()
    expect(dialog).to_be_hidden()
    assert KEY not in page.evaluate("JSON.stringify({...localStorage}) + document.cookie")
    page.get_by_role("button", name="Key is set").click()
    dialog.get_by_role("button", name="Forget key").click()
    assert KEY not in page.evaluate("JSON.stringify({...sessionStorage})")
    page.get_by_role("button", name="Key", exact=True).click()
    expect(dialog.get_by_label("Key")).to_have_value("")
    page.reload()
    expect(dialog).to_be_visible()


def test_api_reference_loads_nothing_from_other_hosts(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/docs")
    expect(page.get_by_text("/v1/timeseries/forecast").first).to_be_visible()


def test_report_is_accessible_and_fits_a_phone(page: Page, tmp_path: Path) -> None:
    page.set_content(render(full_bundle(tmp_path)))
    for width, scheme in ((390, "light"), (1280, "dark")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        assert not faults(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
