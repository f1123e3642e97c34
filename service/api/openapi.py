"""The OpenAPI document, with the bodies that doors read themselves, keys, and examples."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from foretell.service.forecast.answers import ErrorResponse
from foretell.service.forecast.requests import (
    BacktestRequest,
    ForecastRequest,
    TableBacktestOptions,
    TableOptions,
)
from foretell.service.forecast.routes import ARROW, JSON
from foretell.service.http import examples
from foretell.service.http.middleware import OPEN
from foretell.service.inference.wire import (
    ChangeRequest,
    IndexRequest,
    InferenceError,
    InferRequest,
)

_REFERENCE = "#/components/schemas/"
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_ERRORS = {_REFERENCE + kind.__name__ for kind in (ErrorResponse, InferenceError)}
_TABLE = {
    "type": "string",
    "format": "binary",
    "description": "A stream of Arrow record batches in long form: `unique_id`, `ds`, and a column "
    "a channel. Options are parameters of the URL. An answer's schema has metadata `foretell`, a "
    "JSON object: `model`, `model_version`, `status`, `errors`, and what else JSON answers note.",
}
_BODIES: dict[str, type[BaseModel]] = {
    "/forecast": ForecastRequest,
    "/v1/timeseries/forecast": ForecastRequest,
    "/backtest": BacktestRequest,
}
_OCTETS = "application/octet-stream"
_TENSORS = {
    "type": "string",
    "format": "binary",
    "description": "The JSON and then tensors; `Inference-Header-Content-Length` says where it "
    "ends.",
}
_INFERENCE_BODIES: dict[str, type[BaseModel]] = {
    "/v2/models/{model}/infer": InferRequest,
    "/v2/models/{model}/versions/{version}/infer": InferRequest,
    "/v2/repository/index": IndexRequest,
    "/v2/repository/models/{model}/load": ChangeRequest,
    "/v2/repository/models/{model}/unload": ChangeRequest,
}


def document_router(app: FastAPI, *, keys: bool) -> APIRouter:
    """The route of the application's OpenAPI document, with the wire types of request bodies.

    Args:
        app: The application.
        keys: Whether requests need a key.
    """

    @cache
    def document() -> dict[str, Any]:
        found = _document(app)
        if keys:
            _name_keys(found)
        for path, operations in found["paths"].items():
            for operation in operations.values():
                _add_examples(path, operation)
        return found

    app.openapi = document  # type: ignore[method-assign]
    router = APIRouter()
    lock = asyncio.Lock()

    @router.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        """The document; the first time it takes a good part of a second."""
        async with lock:
            written = await asyncio.to_thread(lambda: orjson.dumps(app.openapi()))
        return Response(written, media_type=JSON)

    return router


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        servers=app.servers or None,
    )
    components = document["components"]["schemas"]
    for path, body in (_BODIES | _INFERENCE_BODIES).items():
        schema = body.model_json_schema(ref_template=_REFERENCE + "{model}")
        components |= schema.pop("$defs", {})
        components[body.__name__] = schema
        document["paths"][path]["post"]["requestBody"] = {
            # The others may be left out as a whole.
            "required": body in (ForecastRequest, BacktestRequest, InferRequest),
            "content": {JSON: {"schema": {"$ref": _REFERENCE + body.__name__}}},
        }
        if body is InferRequest:
            operation = document["paths"][path]["post"]
            for part in (operation["requestBody"], operation["responses"]["200"]):
                part["content"][_OCTETS] = {"schema": _TENSORS}
    for path, body in _BODIES.items():
        operation = document["paths"][path]["post"]
        operation["requestBody"]["content"][ARROW] = {"schema": _TABLE}
        answers = operation["responses"]["200"]["content"]
        if body is BacktestRequest:
            operation["parameters"] = _table_parameters(TableBacktestOptions)
            answers[JSON]["example"] = examples.BACKTEST_ANSWER
        else:
            operation["parameters"] = _table_parameters(TableOptions)
            answers[ARROW] = {"schema": _TABLE}
            answers[JSON]["example"] = examples.FORECAST_ANSWER
    return document


def _name_keys(document: dict[str, Any]) -> None:
    document["components"]["securitySchemes"] = _KEYS
    document["security"] = [{name: []} for name in _KEYS]
    for path, operations in document["paths"].items():
        kind = InferenceError if path.startswith("/v2") else ErrorResponse
        refused = {
            "description": "The key is missing, or not one of this server's.",
            "content": {JSON: {"schema": {"$ref": _REFERENCE + kind.__name__}}},
        }
        for operation in operations.values():
            if path in OPEN:
                operation["security"] = []
            else:
                operation["responses"]["401"] = refused


def _add_examples(path: str, operation: dict[str, Any]) -> None:
    """Show a value of each parameter, bodies to send, and an error of each status."""
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in examples.PARAMETERS:
            parameter["example"] = examples.PARAMETERS[parameter["name"]]
    if "requestBody" in operation:
        operation["requestBody"]["content"][JSON]["examples"] = {
            name: {"value": body} for name, body in examples.requests(path).items()
        }
    for status, answer in operation["responses"].items():
        found = answer.get("content", {}).get(JSON, {})
        if found.get("schema", {}).get("$ref") in _ERRORS:
            refused = examples.refusal(path, int(status))
            if refused is not None:
                found["example"] = refused


def _table_parameters(options: type[TableOptions]) -> list[dict[str, Any]]:
    """The options of a table, which has no place for them itself."""
    properties = options.model_json_schema()["properties"]
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": f"Of a table: {schema.pop('description')}",
            "schema": schema,
        }
        for name, schema in properties.items()
    ]
