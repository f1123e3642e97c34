"""The OpenAPI document: FastAPI's, with the bodies that routes read themselves, and examples."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from foretell.service.errors import error_body, error_fields, refusals
from foretell.service.forecast.actuals_types import ActualsRequest, TableReference
from foretell.service.forecast.answers import ErrorResponse
from foretell.service.forecast.requests import (
    BacktestRequest,
    ForecastRequest,
    TableBacktestOptions,
    TableOptions,
)
from foretell.service.forecast.routes import ARROW
from foretell.service.http.body import JSON
from foretell.service.http.middleware import OPEN
from foretell.service.inference.wire import (
    ChangeRequest,
    IndexRequest,
    InferenceError,
    InferRequest,
)

_OCTETS = "application/octet-stream"
_REFERENCE = "#/components/schemas/"
_ERRORS = {_REFERENCE + kind.__name__ for kind in (ErrorResponse, InferenceError)}
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_BODIES: dict[str, type[BaseModel]] = {
    "/forecast": ForecastRequest,
    "/v1/timeseries/forecast": ForecastRequest,
    "/backtest": BacktestRequest,
    "/actuals": ActualsRequest,
    "/v2/models/{model}/infer": InferRequest,
    "/v2/models/{model}/versions/{version}/infer": InferRequest,
    "/v2/repository/index": IndexRequest,
    "/v2/repository/models/{model}/load": ChangeRequest,
    "/v2/repository/models/{model}/unload": ChangeRequest,
}
# These requests may have no body.
_OPTIONAL = (IndexRequest, ChangeRequest)
# Options of tables are parameters of the URL.
_TABLE_OPTIONS: dict[type[BaseModel], type[BaseModel]] = {
    ForecastRequest: TableOptions,
    BacktestRequest: TableBacktestOptions,
    ActualsRequest: TableReference,
}
_TABLE = {
    "type": "string",
    "format": "binary",
    "description": "A stream of Arrow record batches in long form: `unique_id`, `ds`, and a column "
    "for each channel. Options are parameters of the URL. An answer's schema has metadata "
    "`foretell`, a JSON object: `model`, `model_version`, `status`, `errors`, and other notes of "
    "JSON answers.",
}
_TENSORS = {
    "type": "string",
    "format": "binary",
    "description": "The JSON and then tensors; `Inference-Header-Content-Length` is the size of "
    "the JSON.",
}


def examples() -> dict[str, Any]:
    """Values of parameters, and bodies by the last segment of their path.

    The demo's models accept them, and the `shop` of docs/guides/covariates.md.
    """
    values: dict[str, Any] = orjson.loads(Path(__file__).with_name("examples.json").read_bytes())
    return values


def document_router(app: FastAPI, *, keys: bool) -> APIRouter:
    """The route of the application's OpenAPI document; `keys` is whether requests need a key."""

    @cache
    def document() -> dict[str, Any]:
        found = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            servers=app.servers or None,
        )
        for path, body in _BODIES.items():
            _add_body(found, path, body)
        if keys:
            _add_keys(found)
        shown = examples()
        for path, operations in found["paths"].items():
            for operation in operations.values():
                _add_examples(operation, path, shown)
        return found

    app.openapi = document  # type: ignore[method-assign]
    router = APIRouter()
    lock = asyncio.Lock()

    @router.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        """The document; the first request takes a large part of a second."""
        async with lock:
            written = await asyncio.to_thread(lambda: orjson.dumps(app.openapi()))
        return Response(written, media_type=JSON)

    return router


def _add_body(document: dict[str, Any], path: str, body: type[BaseModel]) -> None:
    schema = body.model_json_schema(ref_template=_REFERENCE + "{model}")
    components = document["components"]["schemas"]
    components |= schema.pop("$defs", {})
    components[body.__name__] = schema
    operation = document["paths"][path]["post"]
    sent = {JSON: {"schema": {"$ref": _REFERENCE + body.__name__}}}
    operation["requestBody"] = {"required": body not in _OPTIONAL, "content": sent}
    answered = operation["responses"]["200"]["content"]
    if body is InferRequest:
        sent[_OCTETS] = answered[_OCTETS] = {"schema": _TENSORS}
    elif body in _TABLE_OPTIONS:
        sent[ARROW] = {"schema": _TABLE}
        if body is ForecastRequest:
            answered[ARROW] = {"schema": _TABLE}
        properties = _TABLE_OPTIONS[body].model_json_schema()["properties"]
        operation["parameters"] = [
            {
                "name": name,
                "in": "query",
                "required": False,
                "description": f"For a table: {option.pop('description')}",
                "schema": option,
            }
            for name, option in properties.items()
        ]


def _add_keys(document: dict[str, Any]) -> None:
    document["components"]["securitySchemes"] = _KEYS
    document["security"] = [{name: []} for name in _KEYS]
    for path, operations in document["paths"].items():
        kind = InferenceError if path.startswith("/v2") else ErrorResponse
        refused = {
            str(status): {
                "description": answer["description"],
                "content": {JSON: {"schema": {"$ref": _REFERENCE + kind.__name__}}},
            }
            for status, answer in refusals(kind, 401, 403).items()
        }
        for operation in operations.values():
            if path in OPEN:
                operation["security"] = []
            else:
                operation["responses"] |= refused


def _add_examples(operation: dict[str, Any], path: str, shown: dict[str, Any]) -> None:
    """Add an example of each parameter, request, answer and error."""
    word = path.rpartition("/")[2]
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in shown["parameters"]:
            parameter["example"] = shown["parameters"][parameter["name"]]
    if "requestBody" in operation and word in shown["requests"]:
        bodies = shown["requests"][word]
        named = {name: {"value": body} for name, body in bodies.items()}
        operation["requestBody"]["content"][JSON]["examples"] = named
    errors = {**shown["errors"], "422": shown["invalid"].get(word)}
    if word in shown["forbidden"]:
        errors["403"] = shown["forbidden"][word]
    for status, answer in operation["responses"].items():
        content = answer.get("content", {}).get(JSON, {})
        is_error = content.get("schema", {}).get("$ref") in _ERRORS
        if is_error and (error := errors.get(status)):
            fields = error_fields(int(status), error["type"], error["message"], error["param"])
            content["example"] = error_body(path, fields)
        elif status == "200" and word in shown["answers"] and not is_error:
            content["example"] = shown["answers"][word]
