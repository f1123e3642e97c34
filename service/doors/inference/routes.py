"""The paths of models, each with and without a version, and the errors behind them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from foretell.bundle import layout
from foretell.service.directory import Model
from foretell.service.doors.inference.wire import InferenceError
from foretell.service.engines import Engine

Endpoint = Callable[[Request], Awaitable[Response | BaseModel | dict[str, Any]]]

_MODEL = "/v2/models/{model}"
_VERSION = _MODEL + "/versions/{version}"
_PATTERNS = {"model": layout.NAME.pattern, "version": layout.VERSION.pattern}
_REASONS = {
    400: "The body is not what its headers say, or not JSON.",
    401: "The key is missing, or not one of this server's.",
    403: "The key does not allow this, or nothing does.",
    404: "Unknown model or version.",
    408: "The body came too slowly.",
    409: "The bundle was refused; what was there still answers.",
    413: "The body is over the limit.",
    415: "Not an encoding that is read.",
    422: "The request does not fit the model.",
    429: "Too much is waiting; see `Retry-After`.",
    503: "The model is not ready, or failed; or see `Retry-After`.",
    504: "The deadline passed.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What the OpenAPI document says of errors."""
    return {
        status: {"model": InferenceError, "description": _REASONS[status]} for status in statuses
    }


def path_parameter(name: str) -> dict[str, Any]:
    """`model` or `version` in a path, as the OpenAPI document has it."""
    schema = {"type": "string", "pattern": f"^{_PATTERNS[name]}$"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def add_model_route(
    router: APIRouter,
    method: str,
    suffix: str,
    endpoint: Endpoint,
    answer: type[BaseModel] | None,
    *statuses: int,
) -> None:
    """Add a route for a model, and one for a version of it.

    Args:
        router: Takes them.
        method: GET or POST.
        suffix: What follows the model in the path.
        endpoint: Answers both; `reference_of` tells it for whom.
        answer: What it returns; None for any JSON.
        statuses: Of its errors.
    """
    for path, names in ((_MODEL, ("model",)), (_VERSION, ("model", "version"))):
        router.add_api_route(
            path + suffix,
            endpoint,
            methods=[method],
            response_model=answer,
            responses=refusals(*statuses),
            openapi_extra={"parameters": [path_parameter(name) for name in names]},
        )


def reference_of(request: Request) -> str:
    """The model and version of a path, as `Directory.find` takes them."""
    parts: dict[str, str] = request.path_params
    return "@".join((parts["model"], parts["version"]) if "version" in parts else (parts["model"],))


def find_model(engine: Engine, request: Request) -> Model:
    """The model that a path means; raises as `Directory.find`."""
    return engine.directory.find(reference_of(request))
