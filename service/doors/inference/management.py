"""All routes of the inference door but those that run models."""

from __future__ import annotations

from fastapi import APIRouter

from foretell.service.doors.budget import BodyBudget
from foretell.service.doors.inference.control import control_router
from foretell.service.doors.inference.models import models_router
from foretell.service.doors.inference.server import server_router
from foretell.service.repository import Repository
from foretell.service.settings import Settings
from foretell.service.supervision.readiness import Readiness
from foretell.service.telemetry.statistics import Statistics
from foretell.service.web.keys import Keys


def management_router(
    repository: Repository,
    settings: Settings,
    budget: BodyBudget,
    *,
    keys: Keys,
    readiness: Readiness,
    statistics: Statistics,
) -> APIRouter:
    """The routes for looking at the server and its models, and for changing these.

    Args:
        repository: The models.
        settings: Limits.
        budget: Counts the bodies of requests.
        keys: Who may load and unload models.
        readiness: Whether the server can answer.
        statistics: Of the models.
    """
    router = APIRouter(tags=["inference"])
    # Before the paths of models: in /v2/models/stats, `stats` is none.
    router.include_router(
        server_router(repository, readiness, statistics, controllable=keys.controllable)
    )
    router.include_router(models_router(repository, statistics, settings))
    router.include_router(control_router(repository, settings, budget, keys))
    return router
