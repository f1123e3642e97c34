"""Measure the server's page in a browser; `make bench-page` runs it on the bundles of `make demo`.

A visit begins with an empty cache, in a context of its own of one browser.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from playwright.sync_api import Browser, Page

from bench.page import machine, table, write_part
from tests.page.browser import Look, chromium, opened
from tests.support.process import Server

_VISITS = 9
_DRAWINGS = 20
_ROWS = 1_000
_TEXT = """\
## The page

`make bench-page` opens the page of a server with the demo's models {visits} times with an empty
cache, in Debian's chromium {version}, and draws {drawings} forecasts of {channels} channels and
{rows} rows. It wrote this part.

{machine}

{table}
The page is {files} files, {size} kB as they are sent, compressed and with their headers. The
first two times begin with the navigation; the last begins when the answer has been read, and ends
with the frame that shows it.
"""


class Visit(NamedTuple):
    """What the browser says of one: seconds, and bytes as they came over the wire."""

    paint: float
    drawn: float
    files: int
    size: int


def visit(browser: Browser, url: str) -> Visit:
    """Open the page, and wait until the example's forecast is drawn."""
    with opened(browser, Look()) as (page, _):
        page.goto(url)
        _drawn(page)
        found = page.evaluate(
            """() => {
                const loaded = performance.getEntriesByType('navigation')
                    .concat(performance.getEntriesByType('resource')
                        .filter((one) => one.initiatorType !== 'fetch'));
                const [drawn] = performance.getEntriesByName('drawn');
                return [
                    performance.getEntriesByName('first-contentful-paint')[0].startTime / 1e3,
                    (drawn.startTime + drawn.duration) / 1e3,
                    loaded.length,
                    loaded.reduce((sum, one) => sum + one.transferSize, 0),
                ];
            }"""
        )
        return Visit(*found)


def drawings(browser: Browser, url: str, file: Path) -> list[float]:
    """Seconds from each answer to its frame, of forecasts of a file."""
    with opened(browser, Look()) as (page, _):
        page.goto(url)
        _drawn(page)
        page.locator("input[type=file]").set_input_files(file)
        return [_forecast(page) for _ in range(_DRAWINGS)]


def _forecast(page: Page) -> float:
    page.evaluate("performance.clearMeasures('drawn')")
    page.get_by_role("button", name="Forecast", exact=True).click()
    return _drawn(page)


def _drawn(page: Page) -> float:
    """Wait for it; what waits by asking again and again would need the policy to allow `eval`."""
    seconds: float = page.evaluate(
        """() => new Promise((resolve) => new PerformanceObserver((list, observer) => {
            const [drawn] = list.getEntriesByName('drawn');
            if (!drawn) return;
            observer.disconnect();
            resolve(drawn.duration / 1e3);
        }).observe({ type: 'measure', buffered: true }))"""
    )
    return seconds


def report(version: str, channels: int, visits: list[Visit], drawn: list[float]) -> str:
    """The part of the page."""

    def row(name: str, seconds: list[float]) -> tuple[str, str, str]:
        return (name, f"{median(seconds) * 1e3:.0f}", f"{max(seconds) * 1e3:.0f}")

    times = table(
        ("milliseconds", "median", "longest"),
        (
            row("first paint", [one.paint for one in visits]),
            row("example's forecast drawn", [one.drawn for one in visits]),
            row(f"drawing a forecast of {_ROWS:,} rows", drawn),
        ),
    )
    return _TEXT.format(
        version=version,
        visits=_VISITS,
        drawings=_DRAWINGS,
        channels=channels,
        rows=f"{_ROWS:,}",
        machine=machine("playwright"),
        table=times,
        files=visits[0].files,
        size=f"{visits[0].size / 1e3:.0f}",
    )


def main() -> None:
    """Measure, and write the part."""
    parser = argparse.ArgumentParser(prog="python -m bench.browser", description=__doc__)
    parser.add_argument("demo", nargs="?", type=Path, default=Path(".demo"))
    given = parser.parse_args()
    with TemporaryDirectory() as temporary, chromium() as browser:
        folder = Path(temporary)
        with (given.demo / "greensboro.csv").open(newline="") as whole:
            rows = list(csv.reader(whole))[: 1 + _ROWS]
        with (folder / "rows.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        with Server(given.demo / "repository", folder / "log") as server:
            visits = [visit(browser, server.url) for _ in range(_VISITS)]
            drawn = drawings(browser, server.url, folder / "rows.csv")
        version = browser.version
    write_part("browser", report(version, len(rows[0]) - 1, visits, drawn))


if __name__ == "__main__":
    main()
