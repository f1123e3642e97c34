"""Descriptions of models, and their control."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from foretell.bundle import layout
from foretell.service.engine.model import Model
from foretell.service.inference.wire import configuration, describe
from foretell.service.settings import Settings
from tests.service.client import Client
from tests.service.inference.bodies import infer, request
from tests.support.bundles import Spec, write_bundle


def test_metadata(client: Client) -> None:
    found = client.get("/v2/models/repeat").json()
    assert found["versions"] == ["1", "10"]
    assert found["inputs"] == [{"name": "history", "datatype": "FP32", "shape": [-1, 8, 1]}]
    assert found["outputs"] == [{"name": "forecast", "datatype": "FP32", "shape": [-1, 4, 1]}]
    first = client.get("/v2/models/repeat/versions/1").json()
    assert first.pop("digest") != found.pop("digest")
    assert first == found
    for path, version in (("repeat", 10), ("repeat/versions/1", 1)):
        found = client.get(f"/v2/models/{path}/config").json()
        assert found["version_policy"] == {"specific": {"versions": [version]}}


@pytest.mark.parametrize("suffix", ["", "/ready", "/config", "/stats"])
def test_unserved_models_are_not_found(client: Client, suffix: str) -> None:
    for model, message in (
        ("nope", "model: no model 'nope'; served (GET /models): "),
        ("repeat/versions/7", "model: repeat has no version '7'; served: 1, 10"),
        ("repeat/versions/..", "model: repeat has no version '..'; served: 1, 10"),
        ("repeat@1/versions/1", "model: repeat has no version '1@1'; served: 1, 10"),
    ):
        answer = client.get(f"/v2/models/{model}{suffix}".replace("..", "%2e%2e"))
        assert answer.status_code == 404
        assert answer.json()["error"].startswith(message)


def test_ready(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.get("/v2/models/multi/ready").json() == {"name": "multi", "ready": True}
    monkeypatch.setattr(Model, "failure", "the device is lost")
    answer = client.get("/v2/models/multi/versions/1/ready")
    assert answer.status_code == 503
    assert answer.json() == {"error": "multi has failed; /readyz says why"}


def test_statistics_of_versions(client: Client) -> None:
    def counts(path: str) -> dict[str, int]:
        found = client.get(f"/v2/models/{path}/stats").json()["model_stats"]
        return {each["version"]: each["inference_stats"]["success"]["count"] for each in found}

    before = counts("repeat")
    forecast = {"model": "repeat@1", "inputs": [{"series": [1.0] * 8}]}
    assert client.forecast(forecast).status_code == 200
    for path in ("repeat/versions/1", "repeat"):
        assert infer(client, ONES, model=path).status_code == 200
    assert counts("repeat") == {"1": before["1"] + 2, "10": before["10"] + 1}
    assert counts("repeat/versions/1") == {"1": before["1"] + 2}


def test_statistics_of_a_model(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec())
    with Client(tmp_path) as client:
        for _ in range(2):
            assert infer(client, ONES, model="repeat").status_code == 200
        assert infer(client, request(), model="repeat").status_code == 422
        for path in ("", "/repeat", "/repeat/versions/1"):
            (counts,) = client.get(f"/v2/models{path}/stats").json()["model_stats"]
            assert (counts["name"], counts["version"]) == ("repeat", "1")
            assert (counts["inference_count"], counts["execution_count"]) == (4, 2)
            assert counts["last_inference"] > 1.7e12
            measured = {
                name: duration["count"]
                for name, duration in counts["inference_stats"].items()
                if duration["ns"] > 0
            }
            stages = ("queue", "compute_input", "compute_infer", "compute_output")
            assert measured == dict.fromkeys(("success", *stages), 2)
            assert counts["inference_stats"]["fail"]["count"] == 1
            assert counts["batch_stats"] == []


@pytest.mark.parametrize("name", ["repeat", "multi", "calendar", "quarter-hourly"])
def test_metadata_describe_inputs_and_outputs(client: Client, name: str) -> None:
    model = client.repository.registry.find(name)
    metadata = describe(model, ["1"])
    feeds = {
        tensor.name: np.zeros([3, *tensor.shape[1:]], np.float32) for tensor in metadata.inputs
    }
    wanted = [tensor.name for tensor in metadata.outputs]
    outputs = model.submit(feeds, attention=wanted, deadline=float("inf")).result(30)
    names = {"FP32": np.float32, "INT64": np.int64}
    assert {
        name: (values.dtype, values.ndim, values.shape[0]) for name, values in outputs.items()
    } == {each.name: (names[each.datatype], len(each.shape), 3) for each in metadata.outputs}
    for tensor in metadata.outputs:
        sizes = zip(tensor.shape[1:], outputs[tensor.name].shape[1:], strict=True)
        assert all(dimension in (-1, size) for dimension, size in sizes)
        assert tensor.shape[0] == -1


def test_a_margin_is_an_output(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(margin_bound=0.5))
    with Client(tmp_path) as client:
        outputs = describe(client.repository.registry.find("repeat"), ["1"]).outputs
        assert [(each.name, each.shape) for each in outputs] == [
            ("forecast", [-1, 4, 1]),
            ("margin", [-1]),
        ]


def test_the_configuration(client: Client) -> None:
    model: Model = client.repository.registry.find("multi")
    settings = Settings(models=Path(), max_inputs=100)
    found = configuration(model, settings)
    assert (found["name"], found["platform"]) == ("multi", "onnxruntime_onnx")
    assert found["max_batch_size"] == 100
    assert found["dynamic_batching"]["preferred_batch_size"] == [model.max_batch]
    assert found["input"] == [{"name": "history", "data_type": "TYPE_FP32", "dims": [8, 2]}]
    assert found["output"][0] == {"name": "forecast", "data_type": "TYPE_FP32", "dims": [4, 2]}
    lags = next(each for each in found["output"] if each["name"] == "encoder.1.self.lags")
    assert (lags["data_type"], lags["dims"]) == ("TYPE_INT64", [-1])


@pytest.mark.parametrize("keys", [(), ("secret",)])
def test_only_working_extensions_are_listed(models: Path, keys: tuple[str, ...]) -> None:
    with Client(models, admin_keys=keys) as client:
        metadata = client.get("/v2").json()
    assert metadata["name"] == "foretell"
    assert metadata["extensions"] == [
        *("binary_tensor_data", "model_configuration", "statistics"),
        *(["model_repository"] if keys else []),
    ]


KEY = {"X-API-Key": "secret"}
ONES = request({"name": "history", "shape": [2, 8, 1], "datatype": "FP32", "data": [1.0] * 16})


@pytest.fixture
def controlled(tmp_path: Path) -> Iterator[Client]:
    for version in ("1", "2"):
        write_bundle(tmp_path, Spec(version=version))
    with Client(tmp_path, admin_keys="secret") as client:
        yield client


def index(controlled: Client, content: bytes = b"") -> dict[str, str]:
    answer = controlled.request("POST", "/v2/repository/index", content=content)
    assert answer.status_code == 200, answer.text
    return {f"{each['name']}@{each['version']}": each["state"] for each in answer.json()}


def change(
    controlled: Client, what: str, body: Any = None, model: str = "repeat"
) -> httpx.Response:
    """`what` may hold a query."""
    return controlled.request(
        "POST", f"/v2/repository/models/{model}/{what}", headers=KEY, json=body
    )


@pytest.mark.parametrize("content", [b"", b"{}", b'{"ready": false}'])
def test_the_index(controlled: Client, content: bytes) -> None:
    assert index(controlled, content) == {"repeat@1": "READY", "repeat@2": "READY"}


def test_index_has_the_reason_of_a_refused_model(controlled: Client) -> None:
    folder = write_bundle(controlled.settings.models, Spec(name="bad"))
    (folder / layout.WEIGHTS).write_bytes(b"x")
    entries = controlled.request("POST", "/v2/repository/index").json()
    assert entries[0] == {
        "name": "bad",
        "version": "1",
        "state": "UNAVAILABLE",
        "reason": "not loaded",
    }
    refused = change(controlled, "load", model="bad")
    assert refused.status_code == 409
    assert "sha256 differs" in refused.json()["error"]
    answer = controlled.request("POST", "/v2/repository/index", headers=KEY)
    assert "sha256 differs" in answer.json()[0]["reason"]
    assert index(controlled, b'{"ready": true}') == {"repeat@1": "READY", "repeat@2": "READY"}


@pytest.mark.parametrize(
    ("suffix", "body", "version"),
    [
        ("", {"parameters": {"version": "1"}}, "1"),
        ("", {"parameters": {"version": 1}}, "1"),
        ("?version=1", None, "1"),
        ("?version=2", {"parameters": {"version": "1"}}, "1"),
        ("", {"parameters": {"unload_dependents": True}}, None),
    ],
)
def test_versions_are_unloaded_and_loaded(
    controlled: Client, suffix: str, body: Any, version: str | None
) -> None:
    def statuses() -> list[int]:
        path = "/v2/models/repeat/versions/{}/ready"
        return [controlled.get(path.format(each)).status_code for each in "12"]

    assert change(controlled, f"unload{suffix}", body).status_code == 200
    assert statuses() == [503, 200 if version else 503]
    assert change(controlled, f"load{suffix}", body).status_code == 200
    assert statuses() == [200, 200]


UNLOAD = "/v2/repository/models/repeat/unload"
LOAD = "/v2/repository/models/repeat/load"


@pytest.mark.parametrize(
    ("path", "content", "status", "message"),
    [
        *((path.replace("repeat", "nope"), b"", 404, "") for path in (LOAD, UNLOAD)),
        *((f"{path}?version=9", b"", 404, "") for path in (LOAD, UNLOAD)),
        *((f"{path}?version=../1", b"", 404, "") for path in (LOAD, UNLOAD)),
        (
            LOAD,
            b'{"parameters": {"config": "{}"}}',
            422,
            "parameters.config: models are loaded as they are",
        ),
        (LOAD, b'{"parameters": {"file:1/a.onnx": "AA"}}', 422, "parameters.file:1/a.onnx: models"),
        (LOAD, b"{", 400, ""),
        *((LOAD, body, 422, "") for body in (b"[]", b'{"parameters": 1}')),
        (LOAD, b'{"parameters": {"version": []}}', 422, ""),
        ("/v2/repository/index", b'{"ready": 1}', 422, ""),
    ],
)
def test_invalid_control_requests_are_refused(
    controlled: Client, path: str, content: bytes, status: int, message: str
) -> None:
    answer = controlled.request("POST", path, headers=KEY, content=content)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(message)


@pytest.mark.parametrize("what", ["load", "unload"])
def test_control_needs_an_admin_key(controlled: Client, models: Path, what: str) -> None:
    path = f"/v2/repository/models/repeat/{what}"
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        answer = controlled.request("POST", path, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert isinstance(answer.json()["error"], str)
    with Client(models) as uncontrolled:
        answer = uncontrolled.request("POST", path, headers=KEY)
        assert answer.status_code == 403
        assert "FORETELL_ADMIN_KEYS" in answer.json()["error"]
