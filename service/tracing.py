"""Traces of requests, with the extra `otel`.

OpenTelemetry's own `OTEL_*` variables configure the export. FastAPI's telemetry and OpenTelemetry's
instrumentation cover neither the stages of a forecast nor the hot routes, which bypass FastAPI.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from importlib import import_module, metadata
from typing import Any

from foretell.service.errors import StartError

_NAME = "foretell"
_LAST_SECONDS = 2.0
_SERVER_ERRORS = 500

Attributes = Mapping[str, str | int]


class Tracer:
    """Starts the traces of requests, with an `opentelemetry.sdk.trace.TracerProvider`."""

    def __init__(self, provider: Any) -> None:  # noqa: ANN401 - imported on use
        self.api: Any = import_module("opentelemetry.trace")
        self.tracer: Any = provider.get_tracer(_NAME, metadata.version(_NAME))
        self._provider = provider
        context: Any = import_module("opentelemetry.trace.propagation.tracecontext")
        self.propagator: Any = context.TraceContextTextMapPropagator()

    def begin(self, headers: Mapping[str, str], nanoseconds: int) -> Trace:
        """Start the trace of a request; `nanoseconds` is its time since 1970.

        It joins the trace of the headers `traceparent` and `tracestate`, if present.
        """
        parent = self.propagator.extract(headers)
        kind = self.api.SpanKind.SERVER
        return Trace(self, self.tracer.start_span("HTTP", parent, kind, start_time=nanoseconds))

    def close(self) -> None:
        """Export the last spans, within two seconds: OpenTelemetry itself would wait longer."""
        last = threading.Thread(target=self._provider.shutdown, daemon=True)
        last.start()
        last.join(_LAST_SECONDS)


class Trace:
    """The span of a request, and spans of its stages."""

    def __init__(self, tracer: Tracer, span: Any) -> None:  # noqa: ANN401 - imported on use
        self._tracer = tracer
        self._span = span
        self.trace_id: str = tracer.api.format_trace_id(span.get_span_context().trace_id)

    def stage(self, name: str, began: int, ended: int, attributes: Attributes) -> None:
        """Add the span of a stage, from `began` to `ended` in nanoseconds since 1970."""
        if self._span.is_recording():
            parent = self._tracer.api.set_span_in_context(self._span)
            stage = self._tracer.tracer.start_span(
                name, parent, attributes=attributes, start_time=began
            )
            stage.end(ended)

    def headers(self) -> dict[str, str]:
        """Headers of a further request, whose span this one is the parent of."""
        headers: dict[str, str] = {}
        api = self._tracer.api
        self._tracer.propagator.inject(headers, api.set_span_in_context(self._span))
        return headers

    def end(self, method: str, route: str, status: int, attributes: Attributes) -> None:
        """End the span of the request; `route` is the route's pattern."""
        if self._span.is_recording():
            http = {
                "http.request.method": method,
                "http.route": route,
                "http.response.status_code": status,
            }
            self._span.update_name(f"{method} {route}")
            self._span.set_attributes({**http, **attributes})
            if status >= _SERVER_ERRORS:
                self._span.set_status(self._tracer.api.StatusCode.ERROR)
        self._span.end()


def open_tracer() -> Tracer:
    """A tracer configured by the `OTEL_*` variables; StartError without OpenTelemetry."""
    try:
        resources: Any = import_module("opentelemetry.sdk.resources")
        sdk: Any = import_module("opentelemetry.sdk.trace")
        export: Any = import_module("opentelemetry.sdk.trace.export")
        otlp: Any = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ModuleNotFoundError as error:
        raise StartError(
            f"traces: {error.name} is not installed; install foretell with the extra otel"
        ) from None
    resource = resources.Resource.create()
    if resource.attributes["service.name"].startswith("unknown_service"):
        resource = resource.merge(resources.Resource({"service.name": _NAME}))
    provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    return Tracer(provider)
