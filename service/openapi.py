"""The OpenAPI document, with the bodies that doors read themselves."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from service.schemas import ForecastRequest

_REFERENCE = "#/components/schemas/"
_BODIES: dict[str, type[BaseModel]] = {
    "/forecast": ForecastRequest,
    "/v1/timeseries/forecast": ForecastRequest,
}


def describe_requests(app: FastAPI) -> None:
    """Make the application's OpenAPI document name the wire types of its request bodies."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    components = document["components"]["schemas"]
    for path, body in _BODIES.items():
        schema = body.model_json_schema(ref_template=_REFERENCE + "{model}")
        components |= schema.pop("$defs", {})
        components[body.__name__] = schema
        document["paths"][path]["post"]["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": _REFERENCE + body.__name__}}},
        }
    return document
