"""Servers of repositories in object storage; tests/service/engine/test_mirror.py has the faults."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from threading import Event

import httpx
import pytest

from foretell.storage.location import open_location
from foretell.storage.repository import publish
from tests.foretell.storage.conftest import Proxy
from tests.support.bundles import Spec, write_bundle
from tests.support.command import refused
from tests.support.process import Server
from tests.support.waiting import until

READ = "foretell_storage_last_sync_timestamp_seconds"


def ask(server: Server) -> str:
    """The version that answers a request."""
    body = {"inputs": [{"series": [1.0] * 8}]}
    answer = httpx.post(f"{server.url}/forecast", json=body).raise_for_status()
    return str(answer.json()["model_version"])


def test_new_version_is_served_after_one_look(
    bucket: str, s3: str, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """That is one interval of the watch, plus the time to fetch and load the version."""
    location = open_location(f"{bucket}/models")
    bundle = write_bundle(tmp_path / "models", Spec())
    publish(bundle, location)
    looks, served = count(), Event()

    def hold_all_but_one(request: str) -> None:
        if "list-type" in request and next(looks) > 0:
            served.wait()

    with Proxy(s3) as proxy:
        environment.setenv("AWS_ENDPOINT_URL", proxy.url)
        cache = {"cache": tmp_path / "cache"}
        with Server(
            location.url, tmp_path / "log", watch_seconds=0.05, workers=2, **cache
        ) as server:
            assert abs(server.metric(READ) - time.time()) < 3600
            publish(bundle, location)
            proxy.before = hold_all_but_one
            try:
                until(lambda: ask(server) == "2")
            finally:
                served.set()
            assert server.stop() == 0
        # Another server starts with the files that the first one has fetched.
        proxy.faults["list-type"] = "denied"
        with Server(location.url, tmp_path / "log", **cache) as server:
            assert ask(server) == "2"
            assert "serves bundles that were fetched before" in server.log
            assert "AccessDenied: Access Denied; credentials are read from AWS_" in server.log


def test_missing_bucket_ends_the_start(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environment.setattr("foretell.service.logs.configure", lambda *_: None)
    environment.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    message = refused("serve", "--models", "s3://nowhere", "--port", "0", "--device", "cpu")
    assert "model repository s3://nowhere: NoSuchBucket" in message
