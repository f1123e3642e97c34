"""Clients that offer to speak HTTP/2 with every request."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.http.relay import Relay
from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server

LAST = [8.0, 5.0]
BODIES = [json.dumps({"inputs": [{"series": [1.0] * 7 + [last]}]}) for last in LAST]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    write_bundle(folder, Spec())
    with Server(folder, folder.with_name("clients.log")) as server:
        yield server


@pytest.fixture
def relay(server: Server) -> Iterator[Relay]:
    with Relay(server.url) as relay:
        yield relay


def check(command: list[str], relay: Relay, server: Server) -> None:
    """What the client prints for each body is the answer, a space and the status."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for line, last in zip(done.stdout.splitlines(), LAST, strict=True):
        answer, _, status = line.rpartition(" ")
        assert status == "200"
        (output,) = json.loads(answer)["outputs"]
        assert output["content"][0]["mean_forecast"] == [last] * 4
    (sent,) = relay.heard
    assert sent.count(b"\r\nUpgrade: h2c\r\n") == len(BODIES)
    assert '"warning"' not in server.log


def test_java(server: Server, relay: Relay) -> None:
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    program = str(Path(__file__).with_name("Forecast.java"))
    check(["java", program, f"{relay.url}/forecast", *BODIES], relay, server)


def test_curl(server: Server, relay: Relay) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    if "HTTP2" not in subprocess.check_output(["curl", "--version"], text=True).split():
        pytest.skip("this curl knows no HTTP/2")
    command = ["curl"]
    for body in BODIES:
        command += ["--silent", "--show-error", "--http2", "--write-out", " %{http_code}\\n"]
        command += ["--noproxy", "*", "--header", "Content-Type: application/json"]
        command += ["--data", body, f"{relay.url}/forecast", "--next"]
    check(command[:-1], relay, server)
