from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.site import prepare
from tests.support.process import Server


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the examples run."""
    folder = tmp_path_factory.mktemp("reader")
    prepare(folder)
    return folder


@pytest.fixture(scope="session")
def server(folder: Path) -> Iterator[Server]:
    """The server of the pages' programs."""
    ledger = f"sqlite:///{folder / 'ledger.db'}"
    settings = {"admin_keys": "secret", "ledger": ledger, "mcp": "true"}
    with Server(folder / "models", folder / "server.log", **settings) as server:
        yield server
