"""The ASGI application: doors before an engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from difflib import get_close_matches
from http import HTTPStatus
from importlib import metadata
from itertools import chain

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware, IdentityResponder
from starlette.types import ASGIApp, Receive, Scope, Send

from foretell.service.api.models import models_router
from foretell.service.api.openapi import document_router
from foretell.service.engine.engine import Engine, Status
from foretell.service.engine.registry import public_reason
from foretell.service.errors import error_body, error_fields, is_inference
from foretell.service.forecast.routes import JSON, timeseries_router
from foretell.service.http.auth import Keys
from foretell.service.http.body import MemoryBudget, Offload, Shared
from foretell.service.http.compression import choose_encoding, respond
from foretell.service.http.middleware import (
    AuthMiddleware,
    HotRoutes,
    RequestMiddleware,
    RootPathMiddleware,
)
from foretell.service.http.static import Pages, page_router
from foretell.service.inference.models import control_router, server_router
from foretell.service.inference.models import models_router as inference_models_router
from foretell.service.inference.routes import infer_router
from foretell.service.metrics import Metrics
from foretell.service.nixtla.routes import nixtla_router
from foretell.service.settings import Settings
from foretell.service.tracing import Tracer

_logger = logging.getLogger(__name__)

# What a page of another origin may send, and read of an answer, beside what it always may.
_SENT = [
    *("Authorization", "X-API-Key", "X-Request-Id", "X-Timeout-Ms", "Content-Encoding"),
    *("Inference-Header-Content-Length", "traceparent", "tracestate"),
]
_READ = [
    *("Retry-After", "Server-Timing", "X-Request-Id", "Inference-Header-Content-Length"),
    "X-Foretell-Providers",
]
# Below that an answer is one packet all the same.
_COMPRESSED_BYTES = 1024
# How other servers call a forecast.
_USUAL = {
    *("predict", "prediction", "predictions", "forecasts", "forecast", "infer", "inference"),
    *("invocations", "generate"),
}
_PATH_LENGTH = 100
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


def create_app(settings: Settings, engine: Engine, *, tracer: Tracer | None = None) -> FastAPI:
    """Build the application.

    Args:
        settings: Limits.
        engine: Runs the models; closed when the application shuts down.
        tracer: Begins the traces of requests; closed when the application shuts down.

    Raises:
        StartError: a file of keys cannot be used.
    """
    offload = Offload()
    shared = Shared(engine, settings, MemoryBudget(settings.max_buffered_bytes), offload)
    keys = Keys.read(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        following = asyncio.create_task(keys.follow())
        yield
        following.cancel()
        offload.close()
        # Every request was answered by now or was cut off: nobody waits for a model any more.
        await engine.close()
        if tracer is not None:
            await asyncio.to_thread(tracer.close)

    pages = Pages()
    app = FastAPI(
        title="foretell",
        version=metadata.version("foretell"),
        description="Forecasts of verified transformer models. The page at `/` shows them; `/docs` "
        "has requests to try out.",
        lifespan=lifespan,
        servers=[{"url": settings.root_path}] if settings.root_path else None,
        # FastAPI's own is written on the event loop, and its pages load scripts from elsewhere.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # `foretell.service.tracing` makes the spans, and knows the stages of a forecast.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    forecasts = timeseries_router(shared)
    inferences = infer_router(shared)
    # The last one added runs first. What raises errors runs within `RequestMiddleware`.
    app.add_middleware(Compressed, minimum_size=_COMPRESSED_BYTES, compresslevel=1)
    app.add_middleware(HotRoutes, routes=forecasts.routes + inferences.routes)
    if keys.required:
        app.add_middleware(AuthMiddleware, keys=keys, also_open=pages.paths)
    if settings.root_path:
        app.add_middleware(RootPathMiddleware, prefix=settings.root_path)
    app.add_middleware(RequestMiddleware, metrics=engine.metrics, tracer=tracer)
    if settings.cors_origins:
        # Around all others: browsers show no answer without its headers, and ask without a key.
        # Keys are headers and no cookies, so pages need no credentials, which `*` would forbid.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "HEAD", "POST"],
            allow_headers=_SENT,
            # A page of the open web asks a server of a private network once more.
            allow_private_network=True,
            expose_headers=_READ,
        )
    routers = [
        page_router(pages, settings.root_path or ""),
        document_router(app, keys=keys.required),
        forecasts,
        models_router(engine, settings),
        inferences,
        nixtla_router(shared),
        # Before the paths of models: in /v2/models/stats, `stats` is none.
        server_router(engine, controllable=keys.controllable),
        inference_models_router(engine, settings),
        control_router(shared, keys),
        *([probes_router(engine, keys)] if settings.operations_port is None else ()),
    ]
    _include(app, engine.metrics, routers)
    return app


def create_operations_app(engine: Engine) -> FastAPI:
    """The application of a port of its own, for probes and metrics."""
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    app.add_middleware(Compressed, minimum_size=_COMPRESSED_BYTES, compresslevel=1)
    app.add_middleware(RequestMiddleware, metrics=engine.metrics)
    _include(app, engine.metrics, [probes_router(engine, Keys())])
    return app


class Compressed(GZipMiddleware):
    """ASGI middleware that compresses answers for those who want it, but for `/v2`.

    There, tritonclient's client for asyncio offers gzip and reads only inferences that have it,
    which are compressed where they are written, like forecasts.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        answering: ASGIApp = super().__call__
        if scope["type"] != "http" or is_inference(scope["path"]):
            answering = self.app
        elif choose_encoding(Headers(scope=scope).get("accept-encoding", ""), ("gzip",)) is None:
            # Starlette's looks for the name alone, whatever its weight.
            answering = IdentityResponder(self.app, self.minimum_size)
        await answering(scope, receive, send)


class ByPort:
    """ASGI application that answers requests to one of the server's ports by another one.

    Args:
        app: Answers all other requests.
        port: One of those the server listens on.
        other: Answers what comes to that port.
    """

    def __init__(self, app: ASGIApp, port: int, other: ASGIApp) -> None:
        self._app = app
        self._port = port
        self._other = other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        # The address of the socket, not what the caller's Host header says.
        to_other = scope["type"] == "http" and scope["server"][1] == self._port
        await (self._other if to_other else self._app)(scope, receive, send)


def _include(app: FastAPI, metrics: Metrics, routers: Iterable[APIRouter]) -> None:
    """Have routers answer, and tell who asks for something else where to go."""
    routes: list[APIRoute] = []
    for router in routers:
        app.include_router(router)
        routes += [route for route in router.routes if isinstance(route, APIRoute)]

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
        status, path, headers = error.status_code, request.url.path, error.headers
        message = f"{error.detail}: {request.method} {path[:200]}"
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            same = [route.methods or () for route in routes if route.path_regex.match(path)]
            allowed = {*chain.from_iterable(same)}
            if "GET" in allowed:
                # The middleware has HEAD answered as GET.
                allowed.add("HEAD")
            headers = {"Allow": ", ".join(sorted(allowed))}
            message += f"; it takes {headers['Allow']}"
        elif status == HTTPStatus.NOT_FOUND:
            message += f"; {_elsewhere(path, routes)}"
        kind = HTTPStatus(status).name.lower()
        metrics.rejected(kind)
        body = error_body(path, error_fields(status, kind, message))
        return JSONResponse(body, status, headers)

    app.add_exception_handler(HTTPException, refuse)


def _elsewhere(path: str, routes: Iterable[APIRoute]) -> str:
    """Where to go instead of a path that is not there."""
    given = path[:_PATH_LENGTH].split("/")
    # Where a model stands before a colon, as in /v1/models/name:predict, what is behind it.
    if given[-1].lower().rpartition(":")[2] in _USUAL:
        given = [*given[:-1], "infer"] if given[1:2] == ["v2"] else ["", "forecast"]
    known = {}
    for route in routes:
        # With the model of the path, if it stands behind the same word.
        parts = route.path.split("/")
        for place, part in enumerate(parts[: len(given)]):
            if part[:1] == "{" and given[place] and parts[place - 1] == given[place - 1]:
                parts[place] = given[place]
        if route.include_in_schema:
            known["/".join(parts)] = " ".join([*(route.methods or ()), "/".join(parts)])
    near = get_close_matches("/".join(given), known, 1)
    nearest = [f"the nearest is {known[path]}" for path in near]
    places = ["POST /forecast", "GET /models", "/docs"] if "/forecast" in known else known
    return "; ".join([*nearest, f"see {', '.join(places)}"])


def probes_router(engine: Engine, keys: Keys) -> APIRouter:
    """The routes for what watches the server.

    Args:
        engine: Runs the models.
        keys: Of those who are told why a model does not answer.
    """
    router = APIRouter(tags=["operations"])

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Whether the process is alive."""
        return {"status": "alive"}

    @router.get(
        "/readyz",
        response_model=Status,
        responses={503: {"model": Status, "description": "Something is not served."}},
    )
    async def readyz(request: Request) -> Response:
        """Whether every model is served, and why not, for callers with a key if there are any."""
        status = engine.status
        if not keys.knows(request.headers):
            status.models = {key: public_reason(reason) for key, reason in status.models.items()}
        return Response(status.model_dump_json(), 200 if status.ready else 503, media_type=JSON)

    @router.get("/metrics", response_class=Response)
    async def prometheus(request: Request) -> Response:
        """Metrics in Prometheus' text format."""
        text, accepted = await engine.render(), request.headers.get("accept-encoding", "")
        return await asyncio.to_thread(respond, text, accepted, _METRICS)

    return router
