"""What the server and its models are, whether they can answer, and what they have done."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from fastapi import APIRouter, Request, Response

from foretell.service.doors.inference.metadata import configuration, describe
from foretell.service.doors.inference.routes import add_model_route, find_model
from foretell.service.doors.inference.wire import (
    ModelHealth,
    ModelMetadata,
    ServerHealth,
    ServerMetadata,
)
from foretell.service.engines import Engine
from foretell.service.errors import ModelFailedError
from foretell.service.settings import Settings
from foretell.service.statistics import StatisticsReport

_EXTENSIONS = ["binary_tensor_data", "model_configuration", "statistics"]
_CONTROL = ["model_repository"]


def server_router(engine: Engine, *, controllable: bool) -> APIRouter:
    """The routes of the server.

    Args:
        engine: Runs the models.
        controllable: Whether models can be loaded and unloaded by this door.
    """
    router = APIRouter(tags=["inference"])
    extensions = _EXTENSIONS + (_CONTROL if controllable else [])

    @router.get("/v2")
    async def server() -> ServerMetadata:
        """The server, and the extensions of the protocol that work here."""
        return ServerMetadata(
            name="foretell", version=metadata.version("foretell"), extensions=extensions
        )

    @router.get("/v2/health/live")
    async def live() -> ServerHealth:
        """Whether the server runs."""
        return ServerHealth(live=True, ready=engine.status.ready)

    @router.get(
        "/v2/health/ready", responses={503: {"model": ServerHealth, "description": "Not ready."}}
    )
    async def ready(response: Response) -> ServerHealth:
        """Whether every model is served."""
        health = ServerHealth(live=True, ready=engine.status.ready)
        if not health.ready:
            response.status_code = 503
        return health

    @router.get("/v2/models/stats")
    async def stats() -> StatisticsReport:
        """Counts of every version that is loaded, since the server started."""
        models = engine.directory.models
        return await engine.statistics((model.name, model.version) for model in models)

    return router


def models_router(engine: Engine, settings: Settings) -> APIRouter:
    """The routes of models.

    Args:
        engine: Runs them.
        settings: Limits.
    """
    router = APIRouter(tags=["inference"])

    async def about(request: Request) -> ModelMetadata:
        """What a model takes and returns; outputs of attention are answered if they are named."""
        model = find_model(engine, request)
        return describe(model, engine.directory.versions(model.name))

    async def ready(request: Request) -> ModelHealth:
        """Whether a model answers."""
        model = find_model(engine, request)
        if model.failure is not None:
            raise ModelFailedError(f"{model.name} has failed; /readyz says why")
        return ModelHealth(name=model.name, ready=True)

    async def config(request: Request) -> dict[str, Any]:
        """What is true of a model of Triton's ModelConfig."""
        return configuration(find_model(engine, request), settings)

    async def stats(request: Request) -> StatisticsReport:
        """Counts of every version of a model that is loaded, or of one."""
        model = find_model(engine, request)
        versions = engine.directory.versions(model.name)
        if "version" in request.path_params:
            versions = [model.version]
        return await engine.statistics((model.name, version) for version in versions)

    add_model_route(router, "GET", "", about, ModelMetadata, 404, 503)
    add_model_route(router, "GET", "/ready", ready, ModelHealth, 404, 503)
    add_model_route(router, "GET", "/config", config, None, 404, 503)
    add_model_route(router, "GET", "/stats", stats, StatisticsReport, 404, 503)
    return router
