"""Forecasts of challengers: some requests are forecast again, after they were answered.

The model of a name may have a challenger (`Registry.challengers`). The ledger gets the challenger's
forecasts beside those of the answer. No client waits for them, so they run in the background, and a
request that cannot be forecast again is only counted.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from foretell.bundle.example import Example
from foretell.bundle.manifest import Manifest
from foretell.service.arrays import Arrays
from foretell.service.engine.intervals import Intervals
from foretell.service.engine.learned import LedgerView
from foretell.service.engine.registry import Model, Named, Registry
from foretell.service.engine.run import Run
from foretell.service.errors import (
    DeadlineExceededError,
    ModelFailedError,
    NotReadyError,
    QueueFullError,
    ServiceError,
    let_go,
)
from foretell.service.http.body import LARGE
from foretell.service.http.client import ClientConnection
from foretell.service.http.compression import Body
from foretell.service.http.waiting import wait_for_result
from foretell.service.metrics import CHALLENGER_SKIPPED

if TYPE_CHECKING:
    from foretell.service.http.pipeline import Codec, Shared

_logger = logging.getLogger(__name__)

# Larger bodies are not kept for a challenger.
MOST_BYTES = 1024 * 1024
# Requests that are kept for challengers at a time, in each HTTP worker.
MOST_REQUESTS = 8


@dataclass(eq=False)
class _InBackground(Named):
    """A model whose runs are all in the background."""

    model: Model

    @property
    def manifest(self) -> Manifest:  # type: ignore[override]
        return self.model.manifest

    @property
    def digest(self) -> str:  # type: ignore[override]
        return self.model.digest

    @property
    def intervals(self) -> Intervals:
        return self.model.intervals

    @property
    def on_demand(self) -> bool:
        return self.model.on_demand

    @property
    def max_batch(self) -> int:
        return self.model.max_batch

    @property
    def provider(self) -> str:
        return self.model.provider

    @property
    def failure(self) -> str | None:
        return self.model.failure

    def submit(
        self,
        feeds: Arrays,
        *,
        attention: Sequence[str] = (),
        deadline: float,
        admitted: bool = False,
        background: bool = True,  # noqa: ARG002
    ) -> Run:
        return self.model.submit(
            feeds, attention=attention, deadline=deadline, admitted=admitted, background=True
        )

    async def example(self) -> Example | None:
        return await self.model.example()


@dataclass(eq=False)
class Challenge:
    """A request that a challenger will forecast again."""

    model: Model
    codec: Codec
    body: Body
    request: Request
    namespace: str
    # The id of the answer, by which both forecasts are compared.
    answer: str = ""


class Challenges:
    """Draws requests for challengers, and forecasts them again; for use on the event loop only."""

    def __init__(self, shared: Shared) -> None:
        self._engine, self._settings = shared.engine, shared.settings
        self._offload = shared.offload
        # A request that ends with an error leaves by itself.
        self._kept: WeakSet[Challenge] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()
        self._logged: set[tuple[str, str]] = set()

    def draw(
        self,
        model: Model,
        find: Callable[[Registry], Model],
        codec: Codec,
        body: Body,
        request: Request,
        namespace: str,
    ) -> Challenge | None:
        """Draw a request by the share of its model's challenger; None for most requests.

        Args:
            model: The model that answers the request.
            find: Finds the model of the request; a request that names a version is never drawn.
            codec: The codec of the request.
            body: Its body, which is kept until the challenger has forecast.
            request: The request.
            namespace: The namespace of its key.
        """
        registry = self._engine.registry
        challenger = registry.challengers.get(model.name)
        if challenger is None or _draw() >= challenger[1]:
            return None
        if registry.get(model.name, challenger[0]).model is None:
            self._skip("not_loaded")
            return None
        try:
            found = find(registry.challenged)
        except ServiceError:
            # It found its model by facts that the challenger does not share.
            self._skip("refused")
            return None
        if (found.name, found.version) != (model.name, challenger[0]) or found is model:
            return None
        if len(body) > MOST_BYTES:
            self._skip("too_large")
            return None
        if len(self._kept) >= MOST_REQUESTS:
            self._skip("busy")
            return None
        challenge = Challenge(found, codec, bytes(body), request, namespace)
        self._kept.add(challenge)
        return challenge

    def follow(self, response: Response, challenge: Challenge, answer: str) -> None:
        """Forecast a request again once its answer, with this id in the ledger, has been sent."""
        challenge.answer = answer
        response.background = BackgroundTask(self._start, challenge)

    async def _start(self, challenge: Challenge) -> None:
        task = asyncio.ensure_future(self._run(challenge))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, challenge: Challenge) -> None:
        try:
            await self._forecast(challenge)
        except ServiceError as error:
            let_go(error)
            self._note(challenge, error)
        except Exception as error:
            self._note(challenge, error)

    def _note(self, challenge: Challenge, error: Exception) -> None:
        reason = _reason(error)
        self._skip(reason)
        reference = f"{challenge.model.name}@{challenge.model.version}"
        if (reference, reason) not in self._logged:
            self._logged.add((reference, reason))
            _logger.debug("a challenger did not forecast: %s: %r", reference, error)

    async def _forecast(self, challenge: Challenge) -> None:
        codec, body, request = challenge.codec, challenge.body, challenge.request
        deadline = time.monotonic() + self._settings.timeout_seconds
        parsed = await self._do(
            codec.parsing_work(body, request), deadline, codec.parse, body, request
        )
        model = _InBackground(challenge.model)
        decoded = await self._do(parsed.work, deadline, codec.decode, parsed, model)
        wait = partial(wait_for_result, client=ClientConnection(lambda: None), deadline=deadline)
        outputs = await decoded.run(deadline, wait)
        decoded.set_ledger(LedgerView(True, challenge.namespace, self._engine.learned))
        work = codec.encoding_work(decoded, outputs)
        # Encoding completes what the ledger gets, such as quantiles.
        await self._do(work, deadline, codec.encode, decoded, outputs)
        record = await self._do(decoded.recording_work, deadline, decoded.record, outputs)
        if record is not None:
            message, arrays = record
            message.answer = challenge.answer
            self._engine.remember(message, arrays)

    async def _do(
        self,
        work: int,
        deadline: float,
        function: Callable[..., Any],
        *given: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Call a function here or, if there is much to do, on a thread."""
        if work < LARGE:
            return function(*given)
        return await self._offload.run(deadline, function, *given)

    def _skip(self, reason: str) -> None:
        self._engine.metrics.counts.add(CHALLENGER_SKIPPED, reason)


def _draw() -> float:
    """A number from 0 to below 1; not a secret."""
    return random.random()  # noqa: S311


def _reason(error: Exception) -> str:
    """The value of the metric's label for an error."""
    if isinstance(error, QueueFullError):
        return "busy"
    if isinstance(error, NotReadyError):
        return "not_loaded"
    if isinstance(error, DeadlineExceededError):
        return "expired"
    is_refusal = isinstance(error, ServiceError) and not isinstance(error, ModelFailedError)
    return "refused" if is_refusal else "failed"
