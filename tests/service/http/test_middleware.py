from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from starlette.types import Message, Receive, Scope, Send

from foretell.service.engine.model import Model
from foretell.service.errors import NotReadyError
from foretell.service.http.middleware import RequestMiddleware
from foretell.service.http.static import Pages
from foretell.service.metrics import REJECTED, Metrics
from foretell.service.settings import OWN_PATHS
from tests.service.client import Client

BODY = {"model": "repeat", "inputs": [{"series": [1.0] * 8}]}


def counted(client: Client, metric: str) -> float:
    found = re.search(
        f"^foretell_{re.escape(metric)} (.*)$", client.get("/metrics").text, re.MULTILINE
    )
    return float(found[1]) if found else 0


@pytest.mark.parametrize("given", [None, "", "two words", "x" * 129, "caf\xe9"])
def test_request_id_is_generated_if_missing(client: Client, given: str | None) -> None:
    headers = {} if given is None else {"X-Request-Id": given.encode("latin-1")}
    made: set[str] = set()
    for _ in range(10):
        answer = client.request("POST", "/forecast", json=BODY, headers=headers)
        made |= {answer.headers["x-request-id"], answer.json()["id"].removeprefix("forecast-")}
    assert len(made) == 20
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in made)
    # Errors have the header too.
    for path in ("/healthz", "/nope", "/forecast"):
        answer = client.request("GET", path, headers={"X-Request-Id": "abc"})
        assert answer.headers["x-request-id"] == "abc"


def test_request_is_one_line_of_the_log(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with caplog.at_level(logging.INFO, "foretell.access"):
        client.forecast(BODY, traceparent=f"00-{trace}-00f067aa0ba902b7-01")
        client.get("/healthz")
        client.get("/page/app.js")
        client.forecast({}, traceparent="nonsense")
        client.forecast({"model": "repeat", "inputs": [{"series": "x"}]})
    fields = [record.fields for record in caplog.records if record.name == "foretell.access"]
    assert [
        (entry["path"], entry["status"], entry["model"], entry.get("trace_id")) for entry in fields
    ] == [
        ("/forecast", 200, "repeat", trace),
        ("/forecast", 422, "", None),
        ("/forecast", 422, "repeat", None),
    ]


def test_unexpected_error_is_logged_and_answered(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    metric = 'rejected_total{reason="internal_error"}'
    before = counted(client, metric)
    monkeypatch.setattr(Model, "submit", fail)
    answer = client.forecast(BODY, **{"X-Request-Id": "abc"})
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] == "abc"
    assert answer.json()["error"]["type"] == "internal_error"
    assert "a bug" not in answer.text
    assert "RuntimeError: a bug" in caplog.text
    assert 'model="repeat",route="/forecast",status="500"' in client.get("/metrics").text
    assert counted(client, metric) == before + 1


@pytest.mark.parametrize("error", [NotReadyError("too late"), asyncio.CancelledError()])
def test_error_after_a_started_answer_sends_no_second_one(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Message] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise error

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("nobody asks")

    metrics = Metrics()
    scope = {"type": "http", "method": "GET", "path": "/forecast", "headers": []}
    asking = RequestMiddleware(app, metrics)(scope, receive, send)
    if isinstance(error, asyncio.CancelledError):
        # The connection handles cancellations.
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(asking)
    else:
        asyncio.run(asking)
        assert "NotReadyError: too late" in caplog.text
    assert [message["type"] for message in sent] == ["http.response.start"]
    assert metrics.in_flight == 0


@pytest.mark.parametrize(
    ("method", "path", "status", "route", "reason"),
    [
        ("GET", "/docs", 200, "/docs", ""),
        ("GET", "/openapi.json", 200, "/openapi.json", ""),
        ("GET", "/models", 200, "/models", ""),
        ("GET", "/page/app.js", 200, "/page/{path:path}", ""),
        ("GET", "/docs/more", 404, "unmatched", "not_found"),
        ("PUT", "/forecast", 405, "/forecast", "method_not_allowed"),
        ("POST", "/forecast", 400, "/forecast", "unreadable"),
    ],
)
def test_requests_and_refusals_are_counted(
    client: Client, method: str, path: str, status: int, route: str, reason: str
) -> None:
    requests = f'requests_total{{model="",route="{route}",status="{status}",version=""}}'
    rejected = f'rejected_total{{reason="{reason}"}}'
    before = counted(client, requests), counted(client, rejected)
    assert client.request(method, path).status_code == status
    assert counted(client, requests) == before[0] + 1
    assert counted(client, rejected) == before[1] + bool(reason)
    text = client.get("/metrics").text
    assert "app.js" not in text
    assert "/docs/more" not in text


@pytest.fixture(scope="module")
def guarded(models: Path) -> Iterator[Client]:
    with Client(models, api_keys="one,two-key", admin_keys="boss-key") as client:
        yield client


@pytest.mark.parametrize("path", ["/forecast", "/v1/timeseries/forecast"])
def test_forecasts_need_a_key(guarded: Client, path: str, caplog: pytest.LogCaptureFixture) -> None:
    rejected = REJECTED, "unauthorized"
    before = guarded.metrics.counts.count(*rejected)
    with caplog.at_level("DEBUG"):
        wrong = {"Authorization": "Bearer wrong-key"}
        refused = guarded.request("POST", path, json=BODY, headers=wrong)
        for headers in ({"Authorization": "Bearer two-key"}, {"X-API-Key": "boss-key"}):
            assert guarded.request("POST", path, json=BODY, headers=headers).status_code == 200
    assert guarded.metrics.counts.count(*rejected) == before + 1
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    error = refused.json()["error"]
    assert (error["code"], error["type"]) == ("401", "unauthorized")
    assert refused.headers["x-request-id"]
    assert caplog.records
    assert "-key" not in caplog.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *((path, 200) for path in ("/", "/docs", "/openapi.json", "/healthz", "/readyz")),
        *((path, 200) for path in ("/metrics", "/page/app.js", "/page/vendor/preact.mjs")),
        *((path, 401) for path in ("/models", "/models/repeat/example", "/v1/timeseries/models")),
        *((path, 401) for path in ("/v2", "/no/such/path", "/page/no.js")),
    ],
)
def test_paths_that_need_a_key(guarded: Client, path: str, status: int) -> None:
    answer = guarded.get(path)
    assert answer.status_code == status
    # Without a key the index does not name models.
    assert path != "/" or "repeat" not in answer.text


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
        raise AssertionError("the framework got the request")

    monkeypatch.setattr(APIRoute, "handle", unreachable)
    assert client.request("POST", path, json=body).status_code == 200


HTML = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def behind(models: Path) -> Iterator[Client]:
    with Client(models, root_path="/a/part/", api_keys="one") as client:
        yield client


@pytest.mark.parametrize("prefix", ["", "/a/part"])
def test_root_path_may_be_removed_or_not(behind: Client, client: Client, prefix: str) -> None:
    assert behind.get(f"{prefix}/healthz").status_code == 200
    assert behind.request("GET", f"{prefix}/", headers=HTML).text.startswith("<!doctype html>")
    for path in ("/docs", "/openapi.json", "/page/app.js"):
        assert behind.get(prefix + path).status_code == 200, path
    # Keys are needed below the prefix too.
    assert behind.get(f"{prefix}/models").status_code == 401
    path, headers = f"{prefix}/forecast", {"X-API-Key": "one"}
    assert behind.request("POST", path, json=BODY).status_code == 401
    assert behind.request("POST", path, json=BODY, headers=headers).status_code == 200
    answer = behind.request("GET", f"{prefix}/v2/no", headers=headers)
    assert isinstance(answer.json()["error"], str)
    text = behind.get(f"{prefix}/metrics").text
    assert 'route="/page/{path:path}",status="200"' in text
    assert "/a/part" not in text
    assert behind.get(f"{prefix}/").json()["links"]["models"] == "/a/part/models"
    assert behind.get(f"{prefix}/openapi.json").json()["servers"] == [{"url": "/a/part"}]
    assert client.get("/").json()["links"]["models"] == "/models"
    assert "servers" not in client.get("/openapi.json").json()
    # The page's links are relative.
    answer = behind.get("/a/part")
    assert (answer.status_code, answer.headers["location"]) == (308, "/a/part/")


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/a/partial", "/a/partial"),
        ("/a", "/a"),
        ("/b/a/part/healthz", "/b/a/part/healthz"),
        ("/a/part/a/part/healthz", "/a/part/healthz"),
    ],
)
def test_path_that_only_resembles_the_prefix_is_not_found(
    behind: Client, path: str, named: str
) -> None:
    answer = behind.request("GET", path, headers={"X-API-Key": "one"})
    assert answer.status_code == 404
    assert f"GET {named};" in answer.text


def test_own_paths_cover_all_routes(client: Client) -> None:
    # Two kinds of paths are not documented, because others define them: those of the nixtla client,
    # and that of agents, which is off here.
    unlisted = "/nixtla/model_params"
    assert client.get(unlisted).status_code != 404
    shown = {"/openapi.json", *client.app.openapi()["paths"], *Pages().paths, unlisted}
    assert {path.split("/")[1] for path in shown} - {""} | {"mcp"} == OWN_PATHS
