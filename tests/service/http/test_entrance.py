from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from foretell.service.engine.model import Model
from foretell.service.errors import QueueFullError
from foretell.service.metrics import REJECTED
from tests.service.client import Client

BODY = {"model": "repeat", "inputs": [{"series": [1.0] * 8}]}


@pytest.fixture(scope="module")
def guarded(models: Path) -> Iterator[Client]:
    with Client(models, api_keys="one,two", admin_keys="boss") as client:
        yield client


@pytest.mark.parametrize("path", ["/forecast", "/v1/timeseries/forecast"])
def test_forecasts_need_a_key(guarded: Client, path: str) -> None:
    refused = guarded.request("POST", path, json=BODY)
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    error = refused.json()["error"]
    assert (error["code"], error["type"]) == ("401", "unauthorized")
    assert refused.headers["x-request-id"]
    for headers in ({"Authorization": "Bearer two"}, {"X-API-Key": "boss"}):
        assert guarded.request("POST", path, json=BODY, headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/models", "/v1/timeseries/models", "/v2", "/no/such/path"])
def test_so_does_what_tells_of_models(guarded: Client, path: str) -> None:
    assert guarded.get(path).status_code == 401


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/healthz", "/readyz", "/metrics"])
def test_machines_and_readers_need_none(guarded: Client, path: str) -> None:
    assert guarded.get(path).status_code == 200


def test_the_index_names_no_model_to_strangers(guarded: Client) -> None:
    assert "repeat" not in guarded.get("/").text


def test_keys_are_not_logged(guarded: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        guarded.forecast(BODY, Authorization="Bearer wrong-key")
        guarded.forecast(BODY, Authorization="Bearer one-key")
    assert "-key" not in caplog.text


def test_refusals_are_counted(guarded: Client) -> None:
    rejected = REJECTED, "unauthorized"
    before = guarded.metrics.counts.count(*rejected)
    guarded.forecast(BODY)
    assert guarded.metrics.counts.count(*rejected) == before + 1


def test_without_keys_nothing_is_guarded(client: Client) -> None:
    assert client.forecast(BODY).status_code == 200
    assert client.get("/models").status_code == 200


TENSORS = {
    "inputs": [{"name": "history", "shape": [1, 8, 1], "datatype": "FP32", "data": [1.0] * 8}]
}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/forecast", BODY),
        ("/v1/timeseries/forecast", BODY),
        ("/v2/models/repeat/infer", TENSORS),
        ("/v2/models/repeat/versions/1/infer", TENSORS),
    ],
)
def test_hot_routes_are_called_directly(
    client: Client, monkeypatch: pytest.MonkeyPatch, path: str, body: object
) -> None:
    async def unreachable(*_: object) -> None:
        raise AssertionError("the framework was asked")

    monkeypatch.setattr(APIRoute, "handle", unreachable)
    assert client.request("POST", path, json=body).status_code == 200


def test_they_refuse_as_all_others_do(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise QueueFullError("full", retry_after=7)

    monkeypatch.setattr(Model, "submit", refuse)
    answer = client.forecast(BODY)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")


def test_their_patterns_are_what_metrics_name(client: Client) -> None:
    client.request("POST", "/v2/models/repeat/infer", json=TENSORS)
    assert 'route="/v2/models/{model}/infer",status="200"' in client.get("/metrics").text


def test_other_methods_and_paths_go_the_long_way(client: Client) -> None:
    assert client.request("GET", "/forecast").status_code == 405
    assert client.request("POST", "/forecast/").status_code == 404
    assert client.request("POST", "/v2/models/repeat/infer/more").status_code == 404
    assert client.request("POST", "/v2/models/a/b/infer").status_code == 404
