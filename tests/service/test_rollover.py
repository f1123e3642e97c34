"""Versions that come and go under load, in a real server."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
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
        answers: How many came, by status and version.
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


@pytest.fixture
def server(models: Path, tmp_path: Path) -> Iterator[Server]:
    """Looks for the latest version all the time."""
    with serve(models, tmp_path) as server:
        yield server


def serve(models: Path, tmp_path: Path, **settings: object) -> Server:
    return Server(
        models,
        tmp_path / "log",
        versions="latest",
        watch_seconds=0.05,
        # What is replaced is closed so much later.
        timeout_seconds=5,
        **settings,
    )


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
def test_a_version_is_replaced_under_load_and_nobody_notices(models: Path, tmp_path: Path) -> None:
    with serve(models, tmp_path, threads=1) as server, Load(server) as load:
        for version in (2, 3, 4):
            until(lambda version=version: str(version - 1) in load.versions())
            deliver(models, Spec(version=str(version)))
            before = f"repeat@{version - 1}"
            until(lambda before=before: report(server)[before] == "unloading")
        until(lambda: "4" in load.versions())
        until(lambda: server.log.count("closed a model") == 3)
        assert report(server)["repeat@1"] == "not loaded"
        until(lambda: report(server)["repeat@4"] == "ready")
        gone = httpx.post(f"{server.url}/forecast", json={**BODY, "model": "repeat@1"})
        assert gone.status_code == 503
    assert {status for status, _ in load.answers} == {200}, load.answers
    assert load.versions() == {"1", "2", "3", "4"}


def test_a_request_that_found_a_model_is_answered_by_it(
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


@pytest.mark.slow
def test_a_bundle_is_replaced_in_place(server: Server, models: Path) -> None:
    with Load(server) as load:
        for horizon in (5, 6):
            (models / "repeat" / "1").rename(models.parent / f"before-{horizon}")
            deliver(models, Spec(horizon=horizon))
            until(lambda horizon=horizon: forecast_length(server) == horizon)
    assert set(load.answers) == {(200, "1")}


def forecast_length(server: Server) -> int:
    answer = httpx.post(f"{server.url}/forecast", json=BODY)
    return len(answer.json()["outputs"][0]["content"][0]["mean_forecast"])


@pytest.mark.slow
def test_a_bad_version_is_refused_while_the_old_one_answers(server: Server, models: Path) -> None:
    with Load(server) as load:
        deliver(models, Spec(version="2"), broken=True)
        until(lambda: "sha256 differs" in report(server).get("repeat@2", ""))
        assert httpx.get(f"{server.url}/readyz").status_code == 200
        answered = load.answers.total()
        until(lambda: load.answers.total() > answered + 10)
    assert set(load.answers) == {(200, "1")}
    assert server.log.count("refused repeat@2") == 1


@pytest.mark.slow
def test_models_come_and_go(server: Server, models: Path) -> None:
    deliver(models, Spec(name="guest"))
    until(lambda: report(server).get("guest@1") == "ready")
    assert httpx.get(f"{server.url}/v1/timeseries/models").json() == ["guest", "repeat"]
    (models / "guest").rename(models.parent / "gone")
    until(lambda: "guest@1" not in report(server))
    body = {**BODY, "model": "guest"}
    assert httpx.post(f"{server.url}/forecast", json=body).status_code == 404
    assert httpx.post(f"{server.url}/forecast", json=BODY).status_code == 200


def change(server: Server, name: str, action: str, version: str | None = None) -> httpx.Response:
    """Load or unload a model."""
    return httpx.post(
        f"{server.url}/v2/repository/models/{name}/{action}",
        json={} if version is None else {"parameters": {"version": version}},
        headers={"Authorization": "Bearer secret"},
        timeout=60,
    )


def index(server: Server) -> dict[str, tuple[str, str]]:
    """State and reason of every version."""
    entries = httpx.post(f"{server.url}/v2/repository/index").json()
    return {f"{own['name']}@{own['version']}": (own["state"], own["reason"]) for own in entries}


@pytest.mark.slow
def test_a_load_is_answered_when_the_version_answers(models: Path, tmp_path: Path) -> None:
    settings = {"threads": 1, "admin_keys": "secret"}
    with Server(models, tmp_path / "log", **settings) as server, Load(server) as load:
        deliver(models, Spec(version="2"))
        deliver(models, Spec(version="3"), broken=True)
        assert index(server)["repeat@2"] == ("UNAVAILABLE", "not loaded")
        assert change(server, "repeat", "load", "2").status_code == 200
        for _ in range(10):
            answer = httpx.post(f"{server.url}/forecast", json=BODY)
            assert answer.json()["model_version"] == "2"
            assert index(server)["repeat@2"] == ("READY", "")
        refused = change(server, "repeat", "load", "3")
        assert refused.status_code == 409
        assert "sha256 differs" in refused.text
        assert change(server, "repeat", "unload", "1").status_code == 200
        gone = httpx.post(f"{server.url}/forecast", json={**BODY, "model": "repeat@1"})
        assert (gone.status_code, gone.json()["error"]["type"]) == (503, "not_ready")
        assert change(server, "nobody", "load").status_code == 404
        assert change(server, "repeat", "load", "4").status_code == 404
        until(lambda: httpx.get(f"{server.url}/readyz").is_success)
    assert {status for status, _ in load.answers} == {200}, load.answers
    assert load.versions() <= {"1", "2"}
