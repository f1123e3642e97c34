from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from foretell.bundle import layout
from foretell.bundle.manifest import Accuracy, TestResult
from foretell.service.api.app import create_operations_app
from foretell.service.engine.model import Model
from foretell.service.errors import ServiceError
from foretell.service.forecast.requests import ModelCard, ModelReport
from foretell.service.metrics import REJECTED
from tests.service.client import Client, connect
from tests.support.bundles import Spec, write_bundle


def test_models_describe_themselves(client: Client) -> None:
    cards = {card["name"]: card for card in client.get("/models").json()}
    multi = cards["multi"]
    assert multi["channels"] == ["load", "wind"]
    assert (multi["context"], multi["horizon"], multi["max_horizon"]) == (8, 4, 16)
    assert multi["attention"] == ["encoder.0.self", "encoder.1.self", "decoder.0.cross"]
    assert multi["provider"] == "CPUExecutionProvider"
    assert (multi["frequency"], multi["needs_timestamps"]) == ("h", False)
    assert cards["calendar"]["needs_timestamps"]
    assert not multi["quantiles"]
    assert multi["quantile_levels"] is None
    assert cards["calibrated"]["quantiles"]
    lowest, highest = cards["calibrated"]["quantile_levels"]
    assert 0 < lowest < 0.1 < 0.9 < highest < 1
    assert cards["calibrated"]["bounds"] == {"load": {"low": None, "high": 1e6}}
    assert multi["bounds"] == {}
    assert cards["repeat"]["versions"] == ["1", "10"]
    assert cards["repeat"]["version"] == "10"
    for card in cards.values():
        assert set(card) == set(ModelCard.model_fields)
        assert len(json.dumps(card)) < 1000


def test_a_model_tells_more_of_itself(client: Client) -> None:
    cards = {card["name"]: card for card in client.get("/models").json()}
    report = client.get("/models/multi").json()
    assert set(report) == set(ModelReport.model_fields)
    assert report.items() >= cards["multi"].items()
    assert report["calibration"] is None
    assert report["calibration_missing"] is None
    assert report["verdict"] is None
    assert client.get("/models/calibrated").json()["calibration"]["steps"] == 12
    for reference, version in (("repeat", "10"), ("repeat@1", "1")):
        assert client.get(f"/models/{reference}").json()["version"] == version
    for reference, kind in (("nope", "unknown_model"), ("repeat@3", "unknown_version")):
        answer = client.get(f"/models/{reference}")
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, kind)


def test_a_model_says_what_it_is_worth_and_why_it_has_no_quantiles(tmp_path: Path) -> None:
    test = TestResult(windows=9, model=Accuracy(mse=1, mae=0.5), last_value=Accuracy(mse=1, mae=1))
    reason = "its validation split holds 4 windows, a calibration needs at least 20"
    write_bundle(tmp_path, Spec(changes={"test": test, "calibration_missing": reason}))
    with Client(tmp_path) as client:
        expected = (
            "better in MAE alone than repeating the last value (MSE 1 against 1, MAE 0.5 against 1)"
        )
        assert client.get("/models").json()[0]["verdict"] == expected
        report = client.get("/models/repeat").json()
        assert (report["verdict"], report["calibration_missing"]) == (expected, reason)
        body = {"inputs": [{"series": [1.0] * 8}], "options": {"quantiles": [0.5]}}
        assert client.error(body)["message"] == f"repeat has no quantiles: {reason}"


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


def test_only_clients_with_a_key_get_reasons(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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


def test_operators_ports_are_for_operators(tmp_path: Path) -> None:
    (write_bundle(tmp_path, Spec(name="bad")) / layout.WEIGHTS).write_bytes(b"x")
    write_bundle(tmp_path, Spec(name="good"))
    with Client(tmp_path, api_keys="one") as client:
        app = create_operations_app(client.engine)

        async def ask() -> httpx.Response:
            async with connect(app) as http:
                return await http.get("/readyz")

        assert "sha256 differs" in asyncio.run(ask()).text


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json"])
def test_a_reader_finds_the_way(client: Client, path: str) -> None:
    assert client.get(path).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/models"])
def test_a_probe_may_ask_for_the_head_alone(client: Client, path: str) -> None:
    assert client.request("HEAD", path).status_code == 200


def test_the_index_links_to_what_exists(client: Client) -> None:
    links = client.get("/").json()["links"]
    paths = set(client.app.openapi()["paths"]) | {"/docs", "/openapi.json"}
    assert set(links.values()) <= paths


def test_metrics(client: Client) -> None:
    client.forecast({"model": "multi", "inputs": [{"series": [[1.0, 2.0]] * 8}]})
    rejected = REJECTED, "unknown_model"
    before = client.metrics.counts.count(*rejected)
    client.forecast({"model": "nope", "inputs": [1]})
    assert client.metrics.counts.count(*rejected) == before + 1
    client.get("/no/such/route")
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    text = answer.text
    assert (
        'foretell_requests_total{model="multi",route="/forecast",status="200",version="1"}' in text
    )
    assert 'foretell_requests_total{model="",route="unmatched",status="404",version=""}' in text
    assert 'foretell_batch_windows_count{model="multi",version="1"}' in text
    # Rates are of counters that were 0 once.
    for error in ServiceError.__subclasses__():
        assert f'foretell_rejected_total{{reason="{error.type}"}}' in text
    assert "nope" not in text
    assert "/no/such" not in text
