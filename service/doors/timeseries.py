"""The main door: KServe's time-series forecast API, `POST /forecast`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from foretell.service.arrays import Arrays
from foretell.service.directory import Pending
from foretell.service.doors.budget import BodyBudget
from foretell.service.doors.compression import choose_encoding, compress
from foretell.service.doors.exchange import deadline_of, media_type, outcome, read_body
from foretell.service.doors.forms import ARROW, JSON, read, reading_bytes
from foretell.service.engines import Engine
from foretell.service.requests.rolling import run
from foretell.service.requests.schemas import ErrorResponse, ForecastResponse
from foretell.service.settings import Settings
from foretell.service.web.callers import caller_of
from foretell.service.web.middleware import exchange_of
from foretell.service.web.offload import ALWAYS, Offload

# Most clients ask for compressed answers on their own, and gzip takes longer to write than most
# forecasts: half a millisecond for so much. zstd takes a third of that, or less.
_COMPRESSED_BYTES = 64 * 1024
_ERRORS: dict[int | str, dict[str, object]] = {
    400: {"model": ErrorResponse, "description": "Not what the headers say, or not JSON."},
    404: {"model": ErrorResponse, "description": "Unknown model or version."},
    408: {"model": ErrorResponse, "description": "The body came too slowly."},
    413: {"model": ErrorResponse, "description": "The body is over the limit."},
    415: {"model": ErrorResponse, "description": "Not a type or an encoding that is read."},
    422: {"model": ErrorResponse, "description": "The request does not fit the model."},
    429: {
        "model": ErrorResponse,
        "description": "Too much is waiting; see `Retry-After`.",
    },
    503: {
        "model": ErrorResponse,
        "description": "The model is not ready, or failed; or see `Retry-After`.",
    },
    504: {"model": ErrorResponse, "description": "The deadline passed."},
}


def timeseries_router(
    engine: Engine, settings: Settings, budget: BodyBudget, offload: Offload
) -> APIRouter:
    """The routes of this door.

    Args:
        engine: Runs the models.
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
            work = size if media == JSON else ALWAYS
            with exchange.stage("decode"):
                take(await offload.run(size, deadline, reading_bytes, media, body))
                parsed = await offload.run(work, deadline, read, media, body, query, settings)
                take(parsed.memory)
                model = engine.directory.find(parsed.model)
                exchange.answered_by(model.name, model.version)
                found = await offload.run(parsed.work, deadline, parsed.decode, model, settings)
                exchange.windows = len(found.job.history)
            # Nothing of the request but the job outlives its share of the budget.
            del body, parsed

        caller = caller_of(request)

        async def wait(pending: Pending) -> Arrays:
            done = await outcome(pending, caller, deadline)
            exchange.ran(pending)
            return done

        outputs = await run(found.job, deadline, wait)
        with exchange.stage("encode"):
            work = found.encoding_work(outputs)
            answer = await offload.run(work, deadline, found.encode, outputs)
            headers: dict[str, str] = {}
            if len(answer) >= _COMPRESSED_BYTES:
                accepted = exchange.headers.get("accept-encoding", "")
                if encoding := choose_encoding(accepted, ("zstd", "gzip")):
                    headers["Content-Encoding"] = encoding
                    answer = await offload.run(ALWAYS, deadline, compress, encoding, [answer])
        return Response(answer, headers=headers, media_type=media)

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
        directory = engine.directory
        providers = {model.provider for model in directory.models}
        response.headers["X-Foretell-Providers"] = ", ".join(sorted(providers))
        return [model.name for model in directory.defaults]

    return router
