"""Pictures for the docs, of what the tests see."""

from __future__ import annotations

import io
import os
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
# A repository whose models are pictured; without one nothing is.
REPOSITORY = os.environ.get("PAGE_PICTURES_OF") or None
NAMES = ("forecast", "forecast-phone", "own", "why", "compare")


def picture(page: Page, name: str, section: str = "") -> None:
    """Write what is in sight to docs/pictures/page-NAME.webp, if it is one of those and wanted.

    Args:
        page: Where.
        name: Of the picture; that of a phone ends with `-phone`.
        section: The heading of the one to begin with, instead of the top.
    """
    size = page.viewport_size
    assert size is not None
    if size["width"] < 600:
        name += "-phone"
    if REPOSITORY is None or name not in NAMES:
        return
    if section:
        page.get_by_role("heading", name=section).evaluate(
            "(heading) => heading.closest('section').scrollIntoView()"
        )
    with Image.open(io.BytesIO(page.screenshot())) as seen:
        seen.convert("RGB").save(PICTURES / f"page-{name}.webp", lossless=True, quality=100)
