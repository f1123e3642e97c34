"""The routes of the ledger: scores, stored forecasts, and the deletion of series."""

from __future__ import annotations

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
    Trajectories,
    TrajectoryQuery,
    WindowQuery,
)
from foretell.service.errors import InvalidInputError, refusals
from foretell.service.forecast.answers import ErrorResponse
from foretell.service.http.body import JSON
from foretell.service.http.compression import respond
from foretell.service.http.middleware import request_context
from foretell.service.http.pipeline import Shared
from foretell.service.validation import validate

_EPOCH = date(1970, 1, 1)
_ERRORS = refusals(ErrorResponse, 403, 422, 503)
_MODEL = {
    "name": "model",
    "in": "path",
    "required": True,
    "description": "A name.",
    "schema": {"type": "string", "pattern": f"^{NAME.pattern}$"},
}


class _SeriesQuery(BaseModel):
    name: str


def scores_router(shared: Shared) -> APIRouter:
    """The routes that read; without a ledger they answer that the server has none."""
    router = APIRouter(tags=["ledger"])
    engine = shared.engine

    @router.get(
        "/models/{model}/accuracy",
        response_class=Response,
        responses={200: {"model": Accuracy}, **_ERRORS},
        openapi_extra={"parameters": [_MODEL, *_parameters(AccuracyQuery)]},
    )
    async def accuracy(request: Request) -> Response:
        """How good the forecasts of a model were, where the actual values are known by now."""
        query = validate(AccuracyQuery, dict(request.query_params))
        selection = _selection(request, query)
        written, _ = await engine.ledger("accuracy", selection, query.by, query.limit)
        return respond(written, request.headers.get("accept-encoding", ""), JSON)

    @router.get(
        "/models/{model}/trajectories",
        response_class=Response,
        responses={200: {"model": Trajectories}, **_ERRORS},
        openapi_extra={"parameters": [_MODEL, *_parameters(TrajectoryQuery)]},
    )
    async def trajectories(request: Request) -> Response:
        """Stored forecasts of a series, and the actual values of their times."""
        query = validate(TrajectoryQuery, dict(request.query_params))
        selection = _selection(request, query) | {"overlapping": query.overlapping}
        written, _ = await engine.ledger("trajectories", selection, query.limit)
        return respond(written, request.headers.get("accept-encoding", ""), JSON)

    @router.get(
        "/models/{model}/compare",
        response_class=Response,
        responses={200: {"model": Compared}, **_ERRORS},
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
        written, _ = await engine.ledger("compare", selection, (query.a, query.b))
        return respond(written, request.headers.get("accept-encoding", ""), JSON)

    return router


def actuals_router(shared: Shared) -> APIRouter:
    """The routes that write."""
    router = APIRouter(tags=["ledger"])
    engine = shared.engine

    @router.delete(
        "/ledger/series",
        responses=_ERRORS,
        openapi_extra={"parameters": _parameters(_SeriesQuery)},
    )
    async def delete(request: Request) -> Deleted:
        """Delete all that the ledger holds of a series in the namespace of the key."""
        query = validate(_SeriesQuery, dict(request.query_params))
        namespace = request_context(request.scope).namespace
        count, _ = await engine.ledger("delete", namespace, query.name)
        return Deleted(series=count)

    return router


def _selection(request: Request, query: WindowQuery) -> dict[str, Any]:
    """Fields of `reading.Selection`."""
    context = request_context(request.scope)
    namespace = query.namespace
    if not context.admin:
        if namespace not in (None, context.namespace):
            raise InvalidInputError("only admin keys read other namespaces", param="namespace")
        namespace = context.namespace
    return {
        "model": request.path_params["model"],
        **query.model_dump(include={"version", "calibration", "channel", "series"}),
        "namespace": namespace,
        "since": None if query.since is None else (query.since - _EPOCH).days,
        "until": None if query.until is None else (query.until - _EPOCH).days,
    }


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
