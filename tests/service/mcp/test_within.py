"""Requests that tools send within the process: their traces, memory and failures."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from foretell.service.mcp.results import Result
from foretell.service.metrics import REJECTED
from foretell.service.tracing import Tracer
from tests.service.client import Client, connect

HISTORY = [1.0, 2, 3, 4, 5, 6, 7, 8]
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def call(client: Client, tool: str, given: Any, **headers: str) -> httpx.Response:
    """The answer to a call of a tool, while the application runs."""

    async def act() -> httpx.Response:
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": given},
        }
        named = {"Host": "localhost", "Accept": "application/json", **headers}
        async with client.app.router.lifespan_context(client.app), connect(client.app) as http:
            return await http.post("/mcp", json=message, headers=named)

    return asyncio.run(act())


@pytest.mark.parametrize("is_traced_by_client", [True, False])
def test_spans_of_a_tools_requests_are_below_the_clients(
    repository: Path, is_traced_by_client: bool
) -> None:
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    with Client(repository, tracer=Tracer(provider), mcp=True) as client:
        given = {"model": "calibrated", "inputs": [{"series": HISTORY}]}
        headers = {"traceparent": PARENT} if is_traced_by_client else {}
        assert call(client, "forecast", given, **headers).status_code == 200
        found = {span.name: span for span in spans.get_finished_spans()}
        outer, inner = found["POST /mcp"], found["POST /forecast"]
        assert inner.parent is not None
        assert inner.parent.span_id == outer.context.span_id
        assert (f"{outer.context.trace_id:032x}" == TRACE) is is_traced_by_client
        assert inner.context.trace_id == outer.context.trace_id


def test_memory_is_reserved_until_the_answer_and_given_back(repository: Path) -> None:
    settings = {"max_body_bytes": 1000, "max_buffered_bytes": 20_000}
    with Client(repository, mcp=True, **settings) as client:
        few, many = [{"series": HISTORY}], [{"series": [1] * 400}]
        assert call(client, "forecast", {"model": "calibrated", "inputs": few}).status_code == 200
    with Client(repository, mcp=True, **settings) as client:
        answer = call(client, "forecast", {"model": "calibrated", "inputs": many})
        assert answer.status_code == 413
        assert "max_buffered_bytes" in answer.json()["error"]["message"]


def test_failure_of_a_tool_does_not_show_its_cause(
    repository: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> Result:
        raise RuntimeError("secret")

    with Client(repository, mcp=True) as client:
        monkeypatch.setattr("foretell.service.mcp.models.limited", fail)
        with caplog.at_level(logging.ERROR):
            answer = call(client, "list_models", {})
    assert answer.json()["error"]["message"] == "the server failed; its log says why"
    assert "secret" not in answer.text
    assert "secret" in caplog.text


def test_refusals_of_tools_are_counted(repository: Path) -> None:
    with Client(repository, mcp=True) as client:
        assert call(client, "forecast", {"horizn": 3}).json()["result"]["isError"]
        assert client.metrics.counts.count(REJECTED, "invalid_input") == 1
