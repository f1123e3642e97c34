"""Requests that tools send within the process: their traces, memory and failures."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp_types.version import LATEST_MODERN_VERSION
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from foretell.service.metrics import REJECTED
from foretell.service.tracing import Tracer
from tests.service.client import Client, connect

HISTORY = [1.0, 2, 3, 4, 5, 6, 7, 8]
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def call(client: Client, tool: str, given: Any, **headers: str) -> httpx.Response:
    """The answer to a call of a tool, while the application runs."""
    return sent(client, tool, json.dumps(given, separators=(",", ":")), **headers)


def sent(
    client: Client, tool: str, arguments: str, *, modern: bool = False, **headers: str
) -> httpx.Response:
    """The answer to a call with arguments as text, by the newest version of the protocol or not."""
    named = {
        "Host": "localhost",
        "Accept": "application/json",
        "Content-Type": "application/json",
        **headers,
    }
    meta = ""
    if modern:
        named |= {
            "MCP-Protocol-Version": LATEST_MODERN_VERSION,
            "Mcp-Method": "tools/call",
            "Mcp-Name": tool,
        }
        prefix = "io.modelcontextprotocol"
        meta = (
            f', "_meta": {{"{prefix}/protocolVersion": "{LATEST_MODERN_VERSION}", '
            f'"{prefix}/clientCapabilities": {{}}}}'
        )
    content = (
        '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": '
        f'{{"name": "{tool}", "arguments": {arguments}{meta}}}}}'
    )

    async def act() -> httpx.Response:
        async with client.app.router.lifespan_context(client.app), connect(client.app) as http:
            return await http.post("/mcp", content=content, headers=named)

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
    def fail(*_: object) -> None:
        raise RuntimeError("secret")

    with Client(repository, mcp=True) as client:
        monkeypatch.setattr("foretell.service.mcp.models._facts", fail)
        with caplog.at_level(logging.ERROR):
            answer = call(client, "list_models", {})
        assert client.metrics.counts.count(REJECTED, "internal_error") == 1
    assert answer.json()["error"]["message"] == "the server failed; its log says why"
    assert "secret" not in answer.text
    assert "secret" in caplog.text


def test_refusals_of_tools_are_counted(repository: Path) -> None:
    with Client(repository, mcp=True) as client:
        assert call(client, "forecast", {"horizn": 3}).json()["result"]["isError"]
        assert client.metrics.counts.count(REJECTED, "invalid_input") == 1


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize(
    ("value", "missing", "message"),
    [
        ("Infinity", "ffill", "inputs[0].series[8]: expected a finite number of at most 3.4e38 "),
        ("1e999", "ffill", "inputs[0].series[8]: expected a finite number of at most 3.4e38 "),
        ("NaN", "error", "inputs[0].series[8]: a value is missing (NaN), and missing is 'error'"),
        (f"{10**400}", "ffill", "inputs[0].series[8]: "),
    ],
)
def test_numbers_that_are_not_finite_are_refused(
    repository: Path, value: str, missing: str, message: str, modern: bool
) -> None:
    series = f"[1, 2, 3, 4, 5, 6, 7, 8, {value}]"
    given = f'{{"model": "calibrated", "inputs": [{{"series": {series}}}], "missing": "{missing}"}}'
    with Client(repository, mcp=True) as client:
        answer = sent(client, "forecast", given, modern=modern).json()["result"]
        assert answer["isError"]
        assert answer["content"][0]["text"].startswith(message)


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("forecast", r'{"model": "calibrated", "inputs": [{"name": "\ud800", "series": [1]}]}'),
        ("forecast", f'{{"model": "calibrated", "inputs": {"[" * 300}{"]" * 300}}}'),
        ("list_models", r'{"\udfff": 1}'),
    ],
)
def test_messages_that_are_not_json_are_refused_with_the_place(
    repository: Path, tool: str, given: str, modern: bool
) -> None:
    with Client(repository, mcp=True) as client:
        answer = sent(client, tool, given, modern=modern)
        assert answer.status_code == 400
        assert "the body is not JSON: " in answer.json()["error"]["message"]
        assert "line 1 column " in answer.json()["error"]["message"]
        assert client.metrics.counts.count(REJECTED, "internal_error") == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"targets": ["c1", "none"]}, "targets[1]: no forecast channel 'none'"),
        ({"horizon": 16}, "the result has 4,800 numbers, and may have 4,000; "),
        (
            {"targets": ["c1"], "horizon": 16, "inputs": 25},
            "the forecasts of all 300 channels have 120,000 ",
        ),
    ],
)
def test_refused_forecasts_do_not_run(repository: Path, more: Any, message: str) -> None:
    """They would reach the ledger."""
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    count = more.pop("inputs", 1)
    given = {"model": "wide", "inputs": [{"series": [[1] * 300] * 8}] * count, **more}
    with Client(repository, tracer=Tracer(provider), mcp=True) as client:
        result = call(client, "forecast", given).json()["result"]
        assert result["isError"]
        assert result["content"][0]["text"].startswith(message)
        assert "POST /forecast" not in {span.name for span in spans.get_finished_spans()}


@pytest.mark.parametrize(("most", "fits"), [(2_500_000, False), (6_000_000, True)])
def test_answers_of_routes_take_memory_and_large_results_are_compressed(
    repository: Path, most: int, fits: bool
) -> None:
    inputs = [{"name": f"series-{number}", "series": HISTORY} for number in range(600)]
    given = {"model": "calibrated", "inputs": inputs}
    settings = {"max_body_bytes": 100_000, "max_buffered_bytes": most}
    with Client(repository, mcp=True, **settings) as client:
        answer = call(client, "forecast", given, **{"Accept-Encoding": "gzip"})
    result = answer.json()["result"]
    assert result["isError"] is not fits
    if fits:
        assert answer.headers["content-encoding"] == "gzip"
        assert len(result["structuredContent"]["forecasts"]) == 600
    else:
        assert "max_buffered_bytes" in result["content"][0]["text"]
