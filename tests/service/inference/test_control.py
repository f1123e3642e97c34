from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from foretell.bundle import layout
from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle

KEY = {"X-API-Key": "secret"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    for version in ("1", "2"):
        write_bundle(tmp_path, Spec(version=version))
    with Client(tmp_path, admin_keys="secret") as client:
        yield client


def index(client: Client, content: bytes = b"") -> dict[str, str]:
    answer = client.request("POST", "/v2/repository/index", content=content)
    assert answer.status_code == 200, answer.text
    return {f"{each['name']}@{each['version']}": each["state"] for each in answer.json()}


def change(client: Client, what: str, body: Any = None, model: str = "repeat") -> httpx.Response:
    """`what` may hold a query."""
    return client.request("POST", f"/v2/repository/models/{model}/{what}", headers=KEY, json=body)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"ready": false}'])
def test_the_index(client: Client, content: bytes) -> None:
    assert index(client, content) == {"repeat@1": "READY", "repeat@2": "READY"}


def test_the_index_says_why_a_model_does_not_answer(client: Client) -> None:
    folder = write_bundle(client.settings.models, Spec(name="bad"))
    (folder / layout.WEIGHTS).write_bytes(b"x")
    entries = client.request("POST", "/v2/repository/index").json()
    assert entries[0] == {
        "name": "bad",
        "version": "1",
        "state": "UNAVAILABLE",
        "reason": "not loaded",
    }
    refused = change(client, "load", model="bad")
    assert refused.status_code == 409
    assert "sha256 differs" in refused.json()["error"]
    answer = client.request("POST", "/v2/repository/index", headers=KEY)
    assert "sha256 differs" in answer.json()[0]["reason"]
    assert index(client, b'{"ready": true}') == {"repeat@1": "READY", "repeat@2": "READY"}


def test_loading_what_came(client: Client) -> None:
    write_bundle(client.settings.models, Spec(name="new"))
    answer = change(client, "load", {"parameters": {"unload_dependents": True}}, "new")
    assert (answer.status_code, answer.json()) == (200, {})
    assert client.get("/v2/models/new/ready").status_code == 200


@pytest.mark.parametrize(
    ("suffix", "body"),
    [
        ("", {"parameters": {"version": "1"}}),
        ("", {"parameters": {"version": 1}}),
        ("?version=1", None),
        ("?version=2", {"parameters": {"version": "1"}}),
    ],
)
def test_one_version(client: Client, suffix: str, body: Any) -> None:
    assert change(client, f"unload{suffix}", body).status_code == 200
    assert client.get("/v2/models/repeat/versions/1/ready").status_code == 503
    assert client.get("/v2/models/repeat/versions/2/ready").status_code == 200
    assert change(client, f"load{suffix}", body).status_code == 200
    assert client.get("/v2/models/repeat/versions/1/ready").status_code == 200


def test_all_versions(client: Client) -> None:
    assert change(client, "unload", {"parameters": {"unload_dependents": True}}).status_code == 200
    assert client.get("/v2/models/repeat/ready").status_code == 503
    assert change(client, "load").status_code == 200
    assert client.get("/v2/models/repeat/versions/1/ready").status_code == 200


@pytest.mark.parametrize("what", ["load", "unload"])
def test_what_there_is_not(client: Client, what: str) -> None:
    assert change(client, what, model="nope").status_code == 404
    assert change(client, f"{what}?version=9").status_code == 404
    assert change(client, f"{what}?version=../1").status_code == 404


@pytest.mark.parametrize("parameters", [{"config": "{}"}, {"file:1/model.onnx": "AAAA"}])
def test_nothing_but_the_repository_is_loaded(client: Client, parameters: Any) -> None:
    answer = change(client, "load", {"parameters": parameters})
    assert answer.status_code == 422
    (name,) = parameters
    assert answer.json()["error"].startswith(f"parameters.{name}: models are loaded as they are")


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 400),
        (b"[]", 422),
        (b'{"parameters": 1}', 422),
        (b'{"parameters": {"version": []}}', 422),
    ],
)
def test_bodies_that_do_not_fit(client: Client, content: bytes, status: int) -> None:
    path = "/v2/repository/models/repeat/load"
    answer = client.request("POST", path, headers=KEY, content=content)
    assert answer.status_code == status
    assert isinstance(answer.json()["error"], str)
    assert (
        client.request("POST", "/v2/repository/index", content=b'{"ready": 1}').status_code == 422
    )


@pytest.mark.parametrize("what", ["load", "unload"])
def test_keys(client: Client, models: Path, what: str) -> None:
    path = f"/v2/repository/models/repeat/{what}"
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        answer = client.request("POST", path, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert isinstance(answer.json()["error"], str)
    with Client(models) as uncontrolled:
        answer = uncontrolled.request("POST", path, headers=KEY)
        assert answer.status_code == 403
        assert "FORETELL_ADMIN_KEYS" in answer.json()["error"]
