"""The routes of the nixtla client, under `/nixtla`: forecasts and cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi import Request as Call

from foretell.service.engine.registry import Model, Registry
from foretell.service.errors import ServiceError
from foretell.service.forecast.parse import read_json
from foretell.service.forecast.routes import JSON, Answering, endpoint
from foretell.service.http.body import ALWAYS, Shared
from foretell.service.http.compression import Body
from foretell.service.nixtla.reading import (
    check_counts,
    check_model,
    check_request,
    find,
    frequency_of,
    own_places,
    quantiles_of,
    read_backtest,
    read_forecast,
    read_history,
)
from foretell.service.nixtla.wire import (
    CrossValidationRequest,
    ForecastRequest,
    Request,
    form_of,
)
from foretell.service.nixtla.writing import Backtesting, Forecasting
from foretell.service.settings import Settings
from foretell.service.validation import validate

_ROOT = "/nixtla"
_Decoder = Callable[[Any, Model, Settings], Answering]


def nixtla_router(shared: Shared) -> APIRouter:
    """The routes of this door.

    They are in no OpenAPI document: what it would say is Nixtla's to say, and its client's to send.
    """
    engine = shared.engine
    router = APIRouter(prefix=_ROOT, include_in_schema=False)
    tasks: list[tuple[str, type[Request], _Decoder]] = [
        ("forecast", ForecastRequest, _forecast),
        ("cross_validation", CrossValidationRequest, _cross_validation),
    ]
    for name, kind, decoder in tasks:
        answering = endpoint(partial(_Read, kind, decoder), None, shared, media_types=(JSON,))
        router.add_api_route(f"/v2/{name}", answering, methods=["POST"], name=f"nixtla_{name}")

    @router.get("/model_params")
    async def model_params(call: Call) -> dict[str, dict[str, int]]:
        """How many rows a model reads, and how many it forecasts at once."""
        frequency = frequency_of(call.query_params.get("freq", ""))
        model = find(engine.registry, call.query_params.get("model", ""), frequency)
        check_model(model, frequency)
        manifest = model.manifest
        return {"detail": {"input_size": manifest.context, "horizon": manifest.horizon}}

    @router.get("/validate_api_key")
    async def validate_api_key() -> dict[str, str]:
        """That the key is right, which was looked at before."""
        return {"detail": "the key is valid"}

    @router.get("/v2/models")
    async def models() -> dict[str, list[dict[str, str]]]:
        """Names of the served models of one channel."""
        served = [
            one.name for one in engine.registry.defaults.values() if len(one.manifest.channels) == 1
        ]
        return {"models": [{"name": name} for name in served]}

    return router


class _Read:
    """A request, as far as it was read without its model.

    Args:
        kind: What it asks for.
        decoder: Reads the rest.
        media_type: JSON.
        body: Its body.
        query: Of its URL, which nobody reads.
        settings: Limits.

    Raises:
        ServiceError: it is no such request, or asks for what no model here does.
    """

    memory = 0
    # Windows may be cut out of all rows.
    work = ALWAYS

    def __init__(
        self,
        kind: type[Request],
        decoder: _Decoder,
        media_type: str,  # noqa: ARG002 - as all readers are called
        body: Body,
        query: Mapping[str, str],  # noqa: ARG002 - likewise
        settings: Settings,
    ) -> None:
        self._decoder = decoder
        found = read_json(body, form_of(kind))
        if isinstance(found, dict):
            check_counts(found, kind.model_fields, settings.max_inputs)
        self._request = request = validate(kind, found)
        check_request(request)
        self._frequency = frequency_of(request.freq)

    def find(self, registry: Registry) -> Model:
        """The model that it means."""
        return find(registry, self._request.model, self._frequency)

    def decode(self, model: Model, settings: Settings) -> Answering:
        """Read the rest, and drop what was read; raises a `ServiceError` if it does not fit."""
        request = self._request
        self.drop()
        check_model(model, self._frequency)
        try:
            return self._decoder(request, model, settings)
        except ServiceError as error:
            error.message = own_places(error.message)
            error.param = error.param and own_places(error.param)
            raise

    def drop(self) -> None:
        """Drop what was read."""
        del self._request


def _forecast(request: ForecastRequest, model: Model, settings: Settings) -> Answering:
    bounds = quantiles_of(request.level or ())
    return Forecasting(_unread(request), bounds, read_forecast(request, bounds, model, settings))


def _cross_validation(
    request: CrossValidationRequest, model: Model, settings: Settings
) -> Answering:
    bounds = quantiles_of(request.level or ())
    if request.full_history:
        job = read_history(request, bounds, model, settings)
    else:
        stride = request.step_size or request.h
        job = read_backtest(request, request.h, stride, request.n_windows, bounds, model, settings)
    return Backtesting(_unread(request), request.series.sizes, bounds, job)


def _unread(request: Request) -> list[str]:
    return [name[:60] for name in request.model_extra or ()]
