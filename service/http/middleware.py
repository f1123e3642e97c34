"""The handling of every request: context, root path, key, route, errors, metrics and log."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foretell.service import logs
from foretell.service.engine.run import Run
from foretell.service.errors import (
    ModelFailedError,
    NotReadyError,
    ServiceError,
    error_body,
    error_fields,
    error_object,
    let_go,
)
from foretell.service.http.auth import Keys, Purpose
from foretell.service.metrics import Metrics, Stage
from foretell.service.tracing import Trace, Tracer

_logger = logging.getLogger("foretell.access")

# The type of unexpected errors.
BUG = "internal_error"
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
# W3C Trace Context: version, trace id, parent id, flags.
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")
# Probes and scrapes come from machines without keys.
_PROBES = {"/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"}
# Paths that need no key: probes, and paths that reveal no more than the manual.
OPEN = frozenset({*_PROBES, "/", "/openapi.json"})
# Routes whose requests are logged at `debug`.
_QUIET = {*_PROBES, "/page/{path:path}"}


@dataclass(slots=True)
class RequestContext:
    """State of a request while it is answered.

    Attributes:
        request_id: Client's id, if it is printable ASCII of at most 128 characters, or a new one.
        headers: Headers by name in lower case; the first one of each name.
        trace_id: Id of the request's trace, or from the client's `traceparent`.
        key: Eight digits that identify the client's key, if it is one of the server's.
        namespace: Namespace of that key; the empty one is shared, also by clients without a key.
        admin: Whether that key is an admin key, which may read and write all namespaces.
        model: Name of the model, once known; always a served one, as metrics have it.
        version: Version of the model.
        digest: Digest of its manifest.
        windows: Number of histories to forecast, once known.
        loading: Seconds that the request waited for its model to be loaded.
        stages: Stages so far, with the seconds of each.
    """

    request_id: str
    headers: dict[str, str]
    trace_id: str | None = None
    trace: Trace | None = None
    key: str | None = None
    namespace: str = ""
    admin: bool = False
    model: str = ""
    version: str = ""
    digest: str = ""
    windows: int = 0
    loading: float = 0.0
    stages: list[tuple[Stage, float]] = field(default_factory=list)
    status: int = 0

    def trace_run(self, pending: Run) -> None:
        """Add the stages of a run that has ended to the trace."""
        assert self.trace is not None  # noqa: S101 - as its caller has seen
        # The scheduler's clock is monotonic, but spans need the time of day.
        offset = time.time_ns() - time.monotonic_ns()
        submitted, began, ended = (
            offset + round(moment * 1e9)
            for moment in (pending.submitted, pending.began, pending.ended)
        )
        self.trace.stage("queue", submitted, began, self.attributes)
        self.trace.stage("run", began, ended, {**self.attributes, "foretell.batch": pending.batch})

    @property
    def attributes(self) -> dict[str, str | int]:
        """Attributes of its spans."""
        return {
            "foretell.model": self.model,
            "foretell.version": self.version,
            "foretell.windows": self.windows,
        }


def request_context(scope: Scope) -> RequestContext:
    """The context of a request within `RequestMiddleware`."""
    context: RequestContext = scope["state"]["context"]
    return context


async def _send(send: Send, context: RequestContext, message: Message) -> None:
    """Send a part of an answer, and add headers to its start."""
    if message["type"] == "http.response.start":
        context.status = message["status"]
        message["headers"] = [*message.get("headers", ()), *_headers_of(context)]
    await send(message)


def _headers_of(context: RequestContext) -> list[tuple[bytes, bytes]]:
    headers = [(b"x-request-id", context.request_id.encode())]
    if context.loading:
        headers.append((b"server-timing", b"load;dur=%.1f" % (1000 * context.loading)))
    return headers


class RequestMiddleware:
    """Gives each request a context, checks its key, answers errors, and counts, logs and traces it.

    A proxy serves the application under `root_path`, and may remove that prefix or not. POST routes
    among the `hot_routes` are called directly: their endpoints take only the request and return a
    response. FastAPI's routing takes longer than a small forecast. `purposes` has routes that need
    other keys than forecasts.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        tracer: Tracer | None = None,
        keys: Keys | None = None,
        open_paths: frozenset[str] = OPEN,
        root_path: str = "",
        hot_routes: Iterable[BaseRoute] = (),
        purposes: Mapping[Purpose, Iterable[BaseRoute]] = MappingProxyType({}),
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._tracer = tracer
        self._keys = keys
        self._open_paths = open_paths
        self._root_path = root_path
        hot = [each for each in hot_routes if isinstance(each, APIRoute)]
        hot = [route for route in hot if route.methods == {"POST"}]
        self._hot_routes = {route.path: route for route in hot if "{" not in route.path}
        self._hot_patterns = [route for route in hot if "{" in route.path]
        self._purposes = [
            (route, purpose)
            for purpose, routes in purposes.items()
            for route in routes
            if isinstance(route, APIRoute)
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        if method == "HEAD":
            # Routes answer HEAD as GET, and the server omits the body.
            scope = {**scope, "method": "GET"}
        context = self._context(scope)
        scope.setdefault("state", {})["context"] = context
        logs.request_id.set(context.request_id)
        self._metrics.in_flight += 1
        started = time.perf_counter()
        plain, send = send, partial(_send, send, context)
        try:
            try:
                app = self._without_root_path(scope) if self._root_path else self._app
                if self._keys is not None and scope["path"] not in self._open_paths:
                    caller = self._keys.require(context.headers, self._purpose(scope))
                    context.key, context.namespace = caller.key, caller.namespace
                    context.admin = caller.admin
                if method == "POST" and (
                    route := self._hot_routes.get(scope["path"]) or self._match(scope)
                ):
                    scope["route"] = route
                    app = await route.endpoint(Request(scope, receive))
                    if type(app) is Response:
                        # It is sent as a whole, so `_send` need not look for its start.
                        context.status, send = app.status_code, plain
                        app.raw_headers += _headers_of(context)
                await app(scope, receive, send)
            except (ServiceError, asyncio.CancelledError) as error:
                if context.status:
                    # The answer has begun: the connection can only be cut off.
                    raise
                await self._error_response(scope, error)(scope, receive, send)
        except Exception as error:
            _logger.exception("a request failed unexpectedly")
            let_go(error)
            self._metrics.rejected(BUG)
            if not context.status:
                fields = error_fields(500, BUG, "the server failed; its log says why")
                response = JSONResponse(error_body(scope["path"], fields), 500)
                await response(scope, receive, send)
        finally:
            self._record(scope, method, context, time.perf_counter() - started)

    def _error_response(
        self, scope: Scope, error: ServiceError | asyncio.CancelledError
    ) -> Response:
        """The answer to an error, which no longer holds the request."""
        let_go(error)
        if isinstance(error, asyncio.CancelledError):
            # The grace period is over.
            error = NotReadyError("the server stopped before the answer was ready")
        self._metrics.rejected(error.type)
        # An error without a cause repeats an error that was logged before.
        if isinstance(error, ModelFailedError) and error.__cause__ is not None:
            logging.getLogger(__name__).error("model failed", exc_info=error)
        body = error_body(scope["path"], error_object(error))
        return JSONResponse(body, error.status, error.headers)

    def _without_root_path(self, scope: Scope) -> ASGIApp:
        """Remove the prefix from the path; the prefix without a slash is redirected."""
        path = scope["path"].removeprefix(self._root_path)
        if path.startswith("/"):
            scope["path"] = path
        elif not path:
            # The page's links are relative to a URL that ends with a slash.
            scope["path"] = "/"
            return RedirectResponse(f"{self._root_path}/", 308)
        return self._app

    def _purpose(self, scope: Scope) -> Purpose:
        """The purpose of the request's route; routes of one path may differ in it.

        Another method has the purpose of the path's first route.
        """
        found = None
        for route, purpose in self._purposes:
            if route.path_regex.match(scope["path"]):
                if scope["method"] in (route.methods or ()):
                    return purpose
                found = found or purpose
        return found or Purpose.FORECAST

    def _match(self, scope: Scope) -> APIRoute | None:
        for route in self._hot_patterns:
            if match := route.path_regex.match(scope["path"]):
                scope["path_params"] = match.groupdict()
                return route
        return None

    def _context(self, scope: Scope) -> RequestContext:
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in reversed(scope["headers"])
        }
        request_id = headers.get("x-request-id", "")
        if not _REQUEST_ID.fullmatch(request_id):
            # The system's random bits would release the interpreter to other threads.
            request_id = f"{random.getrandbits(128):032x}"
        context = RequestContext(request_id, headers)
        if self._tracer is not None:
            context.trace = self._tracer.begin(headers, time.time_ns())
            context.trace_id = context.trace.trace_id
        elif (parent := headers.get("traceparent")) and (ids := _TRACEPARENT.fullmatch(parent)):
            context.trace_id = ids[1]
        return context

    def _record(self, scope: Scope, method: str, context: RequestContext, seconds: float) -> None:
        status = context.status
        route = getattr(scope.get("route"), "path", "unmatched")
        model = (context.model, context.version) if context.model else None
        self._metrics.answered(route, status, seconds, model, context.stages)
        if context.trace is not None:
            context.trace.end(method, route, status, context.attributes)
        level = logging.DEBUG if route in _QUIET else logging.INFO
        if not _logger.isEnabledFor(level):
            return
        client = scope.get("client") or ("",)
        fields = {
            # A socket for both IPv4 and IPv6 shows IPv4 addresses with this prefix.
            "client": client[0].removeprefix("::ffff:"),
            "key": context.key,
            "method": method,
            "path": scope["path"][:200],
            "status": status,
            "milliseconds": round(seconds * 1000, 3),
            "model": context.model,
        }
        if context.digest:
            fields["digest"] = context.digest
        if context.trace_id is not None:
            fields["trace_id"] = context.trace_id
        # `_logger.log` would look for the caller's file and line, which takes longer than the rest.
        line = _logger.makeRecord(
            _logger.name, level, "", 0, "request", (), None, extra={"fields": fields}
        )
        _logger.handle(line)
