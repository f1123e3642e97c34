"""The routes of the nixtla client, under `/nixtla`: forecasts and cross-validation."""

from __future__ import annotations

from fastapi import APIRouter, Request

from foretell.service.http.pipeline import Shared, serve
from foretell.service.nixtla.codec import CrossValidationCodec, ForecastCodec, check_model, find
from foretell.service.nixtla.requests import frequency_of


def nixtla_router(shared: Shared) -> APIRouter:
    """The routes; not in the OpenAPI document, as only Nixtla's client uses them."""
    engine, settings = shared.engine, shared.settings
    router = APIRouter(prefix="/nixtla", include_in_schema=False)
    forecast = serve(shared, ForecastCodec(settings))
    cross_validation = serve(shared, CrossValidationCodec(settings))
    router.post("/v2/forecast", name="nixtla_forecast")(forecast)
    router.post("/v2/cross_validation", name="nixtla_cross_validation")(cross_validation)

    @router.get("/model_params")
    async def model_params(request: Request) -> dict[str, dict[str, int]]:
        """The context and the horizon of a model."""
        frequency = frequency_of(request.query_params.get("freq", ""))
        name = request.query_params.get("model", "")
        model = await engine.find(lambda registry: find(registry, name, frequency))
        check_model(model, frequency)
        manifest = model.manifest
        return {"detail": {"input_size": manifest.context, "horizon": manifest.horizon}}

    @router.get("/validate_api_key")
    async def validate_api_key() -> dict[str, str]:
        """Confirm the key, which the middleware has checked."""
        return {"detail": "the key is valid"}

    @router.get("/v2/models")
    async def models() -> dict[str, list[dict[str, str]]]:
        """Names of the served models of one channel."""
        models = (await engine.updated()).defaults.values()
        served = [model.name for model in models if len(model.manifest.channels) == 1]
        return {"models": [{"name": name} for name in served]}

    return router
