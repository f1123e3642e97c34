from __future__ import annotations

import asyncio
import re
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import pytest

from foretell.service.arrays import Arrays
from foretell.service.doors import forms
from foretell.service.errors import QueueFullError
from foretell.service.model import Model
from tests.service.bundles import Spec, write_bundle
from tests.service.client import Client

BODY = {"model": "repeat", "inputs": [{"series": [1.0] * 8}]}


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/nope", 404, "not_found"),
        ("GET", "/forecast/", 404, "not_found"),
        ("GET", "/forecast", 405, "method_not_allowed"),
        ("DELETE", "/models", 405, "method_not_allowed"),
    ],
)
def test_routes_that_do_not_exist(
    client: Client, method: str, path: str, status: int, kind: str
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert (error["code"], error["type"], error["param"]) == (str(status), kind, None)
    assert path in error["message"]


def test_a_wrong_method_names_the_right_one(client: Client) -> None:
    assert client.request("GET", "/forecast").headers["allow"] == "POST"


def test_a_full_queue_says_when_to_retry(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise QueueFullError("2048 windows are waiting", retry_after=7)

    monkeypatch.setattr(Model, "submit", refuse)
    answer = client.forecast(BODY)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert answer.json()["error"]["type"] == "queue_full"
    assert 'foretell_rejected_total{reason="queue_full"}' in client.get("/metrics").text


def test_a_request_is_not_refused_for_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise QueueFullError("full", retry_after=7)

    for version in ("1", "2"):
        write_bundle(tmp_path, Spec(version=version))
    series = [{"series": [1.0] * 8}]
    with Client(tmp_path) as client:
        monkeypatch.setattr(client.repository.find("repeat@2"), "check_room", full)
        assert client.forecast({"inputs": series, "model": "repeat@1"}).status_code == 200
        assert client.forecast({"inputs": series, "model": "repeat"}).status_code == 429
        assert client.forecast({"inputs": series}).status_code == 429


def test_a_full_queue_refuses_what_it_has_not_read(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise QueueFullError("full", retry_after=7)

    def refused() -> float:
        counter = 'foretell_requests_total{model="repeat",route="/forecast",status="429"} '
        found = re.search(f"^{re.escape(counter)}(.*)$", client.get("/metrics").text, re.MULTILINE)
        return float(found[1]) if found else 0

    unreadable = b'{"model": "repeat", "inputs": ['
    headers = {"Content-Type": "application/json"}
    assert client.request("POST", "/forecast", content=unreadable, headers=headers).is_client_error
    monkeypatch.setattr(client.repository.find("repeat"), "check_room", full)
    before = refused()
    answer = client.request("POST", "/forecast", content=unreadable, headers=headers)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    assert refused() == before + 1
    elsewhere = unreadable.replace(b"repeat", b"unknown")
    answer = client.request("POST", "/forecast", content=elsewhere, headers=headers)
    assert answer.status_code == 400


def test_a_deadline(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    queued: Future[Arrays] = Future()
    monkeypatch.setattr(Model, "submit", lambda *_, **__: queued)
    answer = client.forecast(BODY, **{"X-Timeout-Ms": "10"})
    assert answer.status_code == 504
    assert answer.json()["error"]["type"] == "deadline_exceeded"
    assert queued.cancelled()


def test_a_bad_deadline(client: Client) -> None:
    error = client.error(BODY, **{"X-Timeout-Ms": "soon"})
    assert (error["code"], error["param"]) == ("422", "X-Timeout-Ms")


def test_headers_that_promise_something_else(client: Client) -> None:
    for headers in ({"content_type": "text/csv"}, {"content_encoding": "gzip"}):
        answer = client.send(b"{}", **headers)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "unreadable")


def test_bodies_over_the_limit(models: Path) -> None:
    with Client(models, max_body_bytes=100) as client:
        assert client.send(b" " * 100).status_code == 400
        answer = client.send(b" " * 101)
        assert (answer.status_code, answer.json()["error"]["type"]) == (413, "too_large")

        async def parts() -> Any:
            for _ in range(30):
                yield b" " * 10

        assert client.request("POST", "/forecast", content=parts()).status_code == 413


def test_more_bodies_than_the_server_may_hold(models: Path) -> None:
    with Client(models, max_body_bytes=100, max_buffered_bytes=150) as client:
        held, gate = asyncio.Event(), asyncio.Event()

        async def slowly() -> Any:
            yield b" " * 60
            held.set()
            await gate.wait()

        async def scene() -> list[httpx.Response]:
            transport = httpx.ASGITransport(client.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://server") as http:
                first = asyncio.create_task(http.post("/forecast", content=slowly()))
                await held.wait()
                refused = await http.post("/forecast", content=b" " * 100)
                gate.set()
                return [refused, await first]

        refused, first = asyncio.run(scene())
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["type"] == "buffers_full"
        assert first.status_code == 400
        assert client.send(b" " * 100).status_code == 400


def test_large_bodies_are_read_and_written_off_the_loop(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []

    def watched(name: str) -> None:
        original = getattr(forms, name)

        def watch(*arguments: Any) -> Any:
            threads.append(threading.current_thread() is threading.main_thread())
            return original(*arguments)

        monkeypatch.setattr(forms, name, watch)

    for name in ("parse", "decode", "encode"):
        watched(name)
    client.forecast(BODY)
    client.forecast({**BODY, "metadata": {"large": "x" * 300_000}})
    assert threads == [True, True, True, False, False, True]


def test_a_full_queue_is_told_before_the_series_are_read(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise QueueFullError("full", retry_after=1)

    monkeypatch.setattr(Model, "check_room", refuse)
    answer = client.forecast({"model": "repeat", "inputs": [{"series": "nonsense"}]})
    assert answer.status_code == 429


def test_shutting_down_closes_the_models(models: Path) -> None:
    with Client(models) as client:

        async def start_and_stop() -> None:
            async with client.app.router.lifespan_context(client.app):
                assert client.repository.ready

        asyncio.run(start_and_stop())
        assert not client.repository.ready
        assert client.forecast(BODY).status_code == 503
