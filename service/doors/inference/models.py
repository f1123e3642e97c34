"""What a model takes and returns, whether it can answer, and what it has done."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from foretell.service.doors.inference.metadata import configuration, describe
from foretell.service.doors.inference.routes import add_model_route, find_model
from foretell.service.doors.inference.wire import ModelHealth, ModelMetadata
from foretell.service.errors import ModelFailedError
from foretell.service.repository import Repository
from foretell.service.settings import Settings
from foretell.service.telemetry.statistics import Statistics, StatisticsReport


def models_router(repository: Repository, statistics: Statistics, settings: Settings) -> APIRouter:
    """The routes of models.

    Args:
        repository: The served models.
        statistics: Of them.
        settings: Limits.
    """
    router = APIRouter()

    async def metadata(request: Request) -> ModelMetadata:
        """What a model takes and returns; outputs of attention are answered if they are named."""
        model = find_model(repository, request)
        return describe(model, repository.versions(model.name))

    async def ready(request: Request) -> ModelHealth:
        """Whether a model answers."""
        model = find_model(repository, request)
        if model.failure is not None:
            raise ModelFailedError(f"{model.name} has failed; /readyz says why")
        return ModelHealth(name=model.name, ready=True)

    async def config(request: Request) -> dict[str, Any]:
        """What is true of a model of Triton's ModelConfig."""
        return configuration(find_model(repository, request), settings)

    async def stats(request: Request) -> StatisticsReport:
        """Counts of every version of a model that is loaded, or of one."""
        model = find_model(repository, request)
        versions = repository.versions(model.name)
        if "version" in request.path_params:
            versions = [model.version]
        return statistics.report((model.name, version) for version in versions)

    add_model_route(router, "GET", "", metadata, ModelMetadata, 404, 503)
    add_model_route(router, "GET", "/ready", ready, ModelHealth, 404, 503)
    add_model_route(router, "GET", "/config", config, None, 404, 503)
    add_model_route(router, "GET", "/stats", stats, StatisticsReport, 404, 503)
    return router
