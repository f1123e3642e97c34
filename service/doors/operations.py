"""The doors for operators and for clients that ask what there is."""

from __future__ import annotations

from fastapi import APIRouter, Response

from service.metrics import Metrics
from service.model import Model
from service.repository import Repository
from service.schemas import ModelCard


def operations_router(repository: Repository, metrics: Metrics) -> APIRouter:
    """The routes of this door."""
    router = APIRouter(tags=["operations"])

    @router.get("/")
    async def index() -> dict[str, object]:
        """Where to go from here."""
        return {
            "service": "foretell",
            "models": repository.names,
            "links": {
                "forecast": "/forecast",
                "models": "/models",
                "documentation": "/docs",
                "openapi": "/openapi.json",
                "readiness": "/readyz",
                "metrics": "/metrics",
            },
        }

    @router.get("/models")
    @router.head("/models", include_in_schema=False)
    async def models() -> list[ModelCard]:
        """Every served model: what a client needs to build a request."""
        return [
            _card(repository.find(name), repository.versions(name)) for name in repository.names
        ]

    @router.get("/healthz")
    @router.head("/healthz", include_in_schema=False)
    async def healthz() -> dict[str, str]:
        """Whether the process is alive."""
        return {"status": "alive"}

    @router.get("/readyz", responses={503: {"description": "A bundle was refused, or draining."}})
    @router.head("/readyz", include_in_schema=False)
    async def readyz(response: Response) -> dict[str, object]:
        """Whether every bundle is served, and why not."""
        ready = repository.ready
        if not ready:
            response.status_code = 503
        return {"ready": ready, "models": repository.report()}

    @router.get("/metrics", response_class=Response)
    @router.head("/metrics", include_in_schema=False)
    async def prometheus() -> Response:
        """Metrics in Prometheus' text format."""
        return Response(metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def _card(model: Model, versions: list[str]) -> ModelCard:
    manifest = model.manifest
    return ModelCard(
        name=model.name,
        version=model.version,
        versions=versions,
        architecture=manifest.architecture,
        channels=manifest.channels,
        context=manifest.context,
        horizon=manifest.horizon,
        max_horizon=manifest.horizon,
        frequency=manifest.frequency,
        needs_timestamps=manifest.calendar is not None,
        quantiles=False,
        attention=[stage.name for stage in manifest.attention],
        provider=model.provider,
        parameters=manifest.parameters,
        test=manifest.test,
        verification=manifest.verification,
    )
