"""`foretell serve-ray` on a cluster of one node, as its users start it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.service.bundles import Spec, softmax_stage, write_bundle
from tests.service.client import Client
from tests.service.waiting import until

ROOT = Path(__file__).resolve().parents[3]
# A busy machine takes its time for Ray's many processes.
PATIENCE = 120.0
BODY = {"inputs": [{"series": [0.1, 2, 3, 4, 5, 6, 7, 8.25]}]}


class Cluster:
    """A cluster that serves.

    Attributes:
        process: The command.
        url: Of its door.
    """

    def __init__(self, models: Path, log: Path, folder: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        # Paths of sockets are short; and nothing of this is for the user's own folders.
        own = {
            "RAY_TMPDIR": folder,
            "RAY_AUTH_MODE": "disabled",
            "RAY_raylet_start_wait_time_s": f"{PATIENCE:.0f}",
            "FORETELL_TIMEOUT_SECONDS": "60",
        }
        options = ("--models", models, "--port", str(port), "--models-per-engine", "2")
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "foretell", "serve-ray", *options],
                cwd=ROOT,
                env={**os.environ, **own},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self) -> None:
        end = time.monotonic() + PATIENCE
        while f"serving on {self.url}" not in self._log.read_text():
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.05)

    def forecast(self, model: str) -> httpx.Response:
        return httpx.post(f"{self.url}/forecast", json={**BODY, "model": model}, timeout=PATIENCE)

    def replica(self, name: str) -> psutil.Process:
        """The process of the only replica of a deployment."""
        processes = psutil.Process(self.process.pid).children(recursive=True)
        (found,) = (one for one in processes if f"foretell:{name}" in command_of(one))
        return found

    def loads(self, model: str) -> float:
        """How often engines have loaded a model."""
        text = httpx.get(f"{self.url}/metrics", timeout=PATIENCE).text
        key = f'foretell_model_loads_total{{model="{model}",outcome="loaded",version="1"}}'
        found = re.search(rf"^{re.escape(key)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def end(self) -> None:
        if self.process.poll() is None:
            for each in psutil.Process(self.process.pid).children(recursive=True):
                each.kill()
            self.process.kill()
            self.process.wait()


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for spec in (Spec(name="one"), Spec(name="two", stages=(softmax_stage(),)), Spec(name="three")):
        write_bundle(tmp_path / "models", spec)
    return tmp_path / "models"


@pytest.fixture
def cluster(models: Path, tmp_path: Path) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        cluster = Cluster(models, tmp_path / "log", folder)
        try:
            cluster.wait()
            yield cluster
        finally:
            cluster.end()


def test_a_cluster_serves(cluster: Cluster, models: Path) -> None:
    with Client(models) as plain:
        # The third does not fit next to the others, so the first has to be loaded again.
        for name in ("one", "two", "three", "two", "one"):
            found = cluster.forecast(name)
            assert found.status_code == 200, found.text
            expected = plain.forecast({**BODY, "model": name})
            assert content(found.json()) == content(expected.json())
    assert cluster.forecast("four").json()["error"]["type"] == "unknown_model"
    until(lambda: cluster.loads("one") == 2)
    assert (cluster.loads("two"), cluster.loads("three")) == (1, 1)

    answers: list[httpx.Response] = []
    asking = threading.Thread(target=ask_until_whole, args=(cluster, answers))
    asking.start()
    cluster.replica("Engine").kill()
    cluster.replica("Door").kill()
    asking.join(PATIENCE)
    for answer in answers:
        if answer.status_code != 200:
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1"), answer.text
        else:
            assert answer.json()["model"] == "one"
    assert answers[-1].status_code == 200

    cluster.process.send_signal(signal.SIGTERM)
    assert cluster.process.wait(PATIENCE) == 0


def ask_until_whole(cluster: Cluster, answers: list[httpx.Response]) -> None:
    """Ask until another engine answers, which has to load the model."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        answers.append(cluster.forecast("one"))
        if answers[-1].status_code == 200 and cluster.loads("one") >= 3:
            return


def command_of(process: psutil.Process) -> str:
    """The command line of a process; nothing of one that has just ended, as Ray's helpers do."""
    try:
        return "".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def content(told: dict[str, Any]) -> list[Any]:
    return [output["content"] for output in told["outputs"]]
