"""The routes of models: their cards, measurements and example windows."""

from __future__ import annotations

import asyncio

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import TypeAdapter

from foretell.bundle.covariates import NO_COVARIATES
from foretell.bundle.example import Example
from foretell.bundle.layout import EXAMPLE, NAME, VERSION
from foretell.bundle.manifest import Manifest
from foretell.bundle.verdict import verdict
from foretell.service.api.cards import CovariateCard, CovariateCards, ModelCard, ModelReport
from foretell.service.engine.engine import Engine
from foretell.service.engine.registry import Model, Registry
from foretell.service.errors import NoExampleError, refusals
from foretell.service.forecast.answers import ErrorResponse, ModelExample
from foretell.service.forecast.covariates import example_covariates
from foretell.service.forecast.options import most_steps
from foretell.service.http.body import JSON
from foretell.service.http.compression import respond
from foretell.service.http.pipeline import find_model
from foretell.service.settings import Settings

_CARDS = TypeAdapter(list[ModelCard])
_REFERENCE = {
    "name": "model",
    "in": "path",
    "required": True,
    "description": "A name, or name@version.",
    "schema": {"type": "string", "pattern": f"^{NAME.pattern}(@{VERSION.pattern})?$"},
}


def models_router(engine: Engine, settings: Settings) -> APIRouter:
    """The routes `GET /models`, `/models/{model}` and `/models/{model}/example`."""
    router = APIRouter(tags=["models"])
    # The cards of thousands of models take a while; they only change with the registry.
    cards: tuple[Registry | None, bytes] = None, b""

    @router.get("/models", response_model=list[ModelCard])
    async def models(request: Request) -> Response:
        """Every served model, with the facts that a client needs to build a request."""
        nonlocal cards
        registry = await engine.updated()
        if cards[0] is not registry:
            cards = registry, await asyncio.to_thread(_cards, registry, settings)
        accepted = request.headers.get("accept-encoding", "")
        return await asyncio.to_thread(respond, cards[1], accepted, JSON)

    @router.get(
        "/models/{model}",
        responses=refusals(ErrorResponse, 404, 503),
        openapi_extra={"parameters": [_REFERENCE]},
    )
    async def one(request: Request) -> ModelReport:
        """A model, with its measurements in the test split and its verification."""
        model = await find_model(engine, request.path_params)
        return _card(model, engine.registry, settings)

    @router.get(
        "/models/{model}/example",
        response_class=Response,
        responses={200: {"model": ModelExample}, **refusals(ErrorResponse, 404, 503)},
        openapi_extra={"parameters": [_REFERENCE]},
    )
    async def example(request: Request) -> Response:
        """A real window to try a model with: of median error in the test split, or in all rows.

        A bundle that was exported without data has no window.
        """
        model = await find_model(engine, request.path_params)
        found = await model.example()
        if found is None:
            raise NoExampleError(
                f"{model.name}@{model.version} carries no example: it was exported without data, "
                "or by an earlier release; export it again with its data"
            )
        # An example with hundreds of channels has megabytes.
        return await asyncio.to_thread(_example, model, found, request)

    return router


def _card(model: Model, registry: Registry, settings: Settings) -> ModelReport:
    manifest = model.manifest
    return ModelReport(
        name=model.name,
        version=model.version,
        digest=model.digest,
        versions=registry.loaded(model.name),
        refused=registry.get(model.name, model.version).refused or None,
        architecture=manifest.architecture,
        channels=manifest.channels,
        targets=manifest.targets,
        covariates=_covariates(manifest),
        bounds=manifest.bounds,
        context=manifest.context,
        horizon=manifest.horizon,
        max_horizon=most_steps(manifest, settings),
        frequency=manifest.frequency,
        needs_timestamps=manifest.calendar is not None,
        reads_gaps=manifest.observed_steps is not None,
        quantiles=model.intervals.steps > 0,
        quantile_levels=model.intervals.extremes(1) if model.intervals.steps else None,
        verdict=None if manifest.test is None else verdict(manifest.test, manifest.step),
        attention=[stage.name for stage in manifest.attention],
        example=EXAMPLE in manifest.files,
        ledger=settings.ledger is not None,
        provider=model.provider,
        parameters=manifest.parameters,
        test=manifest.test,
        calibration=manifest.calibration,
        calibration_missing=manifest.calibration_missing,
        verification=manifest.verification,
    )


def _covariates(manifest: Manifest) -> CovariateCards:
    known = manifest.covariates or NO_COVARIATES
    kinds = {"future": known.future, "past": manifest.past_covariates, "static": known.static}
    cards = {
        kind: [CovariateCard.model_validate(each, from_attributes=True) for each in covariates]
        for kind, covariates in kinds.items()
    }
    return CovariateCards(**cards)


def _cards(registry: Registry, settings: Settings) -> bytes:
    models = registry.defaults.values()
    return _CARDS.dump_json([_card(model, registry, settings) for model in models])


def _example(model: Model, example: Example, request: Request) -> Response:
    manifest, reference = model.manifest, f"{model.name}@{model.version}"
    series = {
        "name": example.series or "example",
        "series": example.history,
        "channels": manifest.channels,
        "frequency": manifest.frequency,
        "timestamps": example.timestamps.tolist(),
        **example_covariates(example, manifest),
    }
    document = {
        "model": reference,
        "request": {"model": reference, "inputs": [series]},
        "actual": example.actual,
        "channels": manifest.channels,
        "targets": manifest.targets,
    }
    text = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return respond(text, request.headers.get("accept-encoding", ""), JSON)
