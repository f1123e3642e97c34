"""KServe's time-series forecast API, `POST /forecast`, and `POST /backtest` beside it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fastapi import APIRouter, Request, Response

from foretell.service.arrays import Arrays
from foretell.service.engine.registry import Model
from foretell.service.errors import refusals
from foretell.service.forecast.answers import BacktestResponse, ErrorResponse, ForecastResponse
from foretell.service.forecast.backtest import BACKTESTING, Backtest
from foretell.service.forecast.encode import encoding_work
from foretell.service.forecast.job import Job
from foretell.service.forecast.options import FORECASTING, Operation
from foretell.service.forecast.parse import Compressed, JsonCodec
from foretell.service.http.body import ALWAYS, JSON
from foretell.service.http.compression import Body
from foretell.service.http.pipeline import Parsed, Shared, serve
from foretell.service.settings import Settings

ARROW = "application/vnd.apache.arrow.stream"

_ERRORS = refusals(ErrorResponse, 400, 404, 408, 413, 415, 422, 429, 503, 504)


def timeseries_router(shared: Shared) -> APIRouter:
    """The routes of forecasts and backtests."""
    router = APIRouter(tags=["time series"])
    settings = shared.settings
    forecasts = JsonCodec(FORECASTING, settings), ArrowCodec(FORECASTING, settings)
    backtests = (
        BacktestCodec(JsonCodec(BACKTESTING, settings)),
        BacktestCodec(ArrowCodec(BACKTESTING, settings)),
    )
    for operation, codecs, answer, *paths in (
        (FORECASTING, forecasts, ForecastResponse, "/forecast", "/v1/timeseries/forecast"),
        (BACKTESTING, backtests, BacktestResponse, "/backtest"),
    ):
        endpoint, name = serve(shared, *codecs), operation.name
        for path in paths:
            router.add_api_route(
                path,
                endpoint,
                methods=["POST"],
                name=name,
                description=operation.description,
                responses={200: {"model": answer}, **_ERRORS},
                response_class=Response,
                operation_id=(name + path.replace("/", "_")).removesuffix(f"_{name}"),
            )

    @router.get("/v1/timeseries/models")
    async def models(response: Response) -> list[str]:
        """Names of the served models; `X-Foretell-Providers` has their execution providers."""
        # One header for all models: clients refuse headers of many kilobytes.
        registry = await shared.engine.updated()
        providers = {model.provider for model in registry.models}
        response.headers["X-Foretell-Providers"] = ", ".join(sorted(providers))
        return [*registry.defaults]

    return router


class ArrowBody(Compressed):
    """The half of a codec whose requests are tables in Arrow's format."""

    media_type = ARROW

    def parsing_work(self, body: Body, request: Request) -> int:  # noqa: ARG002
        """The work is unknown before the table is read."""
        return ALWAYS

    def parsing_memory(self, body: Body, request: Request) -> int:  # noqa: ARG002
        """A table is read in place."""
        return 0


class ArrowCodec(ArrowBody):
    """Forecasts of a table in Arrow's format, with options in the URL.

    Arrow takes time and memory to load, and many servers never see a table: the first table loads
    the three functions.
    """

    encoding_work = staticmethod(encoding_work)

    def __init__(self, operation: Operation, settings: Settings) -> None:
        self._operation = operation
        self._settings = settings

    def parse(self, body: Body, request: Request) -> Parsed[Any]:
        parsed: Parsed[Any] = _arrow().parse(
            body, request.query_params, self._settings, self._operation.query
        )
        return parsed

    def decode(self, parsed: Parsed[Any], model: Model) -> Job:
        job: Job = _arrow().decode(parsed, model, self._settings, self._operation)
        return job

    def encode(self, job: Job, outputs: Arrays) -> tuple[bytes, dict[str, str]]:
        return _arrow().encode(job, outputs), {"content-type": ARROW}


def _arrow() -> Any:  # noqa: ANN401 - a module
    return import_module("foretell.service.forecast.arrow")


class BacktestCodec(Compressed):
    """Backtests: another codec reads their requests, and their answers are JSON."""

    def __init__(self, codec: JsonCodec | ArrowCodec) -> None:
        self.media_type = codec.media_type
        self.parsing_work, self.parsing_memory = codec.parsing_work, codec.parsing_memory
        self.parse, self._decode = codec.parse, codec.decode

    def decode(self, parsed: Parsed[Any], model: Model) -> Backtest:
        return Backtest(self._decode(parsed, model))

    def encoding_work(self, backtest: Backtest, outputs: Arrays) -> int:  # noqa: ARG002
        """Every forecast is compared with actual values."""
        return ALWAYS

    def encode(self, backtest: Backtest, outputs: Arrays) -> tuple[bytes, dict[str, str]]:
        return backtest.encode(outputs), {"content-type": JSON}
