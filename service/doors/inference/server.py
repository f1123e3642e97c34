"""What the server is, whether it can answer, and what all its models have done."""

from __future__ import annotations

from importlib import metadata

from fastapi import APIRouter, Response

from foretell.service.doors.inference.wire import ServerHealth, ServerMetadata
from foretell.service.repository import Repository
from foretell.service.supervision.readiness import Readiness
from foretell.service.telemetry.statistics import Statistics, StatisticsReport

_EXTENSIONS = ["binary_tensor_data", "model_configuration", "statistics"]
_CONTROL = ["model_repository"]


def server_router(
    repository: Repository, readiness: Readiness, statistics: Statistics, *, controllable: bool
) -> APIRouter:
    """The routes of the server.

    Args:
        repository: The served models.
        readiness: Whether the server can answer.
        statistics: Of the models.
        controllable: Whether models can be loaded and unloaded by this door.
    """
    router = APIRouter()
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
        return ServerHealth(live=True, ready=readiness.report().ready)

    @router.get(
        "/v2/health/ready", responses={503: {"model": ServerHealth, "description": "Not ready."}}
    )
    async def ready(response: Response) -> ServerHealth:
        """Whether every model is served."""
        health = ServerHealth(live=True, ready=readiness.report().ready)
        if not health.ready:
            response.status_code = 503
        return health

    @router.get("/v2/models/stats")
    async def stats() -> StatisticsReport:
        """Counts of every version that is loaded, since the server started."""
        return statistics.report((model.name, model.version) for model in repository.models)

    return router
