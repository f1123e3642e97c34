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
def test_a_request_id_is_made_unless_it_is_given(client: Client, given: str | None) -> None:
    headers = {} if given is None else {"X-Request-Id": given.encode("latin-1")}
    answers = [client.request("GET", "/healthz", headers=headers) for _ in range(2)]
    made = {answer.headers["x-request-id"] for answer in answers}
    assert len(made) == 2
    assert given not in made


def test_errors_carry_it_too(client: Client) -> None:
    for path in ("/nope", "/forecast"):
        answer = client.request("GET", path, headers={"X-Request-Id": "abc"})
        assert answer.headers["x-request-id"] == "abc"


def test_every_request_is_one_line(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "foretell.access"):
        client.forecast(BODY)
        client.get("/healthz")
        client.forecast({})
        client.forecast({"model": "repeat", "inputs": [{"series": "x"}]})
    fields = [record.fields for record in caplog.records if record.name == "foretell.access"]
    assert [(entry["path"], entry["status"], entry["model"]) for entry in fields] == [
        ("/forecast", 200, "repeat"),
        ("/forecast", 422, ""),
        ("/forecast", 422, "repeat"),
    ]


def test_the_clients_trace_is_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with caplog.at_level(logging.INFO, "foretell.access"):
        client.forecast(BODY, traceparent=f"00-{trace}-00f067aa0ba902b7-01")
        client.forecast(BODY, traceparent="nonsense")
    first, second = (r.fields for r in caplog.records if r.name == "foretell.access")
    assert first["trace_id"] == trace
    assert "trace_id" not in second


def test_a_bug_is_logged_and_answered(
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
def test_an_answer_that_has_begun_is_followed_by_no_other(
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
        # The connection gets it.
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(asking)
    else:
        asyncio.run(asking)
        assert "NotReadyError: too late" in caplog.text
    assert [message["type"] for message in sent] == ["http.response.start"]
    assert metrics.in_flight == 0


@pytest.mark.parametrize(
    ("method", "path", "reason"),
    [("GET", "/nope", "not_found"), ("PUT", "/forecast", "method_not_allowed")],
)
def test_errors_of_routes_are_counted(client: Client, method: str, path: str, reason: str) -> None:
    metric = f'rejected_total{{reason="{reason}"}}'
    before = counted(client, metric)
    client.request(method, path)
    assert counted(client, metric) == before + 1


@pytest.mark.parametrize(
    ("path", "status", "route"),
    [
        ("/docs", 200, "/docs"),
        ("/openapi.json", 200, "/openapi.json"),
        ("/models", 200, "/models"),
        ("/docs/more", 404, "unmatched"),
    ],
)
def test_requests_are_counted_by_route(client: Client, path: str, status: int, route: str) -> None:
    metric = f'requests_total{{model="",route="{route}",status="{status}",version=""}}'
    before = counted(client, metric)
    assert client.get(path).status_code == status
    assert counted(client, metric) == before + 1


@pytest.fixture(scope="module")
def guarded(models: Path) -> Iterator[Client]:
    with Client(models, api_keys="one,two", admin_keys="boss") as client:
        yield client


@pytest.mark.parametrize("path", ["/forecast", "/v1/timeseries/forecast"])
def test_forecasts_need_a_key(guarded: Client, path: str) -> None:
    rejected = REJECTED, "unauthorized"
    before = guarded.metrics.counts.count(*rejected)
    refused = guarded.request("POST", path, json=BODY)
    assert guarded.metrics.counts.count(*rejected) == before + 1
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    error = refused.json()["error"]
    assert (error["code"], error["type"]) == ("401", "unauthorized")
    assert refused.headers["x-request-id"]
    for headers in ({"Authorization": "Bearer two"}, {"X-API-Key": "boss"}):
        assert guarded.request("POST", path, json=BODY, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *((path, 200) for path in ("/", "/docs", "/openapi.json", "/healthz", "/readyz")),
        ("/metrics", 200),
        *((path, 401) for path in ("/models", "/v1/timeseries/models", "/v2", "/no/such/path")),
    ],
)
def test_machines_and_readers_need_no_key(guarded: Client, path: str, status: int) -> None:
    assert guarded.get(path).status_code == status


def test_the_index_names_no_model_to_strangers(guarded: Client) -> None:
    assert "repeat" not in guarded.get("/").text


def test_keys_are_not_logged(guarded: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        guarded.forecast(BODY, Authorization="Bearer wrong-key")
        guarded.forecast(BODY, Authorization="Bearer one-key")
    assert "-key" not in caplog.text


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


HTML = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def behind(models: Path) -> Iterator[Client]:
    with Client(models, root_path="/a/part/", api_keys="one") as client:
        yield client


@pytest.mark.parametrize("prefix", ["", "/a/part"])
def test_both_kinds_of_proxies_are_understood(behind: Client, prefix: str) -> None:
    assert behind.get(f"{prefix}/healthz").status_code == 200
    assert behind.request("GET", f"{prefix}/", headers=HTML).text.startswith("<!doctype html>")
    for path in ("/docs", "/openapi.json", "/page/app.js"):
        assert behind.get(prefix + path).status_code == 200, path
    # What needs a key needs it there, too.
    assert behind.get(f"{prefix}/models").status_code == 401
    path, headers = f"{prefix}/forecast", {"X-API-Key": "one"}
    assert behind.request("POST", path, json=BODY).status_code == 401
    assert behind.request("POST", path, json=BODY, headers=headers).status_code == 200
    answer = behind.request("GET", f"{prefix}/v2/no", headers=headers)
    assert isinstance(answer.json()["error"], str)


def test_metrics_know_no_prefix(behind: Client) -> None:
    behind.get("/a/part/page/app.js")
    text = behind.get("/a/part/metrics").text
    assert 'route="/page/{path:path}",status="200"' in text
    assert "/a/part" not in text


def test_the_page_has_a_slash_at_its_end(behind: Client) -> None:
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
def test_what_only_looks_like_it_is_no_prefix(behind: Client, path: str, named: str) -> None:
    answer = behind.request("GET", path, headers={"X-API-Key": "one"})
    assert answer.status_code == 404
    assert f"GET {named};" in answer.text


def test_links_begin_with_it(behind: Client, client: Client) -> None:
    assert behind.get("/").json()["links"]["models"] == "/a/part/models"
    assert behind.get("/openapi.json").json()["servers"] == [{"url": "/a/part"}]
    assert client.get("/").json()["links"]["models"] == "/models"
    assert "servers" not in client.get("/openapi.json").json()


def test_own_paths_are_those_of_the_routes(client: Client) -> None:
    # The nixtla client's are in no document: what they take is Nixtla's to say.
    unlisted = "/nixtla/model_params"
    assert client.get(unlisted).status_code != 404
    shown = {"/openapi.json", *client.app.openapi()["paths"], *Pages().paths, unlisted}
    assert {path.split("/")[1] for path in shown} - {""} == OWN_PATHS


def test_identifiers_differ(client: Client) -> None:
    made = set()
    for _ in range(50):
        answer = client.forecast({"model": "repeat", "inputs": [{"series": [1.0] * 8}]})
        made |= {answer.headers["x-request-id"], answer.json()["id"].removeprefix("forecast-")}
    assert len(made) == 100
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in made)
