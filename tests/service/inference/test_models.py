from __future__ import annotations

import pytest

from foretell.service.engine.model import Model
from tests.service.client import Client
from tests.service.inference.bodies import infer, request


def test_metadata(client: Client) -> None:
    found = client.get("/v2/models/repeat").json()
    assert found["versions"] == ["1", "10"]
    assert found["inputs"] == [{"name": "history", "datatype": "FP32", "shape": [-1, 8, 1]}]
    assert found["outputs"] == [{"name": "forecast", "datatype": "FP32", "shape": [-1, 4, 1]}]
    assert client.get("/v2/models/repeat/versions/1").json() == found


@pytest.mark.parametrize("suffix", ["", "/ready", "/config", "/stats"])
def test_what_is_not_served(client: Client, suffix: str) -> None:
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


def test_configuration_of_a_version(client: Client) -> None:
    for path, version in (("repeat", 10), ("repeat/versions/1", 1)):
        found = client.get(f"/v2/models/{path}/config").json()
        assert found["version_policy"] == {"specific": {"versions": [version]}}


def test_statistics_of_versions(client: Client) -> None:
    def counts(path: str) -> dict[str, int]:
        found = client.get(f"/v2/models/{path}/stats").json()["model_stats"]
        return {each["version"]: each["inference_stats"]["success"]["count"] for each in found}

    before = counts("repeat")
    forecast = {"model": "repeat@1", "inputs": [{"series": [1.0] * 8}]}
    assert client.forecast(forecast).status_code == 200
    body = request({"name": "history", "shape": [1, 8, 1], "datatype": "FP32", "data": [1.0] * 8})
    assert infer(client, body, model="repeat/versions/1").status_code == 200
    assert infer(client, body, model="repeat").status_code == 200
    assert counts("repeat") == {"1": before["1"] + 2, "10": before["10"] + 1}
    assert counts("repeat/versions/1") == {"1": before["1"] + 2}
