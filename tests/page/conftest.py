"""A browser, servers and pages.

The browser is open during this package's tests only: its driver runs an event loop in their thread,
in which tests of other packages start event loops of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.page.browser import CHROMIUM, Look, Module, Watch, chromium, opened
from tests.page.models import write_models
from tests.page.person import REPOSITORY
from tests.support.process import Server

KEY = "a-key-of-the-test"
ADMIN_KEY = "an-admin-key-of-the-test"
PREFIX = "/somewhere/else"


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium here (Debian: chromium)")
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without keys, with the models of `models.py` or those for the pictures."""
    folder = tmp_path_factory.mktemp("server")
    models = Path(REPOSITORY) if REPOSITORY else write_models(folder / "repository")
    with Server(models, folder / "log", threads=1) as server:
        yield server


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with `KEY` and `ADMIN_KEY`, which may load and unload models.

    `PREFIX` is its root path.
    """
    folder = tmp_path_factory.mktemp("guarded")
    with Server(
        write_models(folder / "repository"),
        folder / "log",
        threads=1,
        api_keys=KEY,
        admin_keys=ADMIN_KEY,
        root_path=PREFIX,
    ) as server:
        yield server


@pytest.fixture
def look() -> Look:
    """Size and colours of `page`; tests override it by parametrisation."""
    return Look()


@pytest.fixture
def _opened(browser: Browser, look: Look) -> Iterator[tuple[Page, Watch]]:
    with opened(browser, look, permissions=["clipboard-read", "clipboard-write"]) as (page, watch):
        yield page, watch
    assert not watch.problems


@pytest.fixture
def page(_opened: tuple[Page, Watch]) -> Page:
    """An empty page; the test fails if `Watch` records a fault."""
    return _opened[0]


@pytest.fixture
def watch(_opened: tuple[Page, Watch]) -> Watch:
    """The faults of `page`."""
    return _opened[1]


@pytest.fixture(scope="package")
def _root(browser: Browser, server: Server) -> Iterator[tuple[Page, Watch]]:
    with opened(browser, Look()) as (page, watch):
        page.goto(server.url)
        yield page, watch


@pytest.fixture
def module(_root: tuple[Page, Watch]) -> Iterator[Callable[[str], Module]]:
    """Returns a module of the page by its file's name, such as `csv.js`."""
    page, watch = _root
    watch.problems.clear()
    yield lambda name: Module(page, name)
    assert not watch.problems
