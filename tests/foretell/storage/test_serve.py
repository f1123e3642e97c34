"""Servers of repositories in object storage."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from threading import Event

import httpx
import obstore
import pytest
from click.testing import CliRunner

from foretell.bundle import layout, manifest
from foretell.commands.serve import command
from foretell.storage.location import open_location
from foretell.storage.repository import publish
from tests.foretell.storage.proxy import Proxy
from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server
from tests.support.waiting import until

READ = "foretell_storage_last_sync_timestamp_seconds"


def ask(server: Server) -> str:
    """The version that answers."""
    body = {"inputs": [{"series": [1.0] * 8}]}
    answer = httpx.post(f"{server.url}/forecast", json=body).raise_for_status()
    return str(answer.json()["model_version"])


def refused(server: Server) -> str:
    return str(httpx.get(f"{server.url}/readyz").json()["models"].get("repeat@3"))


def test_new_version_is_served_after_one_look(
    bucket: str, s3: str, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Within one interval of the watch, then, and what it takes to fetch and load it."""
    location = open_location(f"{bucket}/models")
    bundle = write_bundle(tmp_path / "models", Spec())
    publish(bundle, location)
    looks, served = count(), Event()

    def hold_all_but_one(asked: str) -> None:
        if "list-type" in asked and next(looks) > 0:
            served.wait()

    with Proxy(s3) as proxy:
        environment.setenv("AWS_ENDPOINT_URL", proxy.url)
        given = {"watch_seconds": 0.05, "cache": tmp_path / "cache", "workers": 2}
        with Server(location.url, tmp_path / "log", **given) as server:
            publish(bundle, location)
            proxy.before = hold_all_but_one
            try:
                until(lambda: ask(server) == "2")
            finally:
                served.set()
            assert server.stop() == 0


def test_faults_of_storage_change_nothing_that_is_served(
    bucket: str, s3: str, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    location = open_location(f"{bucket}/models")
    bundle = write_bundle(tmp_path / "models", Spec())
    publish(bundle, location)
    with Proxy(s3) as proxy:
        environment.setenv("AWS_ENDPOINT_URL", proxy.url)
        given = {"watch_seconds": 0.05, "cache": tmp_path / "cache", "workers": 2}
        with Server(location.url, tmp_path / "log", **given) as server:
            assert ask(server) == "1"
            assert abs(server.metric(READ) - time.time()) < 3600
            publish(bundle, location)
            until(lambda: ask(server) == "2")
            # Another file than the ones that are here.
            other = write_bundle(tmp_path / "other", Spec(channels=("load", "wind")))
            wanted = manifest.read(other).files[layout.WEIGHTS]
            proxy.faults[f"GET .*{wanted}"] = "wrong"
            publish(other, location, version="3")
            until(lambda: "repeat/3/weights.bin: sha256 differs" in refused(server))
            assert ask(server) == "2"
            assert httpx.get(f"{server.url}/readyz").status_code == 200
            obstore.delete(location.store, "repeat/3/manifest.json")
            until(lambda: refused(server) == "None")
            proxy.faults["list-type"] = "denied"
            until(lambda: "it is tried again: " in server.log)
            assert ask(server) == "2"
            assert httpx.get(f"{server.url}/readyz").status_code == 200
            assert server.stop() == 0
        # Another one starts from what the first has fetched.
        with Server(location.url, tmp_path / "log", cache=tmp_path / "cache") as server:
            assert ask(server) == "2"
            assert "served as they were fetched before" in server.log
            assert "AccessDenied: Access Denied; credentials are read from AWS_" in server.log


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://bucket", "ftp://bucket: expected s3://bucket/prefix, gs://… or az://…"),
        ("s3://nowhere", "model repository s3://nowhere: NoSuchBucket"),
    ],
)
def test_repository_that_cannot_be_read_ends_the_start(
    url: str, message: str, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment.setattr("foretell.service.logs.configure", lambda *_: None)
    environment.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    result = CliRunner().invoke(command, ["--models", url, "--port", "0", "--device", "cpu"])
    assert result.exit_code == 2
    assert message in result.stderr
