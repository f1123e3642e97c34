"""Around every request: its id, its line in the log, its metrics, and the last resort."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from dataclasses import dataclass

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import logs
from service.errors import NotReadyError
from service.failures import error_fields, error_object, status_of
from service.metrics import Metrics

_logger = logging.getLogger("foretell.access")

_REQUEST_ID = re.compile(r"[!-~]{1,128}")
# W3C Trace Context: version, trace id, parent id, flags.
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")
_QUIET = {"/healthz", "/readyz", "/metrics"}


@dataclass
class Exchange:
    """What is known of a request while it is answered.

    Attributes:
        request_id: The caller's, if it is printable ASCII of at most 128 characters, or a new one.
        trace_id: Of the caller's `traceparent`, if it sent one.
        model: The model that answers, once known; a bounded set of names, for metrics.
    """

    request_id: str
    trace_id: str | None = None
    model: str = ""


def exchange_of(scope: Scope) -> Exchange:
    """The exchange a request belongs to."""
    exchange: Exchange = scope["state"]["exchange"]
    return exchange


class Observed:
    """ASGI middleware that identifies, counts and logs requests."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _exchange(Headers(scope=scope))
        scope.setdefault("state", {})["exchange"] = exchange
        logs.request_id.set(exchange.request_id)
        started = time.perf_counter()
        status = 0

        async def send_identified(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = exchange.request_id
            await send(message)

        try:
            await self._app(scope, receive, send_identified)
        except asyncio.CancelledError:
            # The grace period is over. A request that was answered in part can only be cut off.
            if status:
                raise
            stopped = NotReadyError("the server stopped before the answer was ready")
            self._metrics.rejected(stopped.type)
            await _send_error(send_identified, status_of(stopped), error_object(stopped))
        except Exception:
            _logger.exception("a request failed for a reason nobody foresaw")
            if not status:
                failed = error_fields(500, "internal_error", "the server failed; its log says why")
                await _send_error(send_identified, 500, failed)
        finally:
            self._record(scope, exchange, status, time.perf_counter() - started)

    def _record(self, scope: Scope, exchange: Exchange, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        self._metrics.answered(route, exchange.model, status, seconds)
        level = logging.DEBUG if route in _QUIET else logging.INFO
        if _logger.isEnabledFor(level):
            fields = {
                "method": scope["method"],
                "path": scope["path"][:200],
                "status": status,
                "milliseconds": round(seconds * 1000, 3),
                "model": exchange.model,
            }
            if exchange.trace_id is not None:
                fields["trace_id"] = exchange.trace_id
            _logger.log(level, "request", extra={"fields": fields})


def _exchange(headers: Headers) -> Exchange:
    given = headers.get("x-request-id", "")
    trace = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    return Exchange(
        request_id=given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex,
        trace_id=trace[1] if trace else None,
    )


async def _send_error(send: Send, status: int, error: dict[str, str | None]) -> None:
    body = orjson.dumps({"error": error})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
