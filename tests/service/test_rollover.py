"""Versions that come and go under load, in a real server."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from foretell.bundle import layout
from foretell.service.engine.model import Model
from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server
from tests.support.waiting import until

BODY = {"model": "repeat", "inputs": [{"series": [1.0] * 8}]}


class Load:
    """Clients that send one request after another.

    Attributes:
        answers: Number of answers by status and version.
    """

    def __init__(self, server: Server, clients: int = 4) -> None:
        self.answers: Counter[tuple[int, str]] = Counter()
        self._url = f"{server.url}/forecast"
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(clients)]

    def versions(self) -> set[str]:
        return {version for _, version in list(self.answers)}

    def _send(self) -> None:
        with httpx.Client(timeout=60) as client:
            while not self._done.is_set():
                answer = client.post(self._url, json=BODY)
                version = answer.json().get("model_version", answer.text)
                self.answers[answer.status_code, version] += 1

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(60)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_bundle(tmp_path / "models", Spec())
    return tmp_path / "models"


def deliver(models: Path, spec: Spec, *, broken: bool = False) -> None:
    """Put a bundle into the repository as the exporter does: complete, at once."""
    folder = write_bundle(models.parent / "staging", spec)
    if broken:
        (folder / layout.WEIGHTS).write_bytes(b"broken")
    (models / spec.name).mkdir(exist_ok=True)
    folder.rename(models / spec.name / spec.version)


def report(server: Server) -> dict[str, Any]:
    versions: dict[str, Any] = httpx.get(f"{server.url}/readyz").json()["models"]
    return versions


@pytest.mark.slow
def test_versions_and_models_change_under_load(models: Path, tmp_path: Path) -> None:
    settings = {"versions": "latest", "watch_seconds": 0.05, "threads": 1}
    with (
        # Replaced versions are closed after this time.
        Server(models, tmp_path / "log", timeout_seconds=5, **settings) as server,
        Load(server) as load,
    ):
        # The latest version replaces others.
        for version in (2, 3):
            until(lambda version=version: str(version - 1) in load.versions())
            deliver(models, Spec(version=str(version)))
            before = f"repeat@{version - 1}"
            until(lambda before=before: report(server)[before] == "unloading")
        until(lambda: "3" in load.versions())
        until(lambda: server.log.count("closed a model") == 2)
        assert report(server)["repeat@1"] == "not loaded"
        replaced = httpx.post(f"{server.url}/forecast", json={**BODY, "model": "repeat@1"})
        assert replaced.status_code == 503
        # One is replaced in place.
        (models / "repeat" / "3").rename(models.parent / "before")
        deliver(models, Spec(version="3", horizon=5))

        def forecast_length() -> int:
            answer = httpx.post(f"{server.url}/forecast", json=BODY)
            return len(answer.json()["outputs"][0]["content"][0]["mean_forecast"])

        until(lambda: forecast_length() == 5)
        # A bad one is refused.
        deliver(models, Spec(version="4"), broken=True)
        until(lambda: "sha256 differs" in report(server).get("repeat@4", ""))
        assert httpx.get(f"{server.url}/readyz").status_code == 200
        answered = load.answers.total()
        until(lambda: load.answers.total() > answered + 10)
        assert server.log.count("refused repeat@4") == 1
        # Models are added and removed.
        deliver(models, Spec(name="guest"))
        until(lambda: report(server).get("guest@1") == "ready")
        names = httpx.get(f"{server.url}/v1/timeseries/models").json()
        assert names == ["guest", "repeat"]
        (models / "guest").rename(models.parent / "gone")
        until(lambda: "guest@1" not in report(server))
        body = {**BODY, "model": "guest"}
        assert httpx.post(f"{server.url}/forecast", json=body).status_code == 404
    assert {status for status, _ in load.answers} == {200}, load.answers
    assert load.versions() == {"1", "2", "3"}


def test_request_is_answered_by_the_model_it_found(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(models, Spec(version="2"))
    with Client(models) as client:
        submit = Model.submit

        def submit_late(model: Model, *arguments: Any, **options: Any) -> Any:
            client.repository.unload("repeat", "2")
            assert client.repository.snapshot.report["repeat@2"] != "ready"
            return submit(model, *arguments, **options)

        monkeypatch.setattr(Model, "submit", submit_late)
        answers = [client.forecast(BODY) for _ in range(2)]
        assert [answer.json()["model_version"] for answer in answers] == ["2", "1"]
