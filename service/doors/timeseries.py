"""The main door: KServe's time-series forecast API, `POST /forecast`."""

from __future__ import annotations

from concurrent.futures import Future

from fastapi import APIRouter, Request, Response

from foretell.service.arrays import Arrays
from foretell.service.doors.budget import BodyBudget
from foretell.service.doors.exchange import deadline_of, media_type, outcome, read_body
from foretell.service.doors.forms import ARROW, JSON, presumed_model, read
from foretell.service.errors import ServiceError
from foretell.service.repository import Repository
from foretell.service.requests.rolling import run
from foretell.service.requests.schemas import ErrorResponse, ForecastResponse
from foretell.service.settings import Settings
from foretell.service.web.callers import caller_of
from foretell.service.web.middleware import Exchange, exchange_of
from foretell.service.web.offload import Offload

_ERRORS: dict[int | str, dict[str, object]] = {
    400: {"model": ErrorResponse, "description": "Not JSON, or another content type."},
    404: {"model": ErrorResponse, "description": "Unknown model or version."},
    413: {"model": ErrorResponse, "description": "The body is over the limit."},
    422: {"model": ErrorResponse, "description": "The request does not fit the model."},
    429: {
        "model": ErrorResponse,
        "description": "Too much is waiting; see `Retry-After`.",
    },
    503: {"model": ErrorResponse, "description": "The model is not ready, or failed."},
    504: {"model": ErrorResponse, "description": "The deadline passed."},
}


def timeseries_router(
    repository: Repository, settings: Settings, budget: BodyBudget, offload: Offload
) -> APIRouter:
    """The routes of this door.

    Args:
        repository: Whose models answer.
        settings: Limits.
        budget: Counts the bodies of requests.
        offload: Reads large requests and writes large answers.
    """
    router = APIRouter(tags=["time series"])

    async def forecast(request: Request) -> Response:
        """Forecast every series of the request."""
        exchange = exchange_of(request.scope)
        deadline = deadline_of(exchange.headers, settings.timeout_seconds)
        with budget.share() as take:
            media = media_type(exchange.headers, JSON, ARROW)
            body = await read_body(
                request.receive, exchange.headers, settings.max_body_bytes, deadline, take
            )
            size = len(body)
            query = request.query_params if request.scope["query_string"] else {}
            _check_room(repository, presumed_model(media, body, query), exchange)
            with exchange.stage("decode"):
                parsed = await offload.run(size, read, media, body, query, settings)
                model = repository.find(parsed.model)
                exchange.answered_by(model.name, model.version)
                model.check_room()
                found = await offload.run(size, parsed.decode, model, settings)
                exchange.windows = len(found.job.history)
            # Nothing of the request but the job outlives its share of the budget.
            del body, parsed

        caller = caller_of(request)

        async def wait(future: Future[Arrays]) -> Arrays:
            done = await outcome(future, caller, deadline)
            exchange.ran(future)
            return done

        outputs = await run(found.job, deadline, wait)
        with exchange.stage("encode"):
            answer = await offload.run(found.answer_bytes(outputs), found.encode, outputs)
        return Response(answer, media_type=media)

    for path in ("/forecast", "/v1/timeseries/forecast"):
        router.add_api_route(
            path,
            forecast,
            methods=["POST"],
            responses={200: {"model": ForecastResponse}, **_ERRORS},
            response_class=Response,
            operation_id="forecast" + path.replace("/", "_").removesuffix("_forecast"),
        )

    @router.get("/v1/timeseries/models")
    async def models(response: Response) -> list[str]:
        """Names of the served models; `X-Foretell-Providers` says what runs them."""
        # Not model by model: clients refuse headers of many kilobytes.
        providers = {model.provider for model in repository.models}
        response.headers["X-Foretell-Providers"] = ", ".join(sorted(providers))
        return repository.names

    return router


def _check_room(repository: Repository, name: str | None, exchange: Exchange) -> None:
    """Refuse a request whose model has no room for it before reading it takes any time.

    Raises:
        QueueFullError: that is so.
        ModelFailedError: it has failed. Any other error is told when the request is read.
    """
    if name is None and len(repository.models) != 1:
        # It may name any of them later on.
        return
    try:
        model = repository.find(name)
    except ServiceError:
        return
    try:
        model.check_room()
    except ServiceError:
        exchange.answered_by(model.name, model.version)
        raise
