from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from foretell.bundle import layout
from foretell.service.api.app import create_operations_app
from foretell.service.engine.model import Model
from foretell.service.errors import ServiceError
from foretell.service.metrics import REJECTED
from tests.service.client import Client, connect
from tests.support.bundles import Spec, write_bundle


def test_readiness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bundle(tmp_path, Spec(name="good"))
    (write_bundle(tmp_path, Spec(name="bad")) / layout.WEIGHTS).write_bytes(b"x")
    body = {"inputs": [{"series": [1.0] * 8}]}
    with Client(tmp_path) as client:

        def check(models: dict[str, str], *, ready: bool) -> None:
            status = 200 if ready else 503
            answer = client.get("/readyz")
            assert (answer.status_code, answer.json()["ready"]) == (status, ready)
            assert answer.json()["workers"] == {"wanted": 1, "running": 1}
            assert answer.json()["models"] == models
            assert client.get("/healthz").json() == {"status": "alive"}
            for probe, expected in (("live", 200), ("ready", status)):
                answer = client.get(f"/v2/health/{probe}")
                assert answer.status_code == expected
                assert answer.json() == {"live": True, "ready": ready}
            assert f"foretell_ready {float(ready)}" in client.get("/metrics").text

        refused = "bad/1/weights.bin: sha256 differs from the manifest; the file was changed"
        check({"good@1": "ready", "bad@1": refused}, ready=False)
        for name, status in (("good", 200), ("bad", 503)):
            assert client.get(f"/v2/models/{name}/ready").status_code == status
            assert client.forecast({**body, "model": name}).status_code == status
        assert client.forecast({**body, "model": "bad"}).json()["error"]["type"] == "not_ready"
        client.repository.unload("bad")
        check({"good@1": "ready", "bad@1": "not loaded"}, ready=True)
        with monkeypatch.context() as lost:
            lost.setattr(Model, "failure", property(lambda _: "the device is lost"))
            client.metrics.changed()
            check({"good@1": "the device is lost", "bad@1": "not loaded"}, ready=False)
        client.metrics.changed()
        client.repository.drain()
        check({"good@1": "draining", "bad@1": "not loaded"}, ready=False)
        assert client.forecast(body).status_code == 200


def test_reasons_need_a_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_bundle(tmp_path, Spec(name="good"))
    (write_bundle(tmp_path, Spec(name="bad")) / layout.WEIGHTS).write_bytes(b"x")
    damage = "bad/1/weights.bin: sha256 differs"
    for name in ("api_keys", "admin_keys"):
        settings: dict[str, Any] = {name: "mine"}
        with Client(tmp_path, **settings) as client:
            for key, reason_shown in (
                ("", "unavailable"),
                ("wrong", "unavailable"),
                ("mine", damage),
            ):
                headers = {"X-API-Key": key}
                answer = client.request("GET", "/readyz", headers=headers)
                assert (answer.status_code, answer.json()["ready"]) == (503, False)
                assert answer.json()["models"]["good@1"] == "ready"
                assert answer.json()["models"]["bad@1"].startswith(reason_shown)
                index = client.request("POST", "/v2/repository/index", headers=headers)
                if index.is_success:
                    reasons = [entry["reason"] for entry in index.json()]
                    assert reasons[0].startswith(reason_shown)
                    assert reasons[1] == ""
                else:
                    assert (name, key == "mine") == ("api_keys", False)
    assert f"refused bad@1: {tmp_path}/{damage}" in caplog.text


def test_operations_port_shows_reasons_and_its_own_paths(tmp_path: Path) -> None:
    (write_bundle(tmp_path, Spec(name="bad")) / layout.WEIGHTS).write_bytes(b"x")
    write_bundle(tmp_path, Spec(name="good"))
    with Client(tmp_path, api_keys="one") as client:
        app = create_operations_app(client.engine)

        async def ask() -> list[httpx.Response]:
            async with connect(app) as http:
                return [await http.get(path) for path in ("/readyz", "/ready")]

        status, unknown = asyncio.run(ask())
    assert "sha256 differs" in status.text
    assert unknown.status_code == 404
    assert "the nearest is GET /readyz; see /healthz, /readyz, /metrics" in unknown.text


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/models"])
def test_head_is_answered(client: Client, path: str) -> None:
    assert client.request("HEAD", path).status_code == 200


def test_index_links_to_existing_paths(client: Client) -> None:
    links = client.get("/").json()["links"]
    paths = set(client.app.openapi()["paths"]) | {"/docs", "/openapi.json"}
    assert set(links.values()) <= paths


def test_metrics_have_existing_models_and_reasons(client: Client) -> None:
    rejected = REJECTED, "unknown_model"
    before = client.metrics.counts.count(*rejected)
    client.forecast({"model": "nope", "inputs": [1]})
    assert client.metrics.counts.count(*rejected) == before + 1
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "nope" not in answer.text
    # Rates need counters that begin at 0.
    for error in ServiceError.__subclasses__():
        assert f'foretell_rejected_total{{reason="{error.type}"}}' in answer.text
