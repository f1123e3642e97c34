"""The routes of the Open Inference Protocol: inference, metadata, health, and the repository."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from importlib import metadata
from typing import Any, TypeVar

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from foretell.bundle import layout
from foretell.service.engine.engine import Engine
from foretell.service.engine.registry import State, public_reason
from foretell.service.engine.statistics import StatisticsReport
from foretell.service.errors import ModelFailedError, NotSupportedError, refusals
from foretell.service.forecast.parse import read_json
from foretell.service.http.auth import Keys, Purpose
from foretell.service.http.body import JSON, Share, read_body
from foretell.service.http.middleware import request_context
from foretell.service.http.pipeline import Shared, find_model, serve
from foretell.service.inference.codec import InferenceCodec
from foretell.service.inference.wire import (
    ChangeParameters,
    ChangeRequest,
    IndexEntry,
    IndexRequest,
    InferenceError,
    InferResponse,
    ModelHealth,
    ModelMetadata,
    ServerHealth,
    ServerMetadata,
    configuration,
    describe,
)
from foretell.service.validation import KnownFields, validate

_MODEL = "/v2/models/{model}"
_VERSION = _MODEL + "/versions/{version}"
_PATTERNS = {"model": layout.NAME.pattern, "version": layout.VERSION.pattern}
_INFER = """Run the model once; the body is JSON, or JSON and then binary tensors.

If tensors follow, the header `Inference-Header-Content-Length` is the size of the JSON.
Any Content-Type is accepted."""
_INFER_ERRORS = (400, 404, 408, 413, 415, 422, 429, 503, 504)
_CHANGE_ERRORS = (400, 401, 403, 404, 408, 409, 413, 415, 422, 503)
# The protocol's prefix of parameters with files to load.
_FILE = "file:"
# Most bytes of a body: a name and a few parameters.
_MOST_BYTES = 256 * 1024

Endpoint = Callable[[Request], Awaitable[Response | BaseModel | dict[str, Any]]]
_Body = TypeVar("_Body", IndexRequest, ChangeRequest)


def infer_router(shared: Shared) -> APIRouter:
    """The routes that run models."""
    router = APIRouter(tags=["inference"])
    infer = serve(shared, InferenceCodec(shared.settings))
    options = {"name": "infer", "description": _INFER}
    _add(router, "POST", "/infer", infer, InferResponse, *_INFER_ERRORS, **options)
    return router


def _add(
    router: APIRouter,
    method: str,
    suffix: str,
    endpoint: Endpoint,
    answer: type[BaseModel] | None,
    *statuses: int,
    **options: str,
) -> None:
    """Add a route of a model, and the same route of a version."""
    for path, names in ((_MODEL, ("model",)), (_VERSION, ("model", "version"))):
        router.add_api_route(
            path + suffix,
            endpoint,
            methods=[method],
            response_model=answer,
            responses=refusals(InferenceError, *statuses),
            openapi_extra={"parameters": [_path_parameter(name) for name in names]},
            **options,  # type: ignore[arg-type]
        )


def _path_parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "pattern": f"^{_PATTERNS[name]}$"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def server_router(engine: Engine, *, controllable: bool) -> APIRouter:
    """The routes of the server; `controllable` is whether clients may load and unload models."""
    router = APIRouter(tags=["inference"])
    extensions = ["binary_tensor_data", "model_configuration", "statistics"]
    extensions += ["model_repository"] if controllable else []

    @router.get("/v2")
    async def server() -> ServerMetadata:
        """The server, and its extensions of the protocol."""
        version = metadata.version("foretell")
        return ServerMetadata(name="foretell", version=version, extensions=extensions)

    @router.get("/v2/health/live")
    async def live() -> ServerHealth:
        """Whether the server runs."""
        await engine.updated()
        return ServerHealth(live=True, ready=engine.status.ready)

    @router.get(
        "/v2/health/ready", responses={503: {"model": ServerHealth, "description": "Not ready."}}
    )
    async def ready(response: Response) -> ServerHealth:
        """Whether every model is served."""
        await engine.updated()
        health = ServerHealth(live=True, ready=engine.status.ready)
        response.status_code = 200 if health.ready else 503
        return health

    @router.get("/v2/models/stats", response_model=StatisticsReport)
    async def stats() -> Response:
        """Counts of every loaded version since the server started."""
        return Response(await engine.statistics(None, None), media_type=JSON)

    return router


def models_router(shared: Shared) -> APIRouter:
    """The routes of models."""
    router, engine = APIRouter(tags=["inference"]), shared.engine

    async def about(request: Request) -> ModelMetadata:
        """Inputs and outputs of a model; attention outputs are returned if a request names them."""
        model = await find_model(engine, request.path_params)
        return describe(model, engine.registry.loaded(model.name))

    async def ready(request: Request) -> ModelHealth:
        """Whether a model answers."""
        model = await find_model(engine, request.path_params)
        if model.failure is not None:
            raise ModelFailedError(f"{model.name} has failed; /readyz says why")
        return ModelHealth(name=model.name, ready=True)

    async def config(request: Request) -> dict[str, Any]:
        """The fields of Triton's ModelConfig that apply to a model."""
        return configuration(await find_model(engine, request.path_params), shared.settings)

    async def stats(request: Request) -> Response:
        """Counts of all loaded versions of a model, or of one."""
        model = await find_model(engine, request.path_params)
        version = model.version if "version" in request.path_params else None
        return Response(await engine.statistics(model.name, version), media_type=JSON)

    _add(router, "GET", "", about, ModelMetadata, 404, 503)
    _add(router, "GET", "/ready", ready, ModelHealth, 404, 503)
    _add(router, "GET", "/config", config, None, 404, 503)
    _add(router, "GET", "/stats", stats, StatisticsReport, 404, 503)
    return router


def control_router(shared: Shared, keys: Keys) -> APIRouter:
    """The routes of the repository, with the keys that may load and unload models."""
    router, engine = APIRouter(tags=["inference"]), shared.engine

    @router.post(
        "/v2/repository/index",
        response_model=list[IndexEntry],
        responses=refusals(InferenceError, 400, 408, 413, 415, 422, 503),
    )
    async def index(request: Request) -> Response:
        """Every version that is loaded, was refused, or is on disk."""
        wanted = await _read(request, shared, IndexRequest)
        entries = await engine.index()
        known = keys.knows(request.headers)
        listed = [
            {
                "name": entry.name,
                "version": entry.version,
                "state": entry.state,
                "reason": entry.reason if known else public_reason(entry.reason),
            }
            for entry in entries
            if entry.state is State.READY or not wanted.ready
        ]
        # FastAPI would block the event loop with thousands of entries.
        return Response(orjson.dumps(listed), media_type=JSON)

    async def load(request: Request) -> dict[str, Any]:
        """Load a model, or one version of it, as its bundle is now."""
        parameters = await change(request)
        for name, value in {"config": parameters.config, **(parameters.model_extra or {})}.items():
            if value is not None and (name == "config" or name.startswith(_FILE)):
                raise NotSupportedError(
                    "models are loaded as they are in the repository, with no other configuration "
                    "or files",
                    param=f"parameters.{name[:60]}",
                )
        await engine.load(request.path_params["model"], version_of(request, parameters))
        return {}

    async def unload(request: Request) -> dict[str, Any]:
        """Unload a model, or one version of it; accepted requests are finished."""
        parameters = await change(request)
        await engine.unload(request.path_params["model"], version_of(request, parameters))
        return {}

    async def change(request: Request) -> ChangeParameters:
        keys.require(request.headers, Purpose.ADMIN)
        return (await _read(request, shared, ChangeRequest)).parameters

    def version_of(request: Request, parameters: ChangeParameters) -> str | None:
        return parameters.version or request.query_params.get("version")

    version = {
        "name": "version",
        "in": "query",
        "description": "As `parameters.version`, for clients that cannot send it.",
        "schema": _path_parameter("version")["schema"],
    }
    for name, endpoint in (("load", load), ("unload", unload)):
        router.add_api_route(
            "/v2/repository/models/{model}/" + name,
            endpoint,
            methods=["POST"],
            responses=refusals(InferenceError, *_CHANGE_ERRORS),
            openapi_extra={"parameters": [_path_parameter("model"), version]},
        )
    return router


_NAMES: dict[type[BaseModel], KnownFields] = {
    IndexRequest: KnownFields({"": IndexRequest.model_fields}),
    ChangeRequest: KnownFields(
        {"": ChangeRequest.model_fields, "parameters": ChangeParameters.model_fields}
    ),
}


async def _read(request: Request, shared: Shared, kind: type[_Body]) -> _Body:
    """The body, which may be empty, with any content type."""
    deadline = time.monotonic() + shared.settings.timeout_seconds
    with Share(shared.budget) as share:
        headers = request_context(request.scope).headers
        body = await read_body(request, headers, _MOST_BYTES, deadline, share.reserve)
        value = read_json(body or b"{}")
    for level in _NAMES[kind].levels if isinstance(value, dict) else ():
        inner = value.get(level) if level else value
        if isinstance(inner, dict):
            _NAMES[kind].check(level, inner, level, {})
    return validate(kind, value)
