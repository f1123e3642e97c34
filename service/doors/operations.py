"""The doors for clients that ask what there is, and for what watches the server."""

from __future__ import annotations

from fastapi import APIRouter, Response

from foretell.service.directory import Model
from foretell.service.engines import Engine, Status
from foretell.service.requests.schemas import ModelCard
from foretell.service.settings import Settings


def models_router(engine: Engine, settings: Settings) -> APIRouter:
    """The routes for clients that ask what there is."""
    router = APIRouter(tags=["models"])

    @router.get("/")
    async def index() -> dict[str, object]:
        """Where to go from here."""
        return {
            "service": "foretell",
            "links": {
                "forecast": "/forecast",
                "inference": "/v2",
                "models": "/models",
                "documentation": "/docs",
                "openapi": "/openapi.json",
            },
        }

    @router.get("/models")
    @router.head("/models", include_in_schema=False)
    async def models() -> list[ModelCard]:
        """Every served model: what a client needs to build a request."""
        directory = engine.directory
        return [
            _card(model, directory.versions(model.name), settings) for model in directory.defaults
        ]

    return router


def probes_router(engine: Engine) -> APIRouter:
    """The routes for what watches the server."""
    router = APIRouter(tags=["operations"])

    @router.get("/healthz")
    @router.head("/healthz", include_in_schema=False)
    async def healthz() -> dict[str, str]:
        """Whether the process is alive."""
        return {"status": "alive"}

    @router.get(
        "/readyz", responses={503: {"model": Status, "description": "Something is not served."}}
    )
    @router.head("/readyz", include_in_schema=False)
    async def readyz(response: Response) -> Status:
        """Whether every model is served, and why not."""
        status = engine.status
        if not status.ready:
            response.status_code = 503
        return status

    @router.get("/metrics", response_class=Response)
    @router.head("/metrics", include_in_schema=False)
    async def prometheus() -> Response:
        """Metrics in Prometheus' text format."""
        return Response(
            await engine.render(), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    return router


def _card(model: Model, versions: list[str], settings: Settings) -> ModelCard:
    manifest = model.manifest
    return ModelCard(
        name=model.name,
        version=model.version,
        versions=versions,
        architecture=manifest.architecture,
        channels=manifest.channels,
        context=manifest.context,
        horizon=manifest.horizon,
        max_horizon=manifest.horizon * settings.max_horizon_multiple,
        frequency=manifest.frequency,
        needs_timestamps=manifest.calendar is not None,
        quantiles=manifest.calibration is not None,
        attention=[stage.name for stage in manifest.attention],
        provider=model.provider,
        parameters=manifest.parameters,
        test=manifest.test,
        calibration=manifest.calibration,
        verification=manifest.verification,
    )
