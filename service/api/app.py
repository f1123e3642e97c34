"""The ASGI application: the routes and the middleware of an HTTP worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from difflib import get_close_matches
from http import HTTPStatus
from importlib import metadata
from typing import Protocol

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware, IdentityResponder
from starlette.types import ASGIApp, Receive, Scope, Send

from foretell.service.api.ledger import actuals_router, scores_router
from foretell.service.api.models import models_router
from foretell.service.api.openapi import document_router
from foretell.service.engine.engine import Engine, Status
from foretell.service.engine.registry import public_reason
from foretell.service.errors import error_body, error_fields, is_inference
from foretell.service.forecast.routes import timeseries_router
from foretell.service.http.auth import Keys, Purpose
from foretell.service.http.body import JSON, MemoryBudget, Offload
from foretell.service.http.compression import choose_encoding, respond
from foretell.service.http.middleware import OPEN, RequestMiddleware
from foretell.service.http.pipeline import Shared
from foretell.service.http.static import Pages, page_router
from foretell.service.inference.routes import control_router, infer_router, server_router
from foretell.service.inference.routes import models_router as inference_models_router
from foretell.service.metrics import Metrics
from foretell.service.nixtla.routes import nixtla_router
from foretell.service.settings import Settings
from foretell.service.tracing import Tracer

# CORS: headers that a page of another origin may send, and read in answers.
_SENT_HEADERS = [
    *("Authorization", "X-API-Key", "X-Request-Id", "X-Timeout-Ms", "Content-Encoding"),
    *("Inference-Header-Content-Length", "traceparent", "tracestate"),
]
_AGENTS_HEADERS = ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"]
_READ_HEADERS = [
    *("Retry-After", "Server-Timing", "X-Request-Id", "Inference-Header-Content-Length"),
    "X-Foretell-Providers",
]
# Smaller answers are one packet, compressed or not.
_COMPRESSED_BYTES = 1024
# Names of the forecast route on other servers.
_FORECAST_NAMES = {
    *("predict", "prediction", "predictions", "forecasts", "forecast", "infer", "inference"),
    *("invocations", "generate"),
}
_PATH_LENGTH = 100
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Agents(Protocol):
    """The route of agents, and the block within which it serves."""

    router: APIRouter

    def run(self) -> AbstractAsyncContextManager[None]: ...


def create_app(
    settings: Settings,
    engine: Engine,
    *,
    tracer: Tracer | None = None,
    agents: Callable[[Shared, ASGIApp], Agents] | None = None,
) -> FastAPI:
    """Build the application, which closes the engine and the tracer when it shuts down.

    `agents` makes the route of agents, if there is one, for the application itself.
    """
    offload = Offload()
    shared = Shared(engine, settings, MemoryBudget(settings.max_buffered_bytes), offload)
    keys = Keys.read(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        following = asyncio.create_task(keys.follow())
        async with nullcontext() if served is None else served.run():
            yield
        following.cancel()
        offload.close()
        # By now every request has been answered or cut off.
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
        # FastAPI would write the document on the event loop, and its pages load scripts from other
        # hosts.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # `foretell.service.tracing` makes the spans.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    served = None if agents is None else agents(shared, app)
    forecasts = timeseries_router(shared)
    inferences = infer_router(shared)
    nixtla = nixtla_router(shared)
    actuals, scores = actuals_router(shared), scores_router(shared)
    # The middleware that is added last runs first.
    app.add_middleware(Compressed, minimum_size=_COMPRESSED_BYTES, compresslevel=1)
    app.add_middleware(
        RequestMiddleware,
        metrics=engine.metrics,
        tracer=tracer,
        keys=keys,
        open_paths=OPEN | pages.paths,
        root_path=settings.root_path or "",
        hot_routes=[*forecasts.routes, *inferences.routes, *nixtla.routes, *actuals.routes],
        purposes={Purpose.ACTUALS: actuals.routes, Purpose.LEDGER: scores.routes},
    )
    if settings.cors_origins:
        # It runs first: browsers need its headers on errors too, and send preflights without a key.
        # Keys are headers and not cookies: pages need no credentials, which `*` would forbid.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["DELETE", "GET", "HEAD", "POST"],
            allow_headers=[*_SENT_HEADERS, *(_AGENTS_HEADERS if served else ())],
            # Browsers send another preflight from public pages to servers of private networks.
            allow_private_network=True,
            expose_headers=_READ_HEADERS,
        )
    routers = [
        page_router(pages, settings.root_path or ""),
        document_router(app, keys=keys.required),
        forecasts,
        models_router(engine, settings),
        scores,
        actuals,
        inferences,
        nixtla,
        # Before the routes of models: in /v2/models/stats, `stats` is not a model.
        server_router(engine, controllable=keys.controllable),
        inference_models_router(shared),
        control_router(shared, keys),
        *([served.router] if served else ()),
        *([probes_router(engine, keys)] if settings.operations_port is None else ()),
    ]
    _include(app, engine.metrics, routers)
    return app


def create_operations_app(engine: Engine) -> FastAPI:
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    app.add_middleware(Compressed, minimum_size=_COMPRESSED_BYTES, compresslevel=1)
    app.add_middleware(RequestMiddleware, metrics=engine.metrics)
    _include(app, engine.metrics, [probes_router(engine, Keys())])
    return app


class Compressed(GZipMiddleware):
    """Compresses answers for clients that accept gzip, except under `/v2`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp = super().__call__
        # Under /v2 the route compresses inferences. The rest stays as it is: tritonclient's client
        # for asyncio accepts gzip and does not decompress it.
        if scope["type"] != "http" or is_inference(scope["path"]):
            app = self.app
        elif choose_encoding(Headers(scope=scope).get("accept-encoding", ""), ("gzip",)) is None:
            # Starlette would ignore a weight of 0.
            app = IdentityResponder(self.app, self.minimum_size)
        await app(scope, receive, send)


def by_port(app: ASGIApp, port: int, other: ASGIApp) -> ASGIApp:
    """An application that sends requests to one of the server's ports to `other`."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        # The port of the socket, not of the Host header.
        to_other = scope["type"] == "http" and scope["server"][1] == port
        await (other if to_other else app)(scope, receive, send)

    return serve


def _include(app: FastAPI, metrics: Metrics, routers: Iterable[APIRouter]) -> None:
    """Add routers, and errors for other paths and methods, which suggest the right ones."""
    routes: list[APIRoute] = []
    for router in routers:
        app.include_router(router)
        routes += [route for route in router.routes if isinstance(route, APIRoute)]

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
        status, path, headers = error.status_code, request.url.path, error.headers
        message = f"{error.detail}: {request.method} {path[:200]}"
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            same = [route.methods or set() for route in routes if route.path_regex.match(path)]
            allowed = set[str]().union(*same)
            if "GET" in allowed:
                # `RequestMiddleware` handles it.
                allowed.add("HEAD")
            headers = {"Allow": ", ".join(sorted(allowed))}
            message += f"; it takes {headers['Allow']}"
        elif status == HTTPStatus.NOT_FOUND:
            message += f"; {_nearest(path, routes)}"
        kind = HTTPStatus(status).name.lower()
        metrics.rejected(kind)
        body = error_body(path, error_fields(status, kind, message))
        return JSONResponse(body, status, headers)

    app.add_exception_handler(HTTPException, refuse)


def _nearest(path: str, routes: Iterable[APIRoute]) -> str:
    """The route that is most like an unknown path."""
    parts = path[:_PATH_LENGTH].split("/")
    # The name may follow a colon, as in /v1/models/name:predict.
    if parts[-1].lower().rpartition(":")[2] in _FORECAST_NAMES:
        parts = [*parts[:-1], "infer"] if parts[1:2] == ["v2"] else ["", "forecast"]
    known = {}
    for route in routes:
        # Fill in parameters that follow the same word in the path.
        filled = route.path.split("/")
        for place, part in enumerate(filled[: len(parts)]):
            if part[:1] == "{" and parts[place] and filled[place - 1] == parts[place - 1]:
                filled[place] = parts[place]
        # Routes that the document lacks, such as /mcp, are not offered for other paths.
        if route.include_in_schema or route.path == path.rstrip("/"):
            known["/".join(filled)] = " ".join([*(route.methods or ()), "/".join(filled)])
    matches = get_close_matches("/".join(parts), known, 1)
    places = ["POST /forecast", "GET /models", "/docs"] if "/forecast" in known else known
    return "; ".join(
        [f"the nearest is {known[match]}" for match in matches] + [f"see {', '.join(places)}"]
    )


def probes_router(engine: Engine, keys: Keys) -> APIRouter:
    """The routes for probes and metrics; reasons of failures are for clients with a key."""
    router = APIRouter(tags=["operations"])

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Whether the process is alive."""
        return {"status": "alive"}

    @router.get(
        "/readyz",
        response_model=Status,
        responses={503: {"model": Status, "description": "Not ready."}},
    )
    async def readyz(request: Request) -> Response:
        """Whether every model is served; clients with a key also see the reasons why not."""
        await engine.updated()
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
