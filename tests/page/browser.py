"""Debian's chromium, and the errors of its pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

CHROMIUM = shutil.which("chromium")
_PATIENCE = 15_000
_FAILED = "Failed to load resource: the server responded with a status of "


class Look(NamedTuple):
    """Size and colour scheme of a page."""

    width: int = 1280
    scheme: Literal["light", "dark"] = "light"

    @property
    def phone(self) -> bool:
        return self.width < 600


class Watch:
    """Records a page's faults: errors and warnings of its console, such as violations of its
    policy, uncaught exceptions, and requests to other hosts.

    Attributes:
        problems: Faults so far, in words.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._allowed: set[int] = set()

    def allow(self, *statuses: int) -> None:
        """Accept these statuses, which the browser logs as errors."""
        self._allowed |= set(statuses)

    def follow(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        status = message.text.removeprefix(_FAILED)[:3]
        if status == message.text[:3] or int(status) not in self._allowed:
            self.problems.append(f"{message.type}: {message.text} ({message.location['url']})")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.hostname != "127.0.0.1":
            self.problems.append(f"request to another host: {request.url}")


class Module:
    """A module of the page, for tests of its exports.

    Args:
        page: A page at the server's root, whose import map applies.
        name: File name, such as `views/why.js`.
    """

    def __init__(self, page: Page, name: str) -> None:
        self._page = page
        self._name = name

    def call(self, function: str, *arguments: Any) -> Any:
        """Result of an exported function, as JSON."""
        return self.evaluate(f"(module, given) => module.{function}(...given)", arguments)

    def evaluate(self, code: str, argument: Any = None) -> Any:
        """Result of a JavaScript function of the module and an argument."""
        load = "await import(new URL(name, document.baseURI))"
        return self._page.evaluate(
            f"async ([name, given]) => ({code})({load}, given)", [f"page/{self._name}", argument]
        )


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser, which reaches no host but this one."""
    expect.set_options(timeout=_PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                "--no-sandbox",
                "--disable-dev-shm-usage",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            ],
        )
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, look: Look, **settings: Any) -> Iterator[tuple[Page, Watch]]:
    """An empty page in a context of its own.

    Args:
        browser: The browser.
        look: Size and colours.
        settings: More settings of the context.
    """
    context = browser.new_context(
        viewport={"width": look.width, "height": 844 if look.phone else 900},
        color_scheme=look.scheme,
        # Without it axe-core may measure colours during a transition.
        reduced_motion="reduce",
        is_mobile=look.phone,
        has_touch=look.phone,
        **settings,
    )
    context.set_default_timeout(_PATIENCE)
    page, watch = context.new_page(), Watch()
    watch.follow(page)
    yield page, watch
    context.close()


def faults(page: Page) -> list[str]:
    """Broken rules of accessibility on a page, each with its place and remedy."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:300]} {node['failureSummary']}"
        for one in found
        for node in one["nodes"]
    ]
