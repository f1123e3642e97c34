"""Around every request: its id, its log line, its metrics, its trace, and answers to errors.

And who may ask, the short way to what does the work, and the prefix of a proxy.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foretell.service import logs
from foretell.service.engine.registry import Pending
from foretell.service.errors import (
    ModelFailedError,
    NotReadyError,
    ServiceError,
    error_body,
    error_fields,
    error_object,
    let_go,
)
from foretell.service.http.auth import Keys
from foretell.service.metrics import Metrics, Stage
from foretell.service.tracing import Trace, Tracer

_logger = logging.getLogger("foretell.access")

_BUG = "internal_error"
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
# W3C Trace Context: version, trace id, parent id, flags.
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.*")
# Probes and metrics, which are for machines without keys.
_PROBES = {"/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"}
_QUIET = {*_PROBES, "/page/{path:path}"}


def new_identifier() -> str:
    """128 random bits as 32 hexadecimal digits.

    Asking the system for them would let other threads have the interpreter in the middle of every
    request.
    """
    return f"{random.getrandbits(128):032x}"


@dataclass(slots=True)
class RequestContext:
    """What is known of a request while it is answered.

    Attributes:
        request_id: The caller's, if it is printable ASCII of at most 128 characters, or a new one.
        headers: The request's, by their names in lower case; of several of a name, the first.
        trace_id: Of its trace, or else of the caller's `traceparent`, if it sent one.
        trace: Its trace, if requests are traced.
        key: Tells the caller's key from others, if keys are required and it has one.
        model: The model that answers, once known; a bounded set of names, for metrics.
        version: The model's version, likewise.
        windows: Histories that are forecast, once known.
        loading: Seconds that it waited for its model to come into memory.
        stages: What it went through so far, and how many seconds each took.
    """

    request_id: str
    headers: dict[str, str]
    trace_id: str | None = None
    trace: Trace | None = None
    key: str | None = None
    model: str = ""
    version: str = ""
    windows: int = 0
    loading: float = 0.0
    stages: list[tuple[Stage, float]] = field(default_factory=list)

    def staged(self, stage: Stage, began: int) -> None:
        """Note a stage of the answer that has ended, and tell the trace.

        Args:
            stage: Which one.
            began: When, in nanoseconds since 1970.
        """
        ended = time.time_ns()
        self.stages.append((stage, (ended - began) / 1e9))
        if self.trace is not None:
            self.trace.stage(stage, began, ended, self.attributes)

    def ran(self, pending: Pending) -> None:
        """Note what work that is done went through, and tell the trace."""
        self.stages.append(("queue", pending.began - pending.submitted))
        self.stages.append(("run", pending.ended - pending.began))
        self.loading += pending.loading
        if self.trace is None:
            return
        # The batcher's clock does not say what time it is.
        offset = time.time_ns() - time.monotonic_ns()
        submitted, began, ended = (
            offset + round(moment * 1e9)
            for moment in (pending.submitted, pending.began, pending.ended)
        )
        self.trace.stage("queue", submitted, began, self.attributes)
        self.trace.stage("run", began, ended, {**self.attributes, "foretell.batch": pending.batch})

    @property
    def attributes(self) -> dict[str, str | int]:
        """What spans say of it."""
        return {
            "foretell.model": self.model,
            "foretell.version": self.version,
            "foretell.windows": self.windows,
        }


def request_context(scope: Scope) -> RequestContext:
    """The exchange a request belongs to."""
    exchange: RequestContext = scope["state"]["exchange"]
    return exchange


class RequestMiddleware:
    """ASGI middleware that identifies, counts, logs and traces requests, and answers errors.

    Args:
        app: Answers them.
        metrics: Where they are counted.
        tracer: Begins their traces, if requests are traced.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        tracer: Tracer | None = None,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, scope = scope["method"], _for_routes(scope)
        exchange = self._exchange(scope)
        scope.setdefault("state", {})["exchange"] = exchange
        logs.request_id.set(exchange.request_id)
        header = (b"x-request-id", exchange.request_id.encode())
        self._metrics.began()
        started = time.perf_counter()
        status = 0

        async def send_identified(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), header]
                if exchange.loading:
                    took = b"load;dur=%.1f" % (1000 * exchange.loading)
                    message["headers"].append((b"server-timing", took))
            await send(message)

        try:
            try:
                await self._app(scope, receive, send_identified)
            except (ServiceError, asyncio.CancelledError) as error:
                # A request that was answered in part can only be cut off.
                if status:
                    raise
                await self._refusal(scope, error)(scope, receive, send_identified)
        except Exception as error:
            _logger.exception("a request failed for a reason nobody foresaw")
            let_go(error)
            self._metrics.rejected(_BUG)
            if not status:
                failed = error_fields(500, _BUG, "the server failed; its log says why")
                answer = JSONResponse(error_body(scope["path"], failed), 500)
                await answer(scope, receive, send_identified)
        finally:
            self._record(scope, method, exchange, status, time.perf_counter() - started)

    def _refusal(self, scope: Scope, error: ServiceError | asyncio.CancelledError) -> Response:
        """The answer to an error; nothing of the request is held from then on."""
        let_go(error)
        if isinstance(error, asyncio.CancelledError):
            # The grace period is over.
            error = NotReadyError("the server stopped before the answer was ready")
        self._metrics.rejected(error.type)
        # Without a cause it says what was logged before.
        if isinstance(error, ModelFailedError) and error.__cause__ is not None:
            logging.getLogger(__name__).error("model failed", exc_info=error)
        body = error_body(scope["path"], error_object(error))
        return JSONResponse(body, error.status, error.headers)

    def _exchange(self, scope: Scope) -> RequestContext:
        given = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in reversed(scope["headers"])
        }
        request_id = given.get("x-request-id", "")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = new_identifier()
        exchange = RequestContext(request_id, given)
        if self._tracer is not None:
            names = ("traceparent", "tracestate")
            carrier = {name: given[name] for name in names if name in given}
            exchange.trace = self._tracer.begin(carrier, time.time_ns())
            exchange.trace_id = exchange.trace.trace_id
        elif (parent := given.get("traceparent")) and (found := _TRACEPARENT.fullmatch(parent)):
            exchange.trace_id = found[1]
        return exchange

    def _record(
        self, scope: Scope, method: str, exchange: RequestContext, status: int, seconds: float
    ) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        model = (exchange.model, exchange.version) if exchange.model else None
        self._metrics.answered(route, status, seconds, model, exchange.stages)
        if exchange.trace is not None:
            exchange.trace.end(method, route, status, exchange.attributes)
        level = logging.DEBUG if route in _QUIET else logging.INFO
        if _logger.isEnabledFor(level):
            client = scope.get("client") or ("",)
            fields = {
                # As IPv4 has it, of callers that reach a socket of both protocols by it.
                "client": client[0].removeprefix("::ffff:"),
                "key": exchange.key,
                "method": method,
                "path": scope["path"][:200],
                "status": status,
                "milliseconds": round(seconds * 1000, 3),
                "model": exchange.model,
            }
            if exchange.trace_id is not None:
                fields["trace_id"] = exchange.trace_id
            extra = {"fields": fields}
            # Where it was logged is known; finding it out takes longer than all the rest.
            line = _logger.makeRecord(_logger.name, level, "", 0, "request", (), None, extra=extra)
            _logger.handle(line)


def _for_routes(scope: Scope) -> Scope:
    """The scope of a request, with HEAD as GET: the server leaves the body of the answer out."""
    return {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope


# Probes, and what says no more than the manual.
OPEN = frozenset({*_PROBES, "/", "/openapi.json"})


class AuthMiddleware:
    """ASGI middleware that asks for a key. It raises, so it runs within `RequestMiddleware`.

    Args:
        app: What it guards, all but a few paths that are open to everybody.
        keys: The right ones.
        also_open: Further paths that are.
    """

    def __init__(self, app: ASGIApp, keys: Keys, also_open: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._keys = keys
        self._open = OPEN | also_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http" and scope["path"] not in self._open:
            request_context(scope).key = self._keys.require(Headers(scope=scope))
        await self._app(scope, receive, send)


class HotRoutes:
    """ASGI middleware that calls the endpoints that do the work without asking every route.

    It raises what they raise, for `RequestMiddleware`.

    The framework's way to a route, and its dependencies, cost more than a small forecast takes.

    Args:
        app: Answers everything else.
        routes: Of these, those that take POST are called directly; their endpoints take the request
            alone, and return a response.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        hot = [route for route in routes if isinstance(route, APIRoute)]
        hot = [route for route in hot if route.methods == {"POST"}]
        self._fixed = {route.path: route for route in hot if "{" not in route.path}
        self._patterns = [route for route in hot if "{" in route.path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        route = None
        if scope["type"] == "http" and scope["method"] == "POST":
            route = self._fixed.get(scope["path"]) or self._find(scope)
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        response = await route.endpoint(Request(scope, receive))
        await response(scope, receive, send)

    def _find(self, scope: Scope) -> APIRoute | None:
        """The route of a request whose path has parts, which are then known."""
        for route in self._patterns:
            if found := route.path_regex.match(scope["path"]):
                scope["path_params"] = found.groupdict()
                return route
        return None


class RootPathMiddleware:
    """ASGI middleware that takes off what a proxy puts before all paths, if the proxy has not.

    Args:
        app: Knows no prefix.
        prefix: Such as `/forecasts`.
    """

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http":
            before, found, path = scope["path"].partition(self._prefix)
            if not before and found:
                if not path:
                    # What the page names is found next to it: its address has to end with a slash.
                    redirect = RedirectResponse(f"{self._prefix}/", 308)
                    await redirect(scope, receive, send)
                    return
                if path.startswith("/"):
                    scope["path"] = path
        await self._app(scope, receive, send)
