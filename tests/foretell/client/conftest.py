from __future__ import annotations

from collections.abc import Iterator

import pytest

from foretell.client import Client
from tests.support.bundles import Spec, lag_stage, softmax_stage, write_bundle
from tests.support.process import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of small models, which takes at most 32 kB a request."""
    folder = tmp_path_factory.mktemp("client")
    stages = (softmax_stage(), lag_stage())
    for spec in (
        Spec(name="load", calibrated=3, stages=stages),
        Spec(name="two", channels=("load", "wind"), stages=stages[1:]),
        Spec(name="monthly", frequency="MS", with_calendar=True),
    ):
        write_bundle(folder / "models", spec)
    with Server(
        folder / "models", folder / "log", max_body_bytes=32_768, api_keys="sesame"
    ) as server:
        yield server


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, key="sesame") as client:
        yield client
