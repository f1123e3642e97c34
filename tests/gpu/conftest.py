"""A machine with stand-ins for GPUs, and a server on it."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from foretell.bundle import manifest
from tests.support.process import Server
from tests.support.stand_in.machine import Machine, UnavailableError, build
from tests.support.trained import bundles, checkpoints, data, every_mechanism, in_turn
from tests.support.waiting import until

__all__ = ["bundles", "checkpoints", "data", "every_mechanism", "in_turn"]

FORECAST = {"model": "repeat", "inputs": [{"series": [1.0] * 8}]}


@pytest.fixture(scope="session")
def stand_in() -> Machine:
    """A machine with onnxruntime's real CUDA provider, and GPUs that compute nothing."""
    try:
        return build()
    except UnavailableError as reason:
        pytest.skip(str(reason))


def serve(machine: Machine, models: Path, folder: Path, **settings: Any) -> Server:
    """`foretell serve --device cuda`; CUDA's calls go to `folder / "calls"`.

    Args:
        machine: The stand-in.
        models: The repository.
        folder: Folder for logs.
        settings: Settings of the server; `fake`: those of the stand-in; `module`: what to run.
    """
    fake = settings.pop("fake", {})
    module = settings.pop("module", "tests.support.stand_in.foretell")
    return Server(
        models,
        folder / "log",
        program=(machine.python, "-m", module),
        environment=machine.environment(folder / "calls", **fake),
        **{"device": "cuda", "timeout_seconds": 20, **settings},
    )


def body_for(folder: Path) -> dict[str, Any]:
    """A request for one window of a bundle."""
    described = manifest.read(folder)
    series = [[float(step + 1)] * len(described.channels) for step in range(described.context)]
    return {
        "model": described.name,
        "inputs": [{"series": series, "start_timestamp": "2024-01-01T00:00:00"}],
    }


def ready(server: Server) -> tuple[int, dict[str, str]]:
    """Status and versions of `/readyz`."""
    answer = httpx.get(f"{server.url}/readyz")
    versions: dict[str, str] = answer.json()["models"]
    return answer.status_code, versions


class Traffic:
    """Clients that send requests of several kinds in turn until the end of `with`.

    Attributes:
        answers: Number of answers by status and error; status 0 means no answer.
    """

    def __init__(self, url: str, *bodies: Any, clients: int = 4) -> None:
        self.answers: Counter[tuple[int, str]] = Counter()
        self._url = f"{url}/forecast"
        self._bodies = bodies
        self._done = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(number,)) for number in range(clients)
        ]

    def _send(self, number: int) -> None:
        with httpx.Client(timeout=60) as client:
            while not self._done.is_set():
                number += 1
                try:
                    answer = client.post(self._url, json=self._bodies[number % len(self._bodies)])
                except httpx.TransportError as error:
                    self.answers[0, str(error)] += 1
                else:
                    self.answers[answer.status_code, "" if answer.is_success else answer.text] += 1

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(60)


def refusal(server: Server, body: Any = FORECAST) -> dict[str, Any]:
    """Keep all GPUs busy until an answer has status 503; returns its error."""
    with Traffic(server.url, body) as traffic:
        until(lambda: any(status == 503 for status, _ in list(traffic.answers)))
    content = next(text for status, text in traffic.answers if status == 503)
    error: dict[str, Any] = json.loads(content)["error"]
    return error
