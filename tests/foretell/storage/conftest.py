from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import httpx
import pytest
from moto.server import ThreadedMotoServer

from foretell.storage import location as places
from tests.foretell.storage.proxy import Proxy


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The address of a server of S3."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def environment(s3: str, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The variables of a user of that server, and no others."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return monkeypatch


@pytest.fixture
def bucket(s3: str, environment: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket."""
    name = f"test-{uuid4().hex}"
    httpx.put(f"{s3}/{name}").raise_for_status()
    return f"s3://{name}"


@pytest.fixture
def proxy(s3: str, environment: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """All that the client asks goes through it, and is asked twice at most."""
    retry = {"max_retries": 1, "backoff": {"init_backoff": timedelta(milliseconds=1)}}
    for name, value in retry.items():
        environment.setitem(places._RETRY, name, value)  # type: ignore[arg-type]
    with Proxy(s3) as proxy:
        environment.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy
