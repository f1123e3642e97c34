"""The report of a bundle, which is a page by itself, in a browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

from foretell.report.page import render
from tests.foretell.report.bundles import full_bundle
from tests.page.axe import faults


def test_a_report_is_accessible_and_fits_a_phone(page: Page, tmp_path: Path) -> None:
    page.set_content(render(full_bundle(tmp_path)))
    for width, scheme in ((390, "light"), (1280, "dark")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        assert not faults(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
