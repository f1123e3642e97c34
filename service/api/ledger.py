"""The routes of the ledger: scores, stored forecasts, actual values, and deletion of series."""

from __future__ import annotations

import asyncio
import time
from datetime import date
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from foretell.bundle.layout import NAME
from foretell.service.api.ledger_types import (
    Accuracy,
    AccuracyQuery,
    Compared,
    CompareQuery,
    Deleted,
    SeriesQuery,
    Trajectories,
    TrajectoryQuery,
    WindowQuery,
)
from foretell.service.errors import DeadlineExceededError, InvalidInputError, refusals
from foretell.service.forecast.actuals import ActualsCodec, ActualsTableCodec
from foretell.service.forecast.actuals_types import ActualsResponse
from foretell.service.forecast.answers import ErrorResponse
from foretell.service.http.body import JSON, deadline_of
from foretell.service.http.compression import respond
from foretell.service.http.middleware import request_context
from foretell.service.http.pipeline import Shared, serve
from foretell.service.validation import validate
from foretell.timeaxis.errors import FrequencyError
from foretell.timeaxis.frequency import Frequency

_EPOCH = date(1970, 1, 1)
_ERRORS = refusals(ErrorResponse, 403, 422, 503)
_READ_ERRORS = refusals(ErrorResponse, 403, 404, 422, 503, 504)
_WRITE_ERRORS = refusals(ErrorResponse, 400, 403, 404, 408, 413, 415, 422, 503, 504)
_MODEL = {
    "name": "model",
    "in": "path",
    "required": True,
    "description": "A name.",
    "schema": {"type": "string", "pattern": f"^{NAME.pattern}$"},
}


def scores_router(shared: Shared) -> APIRouter:
    """The routes that read; without a ledger they answer that the server has none."""
    router = APIRouter(tags=["ledger"])

    async def answer(request: Request, method: str, *arguments: object) -> Response:
        headers, started = request_context(request.scope).headers, time.monotonic()
        deadline = deadline_of(headers, started, shared.settings.timeout_seconds)
        try:
            async with asyncio.timeout(deadline - started):
                written, _ = await shared.engine.ledger(method, *arguments, deadline)
        except TimeoutError:
            raise DeadlineExceededError("the deadline passed before the ledger was read") from None
        accepted = request.headers.get("accept-encoding", "")
        # An answer may have megabytes.
        return await asyncio.to_thread(respond, written, accepted, JSON)

    @router.get(
        "/models/{model}/accuracy",
        response_class=Response,
        responses={200: {"model": Accuracy}, **_READ_ERRORS},
        openapi_extra={"parameters": [_MODEL, *_parameters(AccuracyQuery)]},
    )
    async def accuracy(request: Request) -> Response:
        """How good the forecasts of a model were, where the actual values are known by now."""
        query = validate(AccuracyQuery, dict(request.query_params))
        selection = _selection(request, query)
        return await answer(request, "accuracy", selection, query.by, query.limit)

    @router.get(
        "/models/{model}/trajectories",
        response_class=Response,
        responses={200: {"model": Trajectories}, **_READ_ERRORS},
        openapi_extra={"parameters": [_MODEL, *_parameters(TrajectoryQuery)]},
    )
    async def trajectories(request: Request) -> Response:
        """Stored forecasts of a series, and the actual values of their times."""
        query = validate(TrajectoryQuery, dict(request.query_params))
        selection = _selection(request, query) | {"overlapping": query.overlapping}
        return await answer(request, "trajectories", selection, query.limit)

    @router.get(
        "/models/{model}/compare",
        response_class=Response,
        responses={200: {"model": Compared}, **_READ_ERRORS},
        openapi_extra={"parameters": [_MODEL, *_parameters(CompareQuery)]},
    )
    async def compare(request: Request) -> Response:
        """Whether a version forecasts better than another, on the same windows.

        A test of Diebold and Mariano's kind, for windows that overlap. It is for one look: daily
        looks until a difference shows find one more often.
        """
        query = validate(CompareQuery, dict(request.query_params))
        if query.a == query.b:
            raise InvalidInputError("expected another version than a", param="b")
        selection = _selection(request, query)
        return await answer(request, "compare", selection, (query.a, query.b))

    return router


def actuals_router(shared: Shared) -> APIRouter:
    """The routes that write."""
    router = APIRouter(tags=["ledger"])
    engine, settings = shared.engine, shared.settings
    router.add_api_route(
        "/actuals",
        serve(shared, ActualsCodec(engine, settings), ActualsTableCodec(engine, settings)),
        methods=["POST"],
        name="actuals",
        description="Write actual values of series, which forecasts of the same names are compared "
        "with. They are written when this answers; later values of a time replace earlier ones.",
        responses={200: {"model": ActualsResponse}, **_WRITE_ERRORS},
        response_class=Response,
        operation_id="actuals",
    )

    @router.delete(
        "/ledger/series",
        responses=_ERRORS,
        openapi_extra={"parameters": _parameters(SeriesQuery)},
    )
    async def delete(request: Request) -> Deleted:
        """Delete all that the ledger holds of a series in the namespace of the key."""
        query = validate(SeriesQuery, dict(request.query_params))
        namespace = _namespace(request, query.namespace)
        if namespace is None:
            namespace = request_context(request.scope).namespace
        count, _ = await engine.ledger("delete", namespace, query.name)
        return Deleted(series=count)

    return router


def _selection(request: Request, query: WindowQuery) -> dict[str, Any]:
    """Fields of `reading.Selection`."""
    return {
        "model": request.path_params["model"],
        **query.model_dump(include={"version", "calibration", "channel", "series"}),
        "frequency": None if query.frequency is None else _canonical(query.frequency),
        "namespace": _namespace(request, query.namespace),
        "since": None if query.since is None else (query.since - _EPOCH).days,
        "until": None if query.until is None else (query.until - _EPOCH).days,
    }


def _canonical(frequency: str) -> str:
    """A frequency as the ledger names it."""
    try:
        return str(Frequency.parse(frequency).canonical)
    except FrequencyError as error:
        raise InvalidInputError(str(error), param="frequency") from None


def _namespace(request: Request, given: str | None) -> str | None:
    """The namespace that a request means, by its key; None for an admin key that names none."""
    context = request_context(request.scope)
    if context.admin:
        return given
    if given not in (None, context.namespace):
        raise InvalidInputError("only admin keys may name other namespaces", param="namespace")
    return context.namespace


def _parameters(kind: type[BaseModel]) -> list[dict[str, Any]]:
    """Parameters of the URL for the OpenAPI document."""
    schema = kind.model_json_schema()
    required = schema.get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": option.pop("description", ""),
            "schema": option,
        }
        for name, option in schema["properties"].items()
    ]
