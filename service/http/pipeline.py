"""The pipeline of all requests that run models, from the bytes of a body to those of an answer.

Read the body, parse it, find the model (first, if the path names it), decode the request for it,
run the model, encode its outputs, compress and send them. A codec of one format of requests and
answers parses, decodes and encodes; this module does the rest for all formats.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any, Generic, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from foretell.service.arrays import Arrays
from foretell.service.engine.engine import Engine
from foretell.service.engine.ipc import Remember
from foretell.service.engine.learned import LedgerView
from foretell.service.engine.registry import Model, Registry
from foretell.service.engine.run import Run
from foretell.service.errors import DeadlineExceededError, ServiceError
from foretell.service.http.body import (
    LARGE,
    SMALL_ANSWER,
    LargeAnswer,
    MemoryBudget,
    Offload,
    Share,
    deadline_of,
    media_type,
    read_body,
)
from foretell.service.http.challenges import Challenge, Challenges
from foretell.service.http.client import connection_of
from foretell.service.http.compression import Body, choose_encoding, compress
from foretell.service.http.middleware import RequestContext
from foretell.service.http.waiting import wait_for_result
from foretell.service.metrics import LEDGER_FORECASTS, Stage
from foretell.service.settings import Settings

Wait = Callable[[Run], Awaitable[Arrays]]
# Bytes of other work that take as long as compressing a byte.
COMPRESSION = 4

_Content = TypeVar("_Content")


@dataclass(slots=True, eq=False)
class Parsed(Generic[_Content]):
    """A parsed request, before its model is known.

    Attributes:
        content: Parsed content, until it is released.
        find: Finds the model of the request; raises as `Registry.find`. None if the path names the
            model.
        work: Work of decoding, in the unit of `LARGE`.
        memory: Approximate bytes that decoding takes and that are not reserved yet.
    """

    content: _Content | None
    find: Callable[[Registry], Model] | None
    work: int
    memory: int = 0

    def release(self) -> _Content:
        """Return the content, and hold it no longer."""
        content, self.content = self.content, None
        assert content is not None  # noqa: S101 - it is released once
        return content

    def drop(self) -> None:
        """Free the content, which may take a while."""
        self.content = None


class Decoded(Protocol):
    """A request that was checked against its model and can run."""

    @property
    def windows(self) -> int:
        """Number of windows to forecast."""

    @property
    def held(self) -> int:
        """Approximate bytes of the request that are needed until it is answered."""

    @property
    def timeout(self) -> float | None:
        """The request's own timeout in seconds from its start, if it has one."""

    @property
    def coverage(self) -> Mapping[float, tuple[int, int]]:
        """Values inside intervals, and all compared values, by level; after encoding."""

    def run(self, deadline: float, wait: Wait) -> Awaitable[Arrays]:
        """Run the model one or more times; returns `[windows, …]` by output name.

        `wait` waits for one run; it raises if the client disconnects or the deadline passes.
        """

    def set_ledger(self, ledger: LedgerView) -> int:
        """Set the server's ledger, before encoding; returns how many forecasts one could keep."""

    @property
    def recording_work(self) -> int:
        """Work of `record`, in the unit of `LARGE`."""

    def record(self, outputs: Arrays) -> tuple[Remember, Arrays] | None:
        """The message to the ledger, after encoding; None for nothing."""


class NotRemembered:
    """Part of a `Decoded` whose forecasts no ledger keeps."""

    recording_work = 0

    def set_ledger(self, ledger: LedgerView) -> int:  # noqa: ARG002
        return 0

    def record(self, outputs: Arrays) -> None:  # noqa: ARG002
        return None


class Codec(Protocol):
    """A format of requests and answers.

    `parse`, `decode` and `encode` raise a `ServiceError` to refuse a request. They may run on a
    thread.
    """

    @property
    def media_type(self) -> str | None:
        """Media type of its requests; None if any Content-Type is accepted."""

    @property
    def encodings(self) -> Sequence[str]:
        """Names in Content-Encoding that its clients can read, in order of preference."""

    @property
    def compress_from(self) -> int:
        """Bytes of the smallest answer that is compressed."""

    def parsing_work(self, body: Body, request: Request) -> int:
        """Work of parsing, in the unit of `LARGE`."""

    def parsing_memory(self, body: Body, request: Request) -> int:
        """Approximate bytes that parsing takes; only called for large work."""

    def parse(self, body: Body, request: Request) -> Parsed[Any]:
        """Read the parts of a request that do not need its model."""

    def decode(self, parsed: Any, model: Model) -> Decoded:  # noqa: ANN401 - its own
        """Read the rest, and free the parsed request."""

    def encoding_work(self, decoded: Any, outputs: Arrays) -> int:  # noqa: ANN401
        """Work of encoding, in the unit of `LARGE`."""

    def encode(self, decoded: Any, outputs: Arrays) -> tuple[bytes, dict[str, str]]:  # noqa: ANN401
        """The body of the answer, and its headers by name in lower case."""


@dataclass(frozen=True)
class Shared:
    """Objects that all routes that run models share."""

    engine: Engine
    settings: Settings
    budget: MemoryBudget
    offload: Offload


def serve(shared: Shared, *codecs: Codec) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint of requests in one or several formats.

    The first codec reads requests without a media type. A codec without a media type must be the
    only one.
    """
    return _Pipeline(shared, codecs).respond


class _Pipeline:
    def __init__(self, shared: Shared, codecs: Sequence[Codec]) -> None:
        self._engine, self._settings = shared.engine, shared.settings
        self._budget, self._offload = shared.budget, shared.offload
        self._challenges = Challenges(shared)
        self._learns = shared.settings.ledger_learn == "requests"
        self._codec = codecs[0]
        self._codecs = {each.media_type: each for each in codecs if each.media_type is not None}

    async def respond(self, request: Request) -> Response:
        context: RequestContext = request.scope["state"]["context"]
        headers, codec, started = context.headers, self._codec, time.monotonic()
        deadline = deadline_of(headers, started, self._settings.timeout_seconds)
        if self._codecs and headers.get("content-type", codec.media_type) != codec.media_type:
            codec = self._codecs[media_type(headers, *self._codecs)]
        share = Share(self._budget)
        try:
            decoded, challenge = await self._read(codec, request, context, deadline, share.reserve)
            # From here on `decoded` is the only holder of the request's data.
            share.reserve(decoded.held - share.reserved)
            if decoded.timeout is not None:
                deadline = min(deadline, started + decoded.timeout)
            client = connection_of(request)
            wait = partial(wait_for_result, client=client, deadline=deadline, context=context)
            outputs = await decoded.run(deadline, wait)
            began = time.time_ns()
            answer, described, kept = await self._encode(codec, decoded, outputs, context, deadline)
        finally:
            share.release()
        if coverage := decoded.coverage:
            self._engine.metrics.backtested(context.model, context.version, coverage)
        if len(answer) >= codec.compress_from:
            accepted = headers.get("accept-encoding", "")
            if encoding := choose_encoding(accepted, codec.encodings):
                described["content-encoding"] = encoding
                work = COMPRESSION * len(answer)
                if work < LARGE:
                    answer = compress(encoding, [answer])
                else:
                    answer = await self._offload.run(deadline, compress, encoding, [answer])
        _note_stage(context, "encode", began)
        is_small = len(answer) <= SMALL_ANSWER
        response = (
            Response(answer, headers=described)
            if is_small
            else LargeAnswer(answer, self._budget, described)
        )
        if challenge is not None and kept:
            self._challenges.follow(response, challenge, kept)
        return response

    async def _encode(
        self,
        codec: Codec,
        decoded: Decoded,
        outputs: Arrays,
        context: RequestContext,
        deadline: float,
    ) -> tuple[bytes, dict[str, str], str]:
        """Encode an answer, and give its forecasts to the ledger; returns what both return."""
        taken, count = self._engine.keeps, 0
        if taken is not None:
            # Not a secret: the requests of a share.
            is_chosen = random.random() < self._settings.ledger_share  # noqa: S311
            is_full, taken = not taken, taken and is_chosen
            view = LedgerView(taken, context.namespace, self._engine.learned, self._learns)
            count = decoded.set_ledger(view)
            if is_full and is_chosen:
                self._count_dropped(count)
        if codec.encoding_work(decoded, outputs) < LARGE:
            encoded = codec.encode(decoded, outputs)
        else:
            encoded = await self._offload.run(deadline, codec.encode, decoded, outputs)
        kept = await self._remember(decoded, outputs, deadline, count) if taken else ""
        return *encoded, kept

    async def _remember(
        self, decoded: Decoded, outputs: Arrays, deadline: float, count: int
    ) -> str:
        """Give `count` forecasts to the ledger, or drop them at the deadline.

        Returns:
            The id of the answer in the ledger; empty if it takes none of its forecasts.
        """
        if decoded.recording_work < LARGE:
            record = decoded.record(outputs)
        else:
            try:
                record = await self._offload.run(deadline, decoded.record, outputs)
            except DeadlineExceededError:
                # The answer itself is complete.
                self._count_dropped(count)
                return ""
        if record is None:
            return ""
        self._engine.remember(*record)
        return record[0].answer

    def _count_dropped(self, count: int) -> None:
        if count:
            self._engine.metrics.counts.add(LEDGER_FORECASTS, "dropped", amount=count)

    async def _read(
        self,
        codec: Codec,
        request: Request,
        context: RequestContext,
        deadline: float,
        reserve: Callable[[int], None],
    ) -> tuple[Decoded, Challenge | None]:
        """Read, parse, find, decode; the request may be kept for a challenger."""
        offload, limit = self._offload, self._settings.max_body_bytes
        model, challenge = None, None
        if path := request.scope.get("path_params"):
            # Bodies for unknown models are not read, and refusals are counted for the model.
            model = await find_model(self._engine, path, deadline)
            _note_model(context, model)
        body = await read_body(request, context.headers, limit, deadline, reserve)
        began = time.time_ns()
        work = codec.parsing_work(body, request)
        if work < LARGE:
            parsed = codec.parse(body, request)
        else:
            reserve(await offload.run(deadline, codec.parsing_memory, body, request))
            parsed = await offload.run(deadline, codec.parse, body, request)
        if parsed.memory:
            reserve(parsed.memory)
        if model is None:
            assert parsed.find is not None  # noqa: S101 - the path names no model
            try:
                model = await self._engine.find(parsed.find, deadline)
            except ServiceError:
                if work >= LARGE:
                    with suppress(DeadlineExceededError):
                        await offload.run(deadline, parsed.drop)
                raise
            _note_model(context, model)
        if self._engine.keeps:
            find = parsed.find or methodcaller("find", _reference(path or {}))
            challenge = self._challenges.draw(model, find, codec, body, request, context.namespace)
        if parsed.work < LARGE:
            decoded = codec.decode(parsed, model)
        else:
            decoded = await offload.run(deadline, codec.decode, parsed, model)
        context.windows = decoded.windows
        _note_stage(context, "decode", began)
        return decoded, challenge


async def find_model(engine: Engine, path: Mapping[str, str], deadline: float = math.inf) -> Model:
    """The model that a path names by its parameters `model` and, if present, `version`."""
    return await engine.find(methodcaller("find", _reference(path)), deadline)


def _reference(path: Mapping[str, str]) -> str:
    return f"{path['model']}@{path['version']}" if "version" in path else path["model"]


def _note_model(context: RequestContext, model: Model) -> None:
    context.model, context.version = model.manifest.name, model.manifest.version
    context.digest = model.digest


def _note_stage(context: RequestContext, stage: Stage, began: int) -> None:
    """Record a stage that began at `began`, by `time.time_ns`, and ends now."""
    ended = time.time_ns()
    context.stages.append((stage, (ended - began) / 1e9))
    if context.trace is not None:
        context.trace.stage(stage, began, ended, context.attributes)
