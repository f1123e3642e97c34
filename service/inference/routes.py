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
from foretell.service.engine.registry import Model, State, public_reason
from foretell.service.errors import ModelFailedError, NotSupportedError
from foretell.service.forecast.parse import read_json
from foretell.service.http.auth import Keys
from foretell.service.http.body import JSON, read_body
from foretell.service.http.middleware import request_context
from foretell.service.http.pipeline import Shared, serve
from foretell.service.http.refusals import refusals
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
from foretell.service.settings import Settings
from foretell.service.statistics import StatisticsReport
from foretell.service.validation import Names, validate

Endpoint = Callable[[Request], Awaitable[Response | BaseModel | dict[str, Any]]]

_MODEL = "/v2/models/{model}"
_VERSION = _MODEL + "/versions/{version}"
_PATTERNS = {"model": layout.NAME.pattern, "version": layout.VERSION.pattern}


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
    **options: str,
) -> None:
    """Add a route for a model, and one for a version of it.

    Args:
        router: Takes them.
        method: GET or POST.
        suffix: What follows the model in the path.
        endpoint: Answers both; `find_model` finds the model.
        answer: What it returns; None for any JSON.
        statuses: Of its errors.
        options: As `APIRouter.add_api_route` takes them.
    """
    for path, names in ((_MODEL, ("model",)), (_VERSION, ("model", "version"))):
        router.add_api_route(
            path + suffix,
            endpoint,
            methods=[method],
            response_model=answer,
            responses=refusals(InferenceError, *statuses),
            openapi_extra={"parameters": [path_parameter(name) for name in names]},
            **options,  # type: ignore[arg-type]
        )


def find_model(engine: Engine, request: Request) -> Model:
    """The model that a path means; raises as `Registry.find`."""
    name, version = request.path_params["model"], request.path_params.get("version")
    return engine.registry.find(name if version is None else f"{name}@{version}")


_INFER = """Run the model once; the body is JSON, or JSON and binary tensors after it.

The header `Inference-Header-Content-Length` says how long the JSON is, if tensors follow.
Content types are not looked at: clients send none, or any."""


def infer_router(shared: Shared) -> APIRouter:
    """The routes that run models."""
    router = APIRouter(tags=["inference"])
    infer = serve(shared, InferenceCodec(shared.settings))
    statuses = (400, 404, 408, 413, 415, 422, 429, 503, 504)
    options = {"name": "infer", "description": _INFER}
    add_model_route(router, "POST", "/infer", infer, InferResponse, *statuses, **options)
    return router


_EXTENSIONS = ["binary_tensor_data", "model_configuration", "statistics"]
_CONTROL = ["model_repository"]


def server_router(engine: Engine, *, controllable: bool) -> APIRouter:
    """The routes of the server.

    Args:
        engine: Runs the models.
        controllable: Whether models can be loaded and unloaded by this door.
    """
    router = APIRouter(tags=["inference"])
    extensions = _EXTENSIONS + (_CONTROL if controllable else [])

    @router.get("/v2")
    async def server() -> ServerMetadata:
        """The server, and the extensions of the protocol that work here."""
        return ServerMetadata(
            name="foretell", version=metadata.version("foretell"), extensions=extensions
        )

    @router.get("/v2/health/live")
    async def live() -> ServerHealth:
        """Whether the server runs."""
        return ServerHealth(live=True, ready=engine.status.ready)

    @router.get(
        "/v2/health/ready", responses={503: {"model": ServerHealth, "description": "Not ready."}}
    )
    async def ready(response: Response) -> ServerHealth:
        """Whether every model is served."""
        health = ServerHealth(live=True, ready=engine.status.ready)
        if not health.ready:
            response.status_code = 503
        return health

    @router.get("/v2/models/stats", response_model=StatisticsReport)
    async def stats() -> Response:
        """Counts of every version that is loaded, since the server started."""
        return Response(await engine.statistics(None, None), media_type=JSON)

    return router


def models_router(engine: Engine, settings: Settings) -> APIRouter:
    """The routes of models."""
    router = APIRouter(tags=["inference"])

    async def about(request: Request) -> ModelMetadata:
        """What a model takes and returns; outputs of attention are answered if they are named."""
        model = find_model(engine, request)
        return describe(model, engine.registry.loaded(model.name))

    async def ready(request: Request) -> ModelHealth:
        """Whether a model answers."""
        model = find_model(engine, request)
        if model.failure is not None:
            raise ModelFailedError(f"{model.name} has failed; /readyz says why")
        return ModelHealth(name=model.name, ready=True)

    async def config(request: Request) -> dict[str, Any]:
        """What is true of a model of Triton's ModelConfig."""
        return configuration(find_model(engine, request), settings)

    async def stats(request: Request) -> Response:
        """Counts of every version of a model that is loaded, or of one."""
        model = find_model(engine, request)
        version = model.version if "version" in request.path_params else None
        return Response(await engine.statistics(model.name, version), media_type=JSON)

    add_model_route(router, "GET", "", about, ModelMetadata, 404, 503)
    add_model_route(router, "GET", "/ready", ready, ModelHealth, 404, 503)
    add_model_route(router, "GET", "/config", config, None, 404, 503)
    add_model_route(router, "GET", "/stats", stats, StatisticsReport, 404, 503)
    return router


_Body = TypeVar("_Body", bound=BaseModel)
_NAMES: dict[type[BaseModel], Names] = {
    IndexRequest: Names({"": IndexRequest.model_fields}),
    ChangeRequest: Names(
        {"": ChangeRequest.model_fields, "parameters": ChangeParameters.model_fields}
    ),
}

# As the protocol has it, of files that are to be taken instead of those in the repository.
_FILE = "file:"
# A name and a few parameters.
_MOST_BYTES = 256 * 1024


def control_router(shared: Shared, keys: Keys) -> APIRouter:
    """The routes of those who look after the models.

    Args:
        shared: With all routes that run models.
        keys: Who may load and unload.
    """
    engine = shared.engine
    router = APIRouter(tags=["inference"])

    async def read(request: Request, kind: type[_Body]) -> _Body:
        """The body, which may be empty, whatever its content type."""
        deadline = time.monotonic() + shared.settings.timeout_seconds
        with shared.budget.share() as share:
            headers = request_context(request.scope).headers
            body = await read_body(request, headers, _MOST_BYTES, deadline, share.reserve)
            value = read_json(body or b"{}")
        for level in _NAMES[kind].levels if isinstance(value, dict) else ():
            inner = value.get(level) if level else value
            if isinstance(inner, dict):
                _NAMES[kind].sift(level, inner, level, {})
        return validate(kind, value)

    @router.post(
        "/v2/repository/index",
        response_model=list[IndexEntry],
        responses=refusals(InferenceError, 400, 408, 413, 415, 422, 503),
    )
    async def index(request: Request) -> Response:
        """Every version that is loaded, was refused, or is on disk."""
        wanted = await read(request, IndexRequest)
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
        # Of thousands the framework's way takes long, on the event loop.
        return Response(orjson.dumps(listed), media_type=JSON)

    async def load(request: Request) -> dict[str, Any]:
        """Load a model as its bundle is now, or its version that is given."""
        keys.require_admin(request.headers)
        parameters = (await read(request, ChangeRequest)).parameters
        _check_source(parameters)
        await engine.load(*_meant(request, parameters))
        return {}

    async def unload(request: Request) -> dict[str, Any]:
        """Unload a model, or its version that is given; it finishes what it has begun."""
        keys.require_admin(request.headers)
        parameters = (await read(request, ChangeRequest)).parameters
        await engine.unload(*_meant(request, parameters))
        return {}

    statuses = (400, 401, 403, 404, 408, 409, 413, 415, 422, 503)
    for name, endpoint in (("load", load), ("unload", unload)):
        router.add_api_route(
            "/v2/repository/models/{model}/" + name,
            endpoint,
            methods=["POST"],
            responses=refusals(InferenceError, *statuses),
            openapi_extra={
                "parameters": [
                    path_parameter("model"),
                    {
                        "name": "version",
                        "in": "query",
                        "description": "As `parameters.version`, for clients that cannot send it.",
                        "schema": path_parameter("version")["schema"],
                    },
                ]
            },
        )
    return router


def _meant(request: Request, parameters: ChangeParameters) -> tuple[str, str | None]:
    """The model and version that are to change."""
    return request.path_params["model"], parameters.version or request.query_params.get("version")


def _check_source(parameters: ChangeParameters) -> None:
    """Refuse to load anything but what is in the repository."""
    given = {"config": parameters.config, **(parameters.model_extra or {})}
    for name, value in given.items():
        if value is not None and (name == "config" or name.startswith(_FILE)):
            raise NotSupportedError(
                "models are loaded as they are in the repository, with no other configuration or "
                "files",
                param=f"parameters.{name[:60]}",
            )
