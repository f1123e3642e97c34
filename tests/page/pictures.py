"""Pictures for the docs, of what the tests see."""

from __future__ import annotations

import io
import os
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

DOCS = Path(__file__).parents[2] / "docs"
# A repository whose models are pictured; without one nothing is.
REPOSITORY = os.environ.get("PAGE_PICTURES_OF")
NAMES = ("forecast", "forecast-phone", "own", "why", "compare")


def picture(page: Page, name: str) -> None:
    """Write what is in sight to docs/page-NAME.png, if it is one of those and wanted."""
    size = page.viewport_size
    assert size is not None
    if size["width"] < 600:
        name += "-phone"
    if REPOSITORY is None or name not in NAMES:
        return
    with Image.open(io.BytesIO(page.screenshot())) as seen:
        few = seen.convert("RGB").quantize(128, dither=Image.Dither.NONE)
        few.save(DOCS / f"page-{name}.png", optimize=True)
