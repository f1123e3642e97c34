from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from foretell.service import tracing
from foretell.service.engine.model import Model
from foretell.service.errors import StartError
from foretell.service.tracing import Tracer, open_tracer
from tests.service.client import Client
from tests.support.process import ROOT

BODY = {"model": "repeat", "inputs": [{"series": [1.0] * 8}] * 3}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(models: Path, spans: InMemorySpanExporter) -> Iterator[Client]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    with Client(models, tracer=Tracer(provider)) as client:
        yield client


def named(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in spans.get_finished_spans()}


def test_spans_of_a_request_and_its_stages(
    traced: Client, spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "foretell.access"):
        assert traced.forecast(BODY, traceparent=PARENT).status_code == 200
        traced.get("/models")
    # The log names the trace.
    given, made = (r.fields["trace_id"] for r in caplog.records if r.name == "foretell.access")
    assert given == TRACE
    assert len(made) == 32
    assert made != given
    found = named(spans)
    del found["GET /models"]
    root = found.pop("POST /forecast")
    assert root.kind is SpanKind.SERVER
    assert root.parent is not None
    assert f"{root.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert f"{root.context.trace_id:032x}" == TRACE
    expected = {"foretell.model": "repeat", "foretell.version": "10", "foretell.windows": 3}
    assert root.attributes == {
        **expected,
        "http.request.method": "POST",
        "http.route": "/forecast",
        "http.response.status_code": 200,
    }
    assert list(found) == ["decode", "queue", "run", "encode"]
    for span in found.values():
        assert span.parent is not None
        assert span.parent.span_id == root.context.span_id
        assert expected.items() <= span.attributes.items()
        assert root.start_time <= span.start_time <= span.end_time <= root.end_time
    assert found["run"].attributes["foretell.batch"] == 3


def test_failures_are_marked(
    traced: Client, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced.forecast({})
    traced.get("/no/such/route")
    monkeypatch.setattr(Model, "submit", lambda *_, **__: 1 / 0)
    traced.forecast(BODY)
    seen = {
        (span.name, span.attributes["http.response.status_code"], span.status.status_code)
        for span in spans.get_finished_spans()
        if span.kind is SpanKind.SERVER
    }
    assert seen == {
        ("POST /forecast", 422, StatusCode.UNSET),
        ("GET unmatched", 404, StatusCode.UNSET),
        ("POST /forecast", 500, StatusCode.ERROR),
    }


def test_sdk_reads_the_otel_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    tracer = open_tracer()
    resource = tracer._provider.resource.attributes
    assert resource["service.name"] == "foretell"
    assert resource["deployment.environment"] == "test"
    tracer.close()


def test_missing_collector_does_not_delay_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracing, "_LAST_SECONDS", 0.01)
    provider, gate = TracerProvider(), threading.Event()
    monkeypatch.setattr(provider, "shutdown", gate.wait)
    Tracer(provider).close()
    assert not gate.is_set()
    gate.set()


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(StartError, match="install foretell with the extra otel"):
        open_tracer()


def test_sdk_is_imported_only_if_tracing_is_on() -> None:
    code = (
        "import sys, foretell.service.server; "
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_requests_that_are_not_sampled_have_no_spans(
    models: Path, spans: InMemorySpanExporter
) -> None:
    provider = TracerProvider(sampler=ALWAYS_OFF)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    with Client(models, tracer=Tracer(provider)) as client:
        assert client.forecast(BODY).status_code == 200
    assert not spans.get_finished_spans()
