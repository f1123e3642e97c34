"""Tensors in, tensors out: one run of a model."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import orjson
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from pydantic import BaseModel

from foretell.bundle import layout
from foretell.service.arrays import FORECAST, HISTORY, Arrays
from foretell.service.engine.engine import Engine
from foretell.service.engine.registry import Model
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.parse import parsing_bytes, reading_work
from foretell.service.forecast.warnings import outside
from foretell.service.http.body import (
    LARGE,
    Shared,
    deadline_of,
    outcome,
    read_body,
    response_of,
)
from foretell.service.http.compression import choose_encoding, compress
from foretell.service.http.middleware import request_context
from foretell.service.http.protocol import connection_of
from foretell.service.http.refusals import refusals
from foretell.service.inference.decode import Job, decode, json_bytes, url_notices
from foretell.service.inference.tensors import datatype_of
from foretell.service.inference.wire import InferenceError, InferResponse

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
) -> None:
    """Add a route for a model, and one for a version of it.

    Args:
        router: Takes them.
        method: GET or POST.
        suffix: What follows the model in the path.
        endpoint: Answers both; `find_model` tells it for whom.
        answer: What it returns; None for any JSON.
        statuses: Of its errors.
    """
    for path, names in ((_MODEL, ("model",)), (_VERSION, ("model", "version"))):
        router.add_api_route(
            path + suffix,
            endpoint,
            methods=[method],
            response_model=answer,
            responses=refusals(InferenceError, *statuses),
            openapi_extra={"parameters": [path_parameter(name) for name in names]},
        )


def find_model(engine: Engine, request: Request) -> Model:
    """The model that a path means; raises as `Registry.find`."""
    name, version = request.path_params["model"], request.path_params.get("version")
    return engine.registry.find(name if version is None else f"{name}@{version}")


# HTTP's "deflate" is zlib's format, not the bare stream. Not zstd: there are clients that offer it
# on their own and then cannot read it.
_ENCODINGS = ("gzip", "deflate")
_NOT_WORTH = 1024
# Bytes of a tensor as it is in memory that take no longer than one of JSON.
_TENSOR_BYTES = 16


def encoding_work(job: Job, outputs: Arrays, accepted: str) -> int:
    """How much there is to do to write the answer, as `Offload` has it; see `encode`."""
    work = len(job.id or "")
    for output in job.outputs:
        size = outputs[output.name].nbytes
        work += size // _TENSOR_BYTES if output.binary and not accepted else size
    return work


def encode(job: Job, outputs: Arrays, accepted: str) -> tuple[bytes, dict[str, str]]:
    """Write the answer.

    Args:
        job: The request.
        outputs: `[windows, …]` by output name.
        accepted: How the caller lets it be compressed: the header Accept-Encoding.

    Returns:
        The body and its headers.

    Raises:
        InvalidInputError: an output is not finite.
    """
    parts: list[bytes | memoryview] = []
    described: list[dict[str, Any]] = []
    for output in job.outputs:
        values = np.ascontiguousarray(outputs[output.name])
        _check_finite(values, output.name)
        entry = {"name": output.name, "datatype": datatype_of(values), "shape": values.shape}
        if output.binary:
            parts.append(values.data.cast("B"))
            described.append(entry | {"parameters": {"binary_data_size": values.nbytes}})
        else:
            described.append(entry | {"data": values.reshape(-1)})
    head: dict[str, Any] = {} if job.id is None else {"id": job.id}
    head |= {"model_name": job.model.name, "model_version": job.model.version}
    history, forecast = job.feeds[HISTORY], outputs[FORECAST]
    far = outside(job.model.manifest, history, forecast, lambda row: f"{HISTORY}[{row}]")
    if warnings := job.notices + (far or []):
        # Parameters are strings, numbers or booleans.
        head["parameters"] = {"warnings": orjson.dumps(warnings).decode()}
    head["outputs"] = described
    text = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
    headers = {"content-type": "application/json"}
    if parts:
        headers = {
            "content-type": "application/octet-stream",
            "inference-header-content-length": str(len(text)),
        }
    size = len(text) + sum(len(part) for part in parts)
    encoding = choose_encoding(accepted, _ENCODINGS) if size >= _NOT_WORTH else None
    if encoding is None:
        return b"".join((text, *parts)), headers
    headers["content-encoding"] = encoding
    return compress(encoding, (text, *parts)), headers


def _check_finite(values: NDArray[Any], name: str) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        window = int(np.unravel_index(int(finite.argmin()), values.shape)[0])
        raise InvalidInputError(
            f"{name} of window {window} is not finite: its values are too far from those the model "
            "was trained on",
            param="inputs",
        )


HEADER = "inference-header-content-length"


def infer_router(shared: Shared) -> APIRouter:
    """The routes that run models."""
    engine, settings = shared.engine, shared.settings
    budget, offload = shared.budget, shared.offload
    router = APIRouter(tags=["inference"])

    async def infer(request: Request) -> Response:
        """Run the model once; the body is JSON, or JSON and binary tensors after it.

        The header `Inference-Header-Content-Length` says how long the JSON is, if tensors follow.
        Content types are not looked at: clients send none, or any.
        """
        began = time.monotonic()
        exchange = request_context(request.scope)
        headers = exchange.headers
        deadline = deadline_of(headers, settings.timeout_seconds)
        model = find_model(engine, request)
        exchange.model, exchange.version = model.name, model.version
        # The tensors may be views of the body, which is held, and counted, until they were run.
        with budget.share() as take:
            body = await read_body(request, headers, settings.max_body_bytes, deadline, take)
            begun = time.time_ns()
            length, size, parsing = headers.get(HEADER), len(body), 0
            text = json_bytes(size, length)
            work = reading_work(body, text)
            if work >= LARGE:
                parsing = await offload.run(work, deadline, parsing_bytes, memoryview(body)[:text])
                take(parsing)
            work += (size - text) // _TENSOR_BYTES
            job = await offload.run(work, deadline, decode, body, length, model, settings)
            if parsing:
                take(-parsing)
            if request.scope["query_string"]:
                job.notices.extend(url_notices(request.query_params))
            exchange.windows = job.windows
            exchange.staged("decode", begun)
            if job.timeout is not None:
                deadline = min(deadline, began + job.timeout)
            pending = model.submit(job.feeds, attention=job.attention, deadline=deadline)
            outputs = await outcome(pending, connection_of(request), deadline)
            exchange.ran(pending)
        begun = time.time_ns()
        accepted = headers.get("accept-encoding", "")
        work = encoding_work(job, outputs, accepted)
        answer, described = await offload.run(work, deadline, encode, job, outputs, accepted)
        exchange.staged("encode", begun)
        return response_of(answer, budget, described)

    statuses = (400, 404, 408, 413, 415, 422, 429, 503, 504)
    add_model_route(router, "POST", "/infer", infer, InferResponse, *statuses)
    return router
