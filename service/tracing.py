"""Traces of requests, for those who installed the extra `otel` and turned them on.

What is exported, where to and how much of it is set by OpenTelemetry's own `OTEL_*` variables.
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
    """Begins the traces of requests.

    Args:
        provider: An `opentelemetry.sdk.trace.TracerProvider`.
    """

    def __init__(self, provider: Any) -> None:  # noqa: ANN401 - imported on use
        self._api: Any = import_module("opentelemetry.trace")
        self._propagator: Any = import_module(
            "opentelemetry.trace.propagation.tracecontext"
        ).TraceContextTextMapPropagator()
        self._provider = provider
        self._tracer: Any = provider.get_tracer(_NAME, metadata.version(_NAME))

    def begin(self, headers: Mapping[str, str], nanoseconds: int) -> Trace:
        """The trace of a request.

        Args:
            headers: `traceparent` and `tracestate`, where the request has them.
            nanoseconds: When the request came, since 1970.
        """
        parent = self._propagator.extract(headers)
        kind = self._api.SpanKind.SERVER
        span = self._tracer.start_span("HTTP", parent, kind, start_time=nanoseconds)
        return Trace(self._api, self._tracer, span)

    def close(self) -> None:
        """Export what has not been, within a few seconds: the collector may be gone."""
        # OpenTelemetry's own limits are longer than a stop may take.
        last = threading.Thread(target=self._provider.shutdown, daemon=True)
        last.start()
        last.join(_LAST_SECONDS)


class Trace:
    """The span of a request, and what happens within it.

    Args:
        api: The module `opentelemetry.trace`.
        tracer: Of the server.
        span: Of the request.

    Attributes:
        trace_id: 32 hexadecimal digits.
    """

    def __init__(self, api: Any, tracer: Any, span: Any) -> None:  # noqa: ANN401 - imported on use
        self._api = api
        self._tracer = tracer
        self._span = span
        self.trace_id: str = api.format_trace_id(span.get_span_context().trace_id)

    def stage(self, name: str, began: int, ended: int, attributes: Attributes) -> None:
        """Add a span of what the request went through.

        Args:
            name: The stage's.
            began: Nanoseconds since 1970.
            ended: Likewise.
            attributes: What else is known of it.
        """
        if self._span.is_recording():
            context = self._api.set_span_in_context(self._span)
            span = self._tracer.start_span(name, context, attributes=attributes, start_time=began)
            span.end(ended)

    def end(self, method: str, route: str, status: int, attributes: Attributes) -> None:
        """The request was answered.

        Args:
            method: GET, POST, …
            route: The route's pattern.
            status: Of the answer.
            attributes: What else is known of the request.
        """
        if self._span.is_recording():
            self._span.update_name(f"{method} {route}")
            self._span.set_attributes(
                {
                    "http.request.method": method,
                    "http.route": route,
                    "http.response.status_code": status,
                    **attributes,
                }
            )
            if status >= _SERVER_ERRORS:
                self._span.set_status(self._api.StatusCode.ERROR)
        self._span.end()


def open_tracer() -> Tracer:
    """A tracer that exports to where the `OTEL_*` variables say.

    Raises:
        StartError: OpenTelemetry is not installed.
    """
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
