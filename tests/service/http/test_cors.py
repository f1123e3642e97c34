"""What browsers need to ask a server of another origin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from foretell.service.engine.model import Model
from tests.service.client import Client

PAGE, OTHER = "https://app.example.com", "https://evil.example.com"
BODY = {"model": "repeat", "inputs": [{"series": [1.0] * 8}]}
KEY = {"Authorization": "Bearer one"}


def preflight(client: Client, origin: str, method: str = "POST", *names: str) -> httpx.Response:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": ",".join(names or ("content-type", "authorization")),
    }
    return client.request("OPTIONS", "/v1/timeseries/models", headers=headers)


def listed(answer: httpx.Response, name: str) -> set[str]:
    return {one.strip().lower() for one in answer.headers[name].split(",")}


@pytest.fixture(scope="module")
def guarded(models: Path) -> Any:
    with Client(models, api_keys="one", cors_origins=PAGE) as client:
        yield client


def test_a_preflight_needs_no_key(guarded: Client) -> None:
    answer = preflight(guarded, PAGE)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    assert {"GET", "POST"} <= set(answer.headers["access-control-allow-methods"].split(", "))
    assert "Origin" in answer.headers["vary"]


def test_every_header_that_is_read_may_be_sent(guarded: Client) -> None:
    names = (
        *("authorization", "x-api-key", "content-type", "content-encoding", "x-request-id"),
        *("x-timeout-ms", "inference-header-content-length", "traceparent", "tracestate"),
    )
    answer = preflight(guarded, PAGE, "POST", *names)
    assert answer.status_code == 200
    assert set(names) <= listed(answer, "access-control-allow-headers")
    assert preflight(guarded, PAGE, "POST", "x-other").status_code == 400


def test_a_page_may_ask_a_server_of_a_private_network(guarded: Client) -> None:
    headers = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Private-Network": "true",
    }
    answer = guarded.request("OPTIONS", "/models", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-private-network"] == "true"
    refused = guarded.request("OPTIONS", "/models", headers=headers | {"Origin": OTHER})
    assert refused.status_code == 400


def test_a_request_with_a_key(guarded: Client) -> None:
    answer = guarded.request("POST", "/forecast", json=BODY, headers={"Origin": PAGE, **KEY})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "Origin" in answer.headers["vary"]
    read = listed(answer, "access-control-expose-headers")
    assert {"retry-after", "x-request-id", "inference-header-content-length"} <= read


def test_errors_can_be_read_too(guarded: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Model, "submit", fail)
    for path, headers, status in (
        ("/forecast", {}, 401),
        ("/nope", KEY, 404),
        ("/forecast", KEY, 500),
    ):
        answer = guarded.request("POST", path, json=BODY, headers={"Origin": PAGE, **headers})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, PAGE)


def test_pages_of_other_origins(guarded: Client) -> None:
    assert preflight(guarded, OTHER).status_code == 400
    answer = guarded.request("POST", "/forecast", json=BODY, headers={"Origin": OTHER, **KEY})
    for each in (answer, preflight(guarded, OTHER)):
        assert "access-control-allow-origin" not in each.headers


def test_any_origin_gets_no_credentials(models: Path) -> None:
    """Browsers refuse `*` with cookies, and the origin itself would let every page use them."""
    with Client(models, cors_origins="*") as client:
        answer = client.request("POST", "/forecast", json=BODY, headers={"Origin": OTHER})
        for each in (answer, preflight(client, OTHER)):
            assert each.status_code == 200
            assert each.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in each.headers


def test_it_is_off_by_default(client: Client) -> None:
    assert preflight(client, PAGE).status_code == 405
    answer = client.request("POST", "/forecast", json=BODY, headers={"Origin": PAGE})
    assert not [name for name in answer.headers if name.startswith("access-control")]
