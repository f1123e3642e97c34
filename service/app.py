"""The ASGI application: doors around a repository."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib import metadata

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from foretell.service.doors.budget import BodyBudget
from foretell.service.doors.inference.infer import infer_router
from foretell.service.doors.inference.management import management_router
from foretell.service.doors.openapi import describe_requests
from foretell.service.doors.operations import models_router, probes_router
from foretell.service.doors.timeseries import timeseries_router
from foretell.service.errors import ModelFailedError, ServiceError
from foretell.service.failures import error_body, error_fields, error_object, headers_of, status_of
from foretell.service.metrics import Metrics
from foretell.service.repository import Repository
from foretell.service.settings import Settings
from foretell.service.supervision.readiness import Readiness
from foretell.service.telemetry.tracing import Tracer
from foretell.service.web.entrance import Direct, Guarded, Tracked
from foretell.service.web.keys import Keys
from foretell.service.web.middleware import Observed
from foretell.service.web.offload import Offload

_logger = logging.getLogger(__name__)

_LAST_RUNS_SECONDS = 0.5


def create_app(
    settings: Settings,
    repository: Repository,
    metrics: Metrics,
    *,
    readiness: Readiness | None = None,
    tracer: Tracer | None = None,
) -> FastAPI:
    """Build the application.

    Args:
        settings: Limits.
        repository: The served models; closed when the application shuts down.
        metrics: Where requests are counted.
        readiness: Whether the server can answer; the repository's word if None.
        tracer: Begins the traces of requests; closed when the application shuts down.

    Raises:
        StartError: a file of keys cannot be used.
    """
    budget = BodyBudget(settings.max_buffered_bytes)
    offload = Offload()
    keys = Keys.read(settings)
    readiness = readiness or Readiness(repository)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        offload.close()
        # Every request was answered by now or was cut off: nobody waits for a model any more.
        await asyncio.to_thread(repository.close, _LAST_RUNS_SECONDS)
        if tracer is not None:
            await asyncio.to_thread(tracer.close)

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, ServiceError)  # noqa: S101 - what it is registered for
        metrics.rejected(error.type)
        # Without a cause it says what was logged before.
        if isinstance(error, ModelFailedError) and error.__cause__ is not None:
            _logger.error("model failed", exc_info=error)
        body = error_body(request.url.path, error_object(error))
        return JSONResponse(body, status_of(error), headers_of(error))

    app = FastAPI(
        title="foretell",
        version=metadata.version("foretell"),
        description="Forecasts of verified transformer models. The page at `/docs` loads its "
        "script and style from cdn.jsdelivr.net, which the browser must reach; `/openapi.json` "
        "needs no other host.",
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,
        # `foretell.service.telemetry.tracing` makes the spans, and knows the stages of a forecast.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    forecasts = timeseries_router(repository, settings, budget, offload)
    inferences = infer_router(repository, settings, budget, offload)
    # The last one added is the first to be asked.
    app.add_middleware(Direct, routes=forecasts.routes + inferences.routes, refuse=refuse)
    app.add_middleware(Tracked, requests=repository.requests)
    if keys.required:
        app.add_middleware(Guarded, keys=keys, refuse=refuse)
    app.add_middleware(Observed, metrics=metrics, tracer=tracer)
    app.add_exception_handler(ServiceError, refuse)
    app.add_exception_handler(HTTPException, _refuse_route)
    app.include_router(forecasts)
    app.include_router(models_router(repository, settings))
    app.include_router(inferences)
    app.include_router(
        management_router(
            repository,
            settings,
            budget,
            keys=keys,
            readiness=readiness,
            statistics=metrics.statistics,
        )
    )
    if settings.operations_port is None:
        app.include_router(probes_router(readiness, metrics))
    describe_requests(app, keys=keys.required)
    return app


def create_operations_app(readiness: Readiness, metrics: Metrics) -> FastAPI:
    """The application of a port of its own, for probes and metrics."""
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    app.add_middleware(Observed, metrics=metrics)
    app.add_exception_handler(HTTPException, _refuse_route)
    app.include_router(probes_router(readiness, metrics))
    return app


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


async def _refuse_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
    message = f"{error.detail}: {request.method} {request.url.path[:200]}"
    kind = HTTPStatus(error.status_code).name.lower()
    body = error_body(request.url.path, error_fields(error.status_code, kind, message))
    return JSONResponse(body, error.status_code, error.headers)
