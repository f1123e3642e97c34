from __future__ import annotations

import asyncio
import logging
import re

import pytest
from starlette.types import Message, Receive, Scope, Send

from foretell.service.engine.model import Model
from foretell.service.errors import NotReadyError
from foretell.service.http.middleware import RequestMiddleware
from foretell.service.metrics import Metrics
from tests.service.client import Client

BODY = {"model": "repeat", "inputs": [{"series": [1.0] * 8}]}


def counted(client: Client, metric: str) -> float:
    found = re.search(
        f"^foretell_{re.escape(metric)} (.*)$", client.get("/metrics").text, re.MULTILINE
    )
    return float(found[1]) if found else 0


def test_a_request_id_is_kept(client: Client) -> None:
    answer = client.forecast(BODY, **{"X-Request-Id": "my-id/1"})
    assert answer.headers["x-request-id"] == "my-id/1"


@pytest.mark.parametrize("given", [None, "", "two words", "x" * 129, "caf\xe9"])
def test_or_made(client: Client, given: str | None) -> None:
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
