"""Tensors in, tensors out: one run of a model."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request, Response

from foretell.service.doors.budget import BodyBudget
from foretell.service.doors.exchange import deadline_of, outcome, read_body
from foretell.service.doors.inference.decode import decode, reading_bytes
from foretell.service.doors.inference.encode import answer_bytes, encode
from foretell.service.doors.inference.routes import add_model_route, find_model
from foretell.service.doors.inference.wire import InferResponse
from foretell.service.engines import Engine
from foretell.service.settings import Settings
from foretell.service.web.callers import caller_of
from foretell.service.web.middleware import exchange_of
from foretell.service.web.offload import Offload

HEADER = "inference-header-content-length"


def infer_router(
    engine: Engine, settings: Settings, budget: BodyBudget, offload: Offload
) -> APIRouter:
    """The routes that run models.

    Args:
        engine: Runs the models.
        settings: Limits.
        budget: Counts the bodies of requests.
        offload: Reads large requests and writes large answers.
    """
    router = APIRouter(tags=["inference"])

    async def infer(request: Request) -> Response:
        """Run the model once; the body is JSON, or JSON and binary tensors after it.

        The header `Inference-Header-Content-Length` says how long the JSON is, if tensors follow.
        Content types are not looked at: clients send none, or any.
        """
        began = time.monotonic()
        exchange = exchange_of(request.scope)
        headers = exchange.headers
        deadline = deadline_of(headers, settings.timeout_seconds)
        model = find_model(engine, request)
        exchange.answered_by(model.name, model.version)
        # The tensors may be views of the body, which is held, and counted, until they were run.
        with budget.share() as take:
            body = await read_body(
                request.receive, headers, settings.max_body_bytes, deadline, take
            )
            with exchange.stage("decode"):
                length, size = headers.get(HEADER), len(body)
                parsing = await offload.run(size, deadline, reading_bytes, body, length)
                take(parsing)
                job = await offload.run(size, deadline, decode, body, length, model, settings)
                take(-parsing)
                exchange.windows = job.windows
            if job.timeout is not None:
                deadline = min(deadline, began + job.timeout)
            pending = model.submit(job.feeds, explain=job.explain, deadline=deadline)
            outputs = await outcome(pending, caller_of(request), deadline)
            exchange.ran(pending)
        with exchange.stage("encode"):
            answer = await offload.run(
                answer_bytes(job, outputs),
                deadline,
                encode,
                job,
                outputs,
                headers.get("accept-encoding", ""),
            )
        return Response(answer.body, headers=answer.headers)

    statuses = (400, 404, 408, 413, 415, 422, 429, 503, 504)
    add_model_route(router, "POST", "/infer", infer, InferResponse, *statuses)
    return router
