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

from service.doors.budget import BodyBudget
from service.doors.operations import operations_router
from service.doors.timeseries import timeseries_router
from service.errors import ModelFailedError, QueueFullError, ServiceError
from service.failures import error_fields, error_object, status_of
from service.metrics import Metrics
from service.middleware import Observed
from service.offload import Offload
from service.openapi import describe_requests
from service.repository import Repository
from service.settings import Settings

_logger = logging.getLogger(__name__)

_LAST_RUNS_SECONDS = 0.5


def create_app(settings: Settings, repository: Repository, metrics: Metrics) -> FastAPI:
    """Build the application.

    Args:
        settings: Limits.
        repository: The served models; closed when the application shuts down.
        metrics: Where requests are counted.
    """
    budget = BodyBudget(settings.max_buffered_bytes)
    offload = Offload()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        offload.close()
        # Every request was answered by now or was cut off: nobody waits for a model any more.
        await asyncio.to_thread(repository.close, _LAST_RUNS_SECONDS)

    async def refuse(_: Request, error: Exception) -> Response:
        assert isinstance(error, ServiceError)  # noqa: S101 - what it is registered for
        metrics.rejected(error.type)
        if isinstance(error, ModelFailedError):
            _logger.error("model failed", exc_info=error)
        headers = {}
        if isinstance(error, QueueFullError):
            headers["Retry-After"] = str(error.retry_after)
        return JSONResponse({"error": error_object(error)}, status_of(error), headers)

    async def refuse_route(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
        message = f"{error.detail}: {request.method} {request.url.path[:200]}"
        kind = HTTPStatus(error.status_code).name.lower()
        body = {"error": error_fields(error.status_code, kind, message)}
        return JSONResponse(body, error.status_code, error.headers)

    app = FastAPI(
        title="foretell",
        version=metadata.version("foretell"),
        description="Forecasts of verified transformer models. The page at `/docs` loads its "
        "script and style from cdn.jsdelivr.net, which the browser must reach; `/openapi.json` "
        "needs no other host.",
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_middleware(Observed, metrics=metrics)
    app.add_exception_handler(ServiceError, refuse)
    app.add_exception_handler(HTTPException, refuse_route)
    app.include_router(timeseries_router(repository, settings, budget, offload))
    app.include_router(operations_router(repository, metrics))
    describe_requests(app)
    return app
