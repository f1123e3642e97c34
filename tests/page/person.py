"""Actions of a user on the page, a CSV to open, and screenshots."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, Request, Response, expect


def view(page: Page, name: str) -> None:
    """Go to a view by the navigation."""
    page.get_by_role("navigation", name="Views").get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", level=1, name=name)).to_be_focused()


def choose(page: Page, model: str) -> Any:
    """Choose a model and wait for its forecast; returns the answer."""

    def its(answer: Response) -> bool:
        return answer.url.endswith("/forecast") and f'"{model}@' in str(answer.request.post_data)

    with page.expect_response(its) as answered:
        page.get_by_role("combobox", name="Model").select_option(model)
    return answered.value.json()


def charts(page: Page) -> Locator:
    """The charts with a forecast."""
    return page.get_by_role("img", name="forecast")


def example(url: str, model: str) -> tuple[dict[str, Any], list[list[float]]]:
    """The series of a model's example, and the rows that followed."""
    answer = httpx.get(f"{url}/models/{model}/example").json()
    return answer["request"]["inputs"][0], answer["actual"]


def longer(series: dict[str, Any], rows: int) -> dict[str, Any]:
    """A series repeated up to at least `rows` hours."""
    values = series["series"] * -(-rows // len(series["series"]))
    start = np.datetime64(series["timestamps"][0])
    times = np.datetime_as_string(start + np.arange(len(values)) * np.timedelta64(1, "h"))
    return series | {"series": values, "timestamps": times.tolist()}


def csv_of(series: dict[str, Any]) -> list[list[str]]:
    """Lines of a CSV of the series, with column names in title case."""
    names = [name.replace("_", " ").title() for name in series["channels"]]
    rows = zip(series["timestamps"], series["series"], strict=True)
    return [["Date", *names], *([time, *map(str, values)] for time, values in rows)]


def open_csv(page: Page, lines: list[list[str]], name: str = "mine.csv") -> None:
    """Open a file of these lines."""
    text = "".join(",".join(line) + "\n" for line in lines)
    file = {"name": name, "mimeType": "text/csv", "buffer": text.encode()}
    page.get_by_label("Open a CSV").set_input_files(file)


def sent(page: Page, path: str = "/forecast") -> list[dict[str, Any]]:
    """A list that receives the requests of a page to a path from now on."""
    requests: list[dict[str, Any]] = []

    def note(request: Request) -> None:
        if request.url.endswith(path):
            requests.append(json.loads(request.post_data or ""))

    page.on("request", note)
    return requests


def slide(page: Page, name: str, value: int) -> None:
    page.get_by_role("slider", name=name).fill(str(value))


def with_parts(*parts: str) -> re.Pattern[str]:
    """A pattern of texts with these parts in this order."""
    return re.compile(".*".join(map(re.escape, parts)))


PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
# The repository of the models for pictures; without it no picture is taken.
REPOSITORY = os.environ.get("PAGE_PICTURES_OF") or None
NAMES = ("forecast", "forecast-phone", "own", "why", "compare")


def picture(page: Page, name: str, section: str = "") -> None:
    """Write a screenshot to docs/pictures/page-NAME.webp, if it is one of `NAMES`.

    With `REPOSITORY` the test ends here: what follows expects the models of the tests. Without it
    nothing is done.

    Args:
        page: The page.
        name: Name of the picture; on a phone `-phone` is appended.
        section: Heading of the section to scroll to, instead of the top.
    """
    size = page.viewport_size
    assert size is not None
    if size["width"] < 600:
        name += "-phone"
    if REPOSITORY is None:
        return
    if name not in NAMES:
        pytest.skip("no page of the documents has this picture")
    if section:
        page.get_by_role("heading", level=2, name=section).evaluate(
            "(heading) => heading.closest('section').scrollIntoView()"
        )
    with Image.open(io.BytesIO(page.screenshot())) as seen:
        seen.convert("RGB").save(PICTURES / f"page-{name}.webp", lossless=True, quality=100)
    pytest.skip("the picture is taken")
