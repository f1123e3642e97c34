"""The main door: KServe's time-series forecast API, `POST /forecast`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Protocol

from fastapi import APIRouter, Request, Response

from foretell.service.arrays import Arrays
from foretell.service.engine.registry import Model, Pending, Registry
from foretell.service.errors import DeadlineExceededError, ServiceError
from foretell.service.forecast.answers import BacktestResponse, ErrorResponse, ForecastResponse
from foretell.service.forecast.backtest import BACKTESTING, Backtest
from foretell.service.forecast.encode import encode, encoding_work
from foretell.service.forecast.job import Job, decode, run
from foretell.service.forecast.options import FORECASTING, Operation
from foretell.service.forecast.parse import parse, parsing_bytes, reading_work
from foretell.service.forecast.requests import BacktestEnvelope, BacktestOptions, Envelope
from foretell.service.http.body import (
    ALWAYS,
    LARGE,
    Shared,
    deadline_of,
    media_type,
    outcome,
    read_body,
    response_of,
)
from foretell.service.http.compression import Body, choose_encoding, compress
from foretell.service.http.middleware import RequestContext, request_context
from foretell.service.http.protocol import connection_of
from foretell.service.http.refusals import refusals
from foretell.service.settings import Settings
from foretell.service.validation import QUERY, UnknownFields

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"

# What an input takes beside its numbers, as `Offload` has it: its checks, and calendar features.
_INPUT = 8 * 1024
# Of each of its times, beside their bytes: it is written, and compared with what it should be.
_TIMESTAMP = 256
# Most clients ask for compressed answers on their own, and gzip takes longer to write than most
# forecasts: half a millisecond for so much. zstd takes a third of that, or less.
_COMPRESSED_BYTES = 64 * 1024
_ERRORS = refusals(ErrorResponse, 400, 404, 408, 413, 415, 422, 429, 503, 504)


def timeseries_router(shared: Shared) -> APIRouter:
    """The routes of this door."""
    router = APIRouter(tags=["time series"])
    forecast = endpoint(read, None, shared)
    reader = partial(read, task=BACKTESTING)
    backtest = endpoint(reader, Backtest, shared)
    for answering, task, answer, *paths in (
        (forecast, FORECASTING, ForecastResponse, "/forecast", "/v1/timeseries/forecast"),
        (backtest, BACKTESTING, BacktestResponse, "/backtest"),
    ):
        for path in paths:
            router.add_api_route(
                path,
                answering,
                methods=["POST"],
                name=task.name,
                description=task.description,
                responses={200: {"model": answer}, **_ERRORS},
                response_class=Response,
                operation_id=(task.name + path.replace("/", "_")).removesuffix(f"_{task.name}"),
            )

    @router.get("/v1/timeseries/models")
    async def models(response: Response) -> list[str]:
        """Names of the served models; `X-Foretell-Providers` says what runs them."""
        # Not model by model: clients refuse headers of many kilobytes.
        registry = shared.engine.registry
        providers = {model.provider for model in registry.models}
        response.headers["X-Foretell-Providers"] = ", ".join(sorted(providers))
        return [*registry.defaults]

    return router


def endpoint(
    reader: Reader,
    answers: type[Backtest] | None,
    shared: Shared,
    *,
    media_types: tuple[str, ...] = (JSON, ARROW),
) -> Callable[[Request], Awaitable[Response]]:
    """What answers requests that are run as jobs.

    Args:
        reader: Reads them.
        answers: Makes of what was read what is answered in JSON, if that is not of its own type.
        shared: With all routes that run models.
        media_types: Of bodies; the first is taken for granted.
    """
    return _Endpoint(reader, answers, shared, media_types).respond


class _Endpoint:
    """As `endpoint` is called."""

    def __init__(
        self,
        reader: Reader,
        answers: type[Backtest] | None,
        shared: Shared,
        media_types: tuple[str, ...],
    ) -> None:
        self._reader = reader
        self._answers = answers
        self._media_types = media_types
        self._engine, self._settings = shared.engine, shared.settings
        self._budget, self._offload = shared.budget, shared.offload

    async def respond(self, request: Request) -> Response:
        exchange = request_context(request.scope)
        deadline = deadline_of(exchange.headers, self._settings.timeout_seconds)
        found, media = await self._read(request, exchange, deadline)
        job, caller, run_off = found.job, connection_of(request), self._offload.run

        async def wait(pending: Pending) -> Arrays:
            done = await outcome(pending, caller, deadline)
            exchange.ran(pending)
            return done

        with self._budget.share() as take:
            # Of the request nothing outlives its own share but this, and soon in the answer too.
            take(2 * job.echoed)
            outputs = await run(job, deadline, wait)
            began = time.time_ns()
            work = encoding_work(job, outputs)
            answer = await run_off(work, deadline, found.encode, outputs)
        if isinstance(found, Backtest):
            self._engine.metrics.backtested(job.model.name, job.model.version, found.held)
        headers: dict[str, str] = {}
        if len(answer) >= _COMPRESSED_BYTES:
            accepted = exchange.headers.get("accept-encoding", "")
            if encoding := choose_encoding(accepted, ("zstd", "gzip")):
                headers["Content-Encoding"] = encoding
                answer = await run_off(ALWAYS, deadline, compress, encoding, [answer])
        exchange.staged("encode", began)
        return response_of(answer, self._budget, headers, media)

    async def _read(
        self, request: Request, exchange: RequestContext, deadline: float
    ) -> tuple[Answering, str]:
        """What is asked for, and the type of the answer."""
        settings, run_off = self._settings, self._offload.run
        with self._budget.share() as take:
            media = media_type(exchange.headers, *self._media_types)
            limit = settings.max_body_bytes
            body = await read_body(request, exchange.headers, limit, deadline, take)
            query = request.query_params if request.scope["query_string"] else {}
            reading = reading_work(body, len(body)) if media == JSON else ALWAYS
            began = time.time_ns()
            if media == JSON and reading >= LARGE:
                take(await run_off(reading, deadline, parsing_bytes, body))
            parsed = await run_off(reading, deadline, self._reader, media, body, query, settings)
            if parsed.memory:
                take(parsed.memory)
            try:
                model = parsed.find(self._engine.registry)
            except ServiceError:
                with suppress(DeadlineExceededError):
                    await run_off(reading, deadline, parsed.drop)
                raise
            exchange.model, exchange.version = model.name, model.version
            work = parsed.work
            if reading < LARGE <= work:
                # It was parsed at once, and waits for a thread now, as others may.
                take(parsing_bytes(body))
            found = await run_off(work, deadline, parsed.decode, model, settings)
        if self._answers is not None:
            found, media = self._answers(found.job, is_table=media == ARROW), JSON
        exchange.windows = len(found.job.history)
        if found.job.past is not None:
            exchange.windows += len(found.job.past)
        exchange.staged("decode", began)
        return found, media


class Answering(Protocol):
    """A request that was read whole, and knows how to write its answer."""

    @property
    def job(self) -> Job:
        """What to do."""

    def encode(self, outputs: Arrays) -> bytes:
        """Write the answer; raises a `ServiceError` if there is none for any of the inputs."""


class Parsed(Protocol):
    """A request, read as far as it can be without knowing its model."""

    def find(self, registry: Registry) -> Model:
        """The model that it means; raises as `Registry.find`."""

    @property
    def work(self) -> int:
        """How much there is to do to read the rest, as `Offload` has it."""

    @property
    def memory(self) -> int:
        """About how many bytes the rest will take that are not counted yet."""

    def decode(self, model: Model, settings: Settings) -> Answering:
        """Read the rest, and drop what was read; raises a `ServiceError` if it does not fit."""

    def drop(self) -> None:
        """Drop what was read, which may take long."""


Reader = Callable[[str, Body, Mapping[str, str], Settings], Parsed]


def read(
    media_type: str,
    body: Body,
    query: Mapping[str, str],
    settings: Settings,
    task: Operation = FORECASTING,
) -> Parsed:
    """Begin to read a request.

    Args:
        media_type: `JSON` or `ARROW`.
        body: Its body.
        query: The parameters of its URL, where a table alone has its options.
        settings: Limits.
        task: What it asks for.

    Raises:
        UnreadableError: the body is not what the media type says.
        InvalidInputError: the request does not fit the interface.
    """
    if media_type == JSON:
        envelope, ignored = parse(body, task, settings.max_inputs)
        if query:
            task.names.sift(QUERY, query, QUERY, ignored)
        return _JsonRequest(envelope, ignored, len(body), task)
    # Arrow takes its time and memory to load; many servers never see a table.
    request = import_module("foretell.service.forecast.arrow")
    parsed: Parsed = request.TableRequest(body, query, settings, task)
    return parsed


class _JsonRequest:
    """A request in JSON, as far as it was read: `decode` makes of it one that was read whole."""

    memory = 0
    job: Job

    def __init__(
        self,
        envelope: Envelope | BacktestEnvelope,
        ignored: UnknownFields,
        size: int,
        task: Operation,
    ) -> None:
        self._envelope = envelope
        self._ignored = ignored
        self._size = size
        self._task = task

    def find(self, registry: Registry) -> Model:
        return registry.find(self._envelope.model)

    @property
    def work(self) -> int:
        inputs, options = self._envelope.inputs, self._envelope.options
        work = self._size + _INPUT * len(inputs)
        # Windows are cut out of all rows.
        if work >= LARGE or type(options) is BacktestOptions or options.calibration == "history":
            return ALWAYS
        for entry in inputs:
            if not isinstance(entry, dict):
                continue
            # The first to name a zone waits until its clock is known.
            if "time_zone" in entry:
                return ALWAYS
            if isinstance(timestamps := entry.get("timestamps"), list):
                work += _TIMESTAMP * len(timestamps)
        return work

    def decode(self, model: Model, settings: Settings) -> Answering:
        envelope = self._envelope
        self.drop()
        self.job = decode(envelope, self._ignored, model, settings, self._task)
        return self

    def drop(self) -> None:
        del self._envelope

    def encode(self, outputs: Arrays) -> bytes:
        return encode(self.job, outputs)
