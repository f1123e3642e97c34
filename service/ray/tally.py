"""What doors and engines of a cluster have counted, added up in one place."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from foretell.service.errors import EngineLostError
from foretell.service.metrics import Metrics, Taken
from foretell.service.ray.handles import Handle
from foretell.service.statistics import statistics

_COUNT_SECONDS = 1.0
# Until all doors have heard that the server is to end, and told what they have accepted by then.
_HEARD_SECONDS = 3.0
# While there is none, Ray would wait for another one to take its place.
_ANSWER_SECONDS = 2.0
# Who says nothing for so long is gone, and so are its requests.
_GONE_SECONDS = 10.0


class Tally:
    """The sum of what is told, since this began; another one in its place begins at 0."""

    def __init__(self) -> None:
        self._metrics = Metrics()
        self._heard: dict[str, float] = {}
        self._numbers: dict[str, int] = {}
        self._stopped_at: float | None = None

    async def tell(
        self, who: str, number: int, taken: Taken, in_flight: int, build: dict[str, str]
    ) -> bool:
        """Add what a door or an engine has counted since it last told.

        Args:
            who: It.
            number: How often it has told; what is told again counts once.
            taken: Its counts.
            in_flight: Requests that it is answering.
            build: What it runs, if it runs models.

        Returns:
            Whether the server is to end, so that doors refuse what comes.
        """
        if number > self._numbers.get(who, 0):
            self._numbers[who] = number
            self._metrics.counts.merge(taken)
        self._metrics.elsewhere[who] = in_flight
        self._metrics.build = build or self._metrics.build
        self._heard[who] = time.monotonic()
        return self._stopped_at is not None

    async def stop(self) -> bool:
        """Have doors refuse what comes.

        Returns:
            Whether all have heard of it, and have answered what they had accepted.
        """
        now = time.monotonic()
        if self._stopped_at is None:
            self._stopped_at = now
        self._forget()
        heard = now - self._stopped_at >= _HEARD_SECONDS
        return heard and not any(self._metrics.elsewhere.values())

    async def render(self) -> bytes:
        """All of it in Prometheus' text format."""
        self._forget()
        return self._metrics.render()

    async def statistics(self, versions: list[tuple[str, str]]) -> dict[str, Any]:
        """The counts of versions by name and version, as a `StatisticsReport` has them."""
        return statistics(self._metrics, versions).model_dump()

    def _forget(self) -> None:
        """Forget who is gone."""
        now = time.monotonic()
        for who in [who for who, heard in self._heard.items() if now - heard > _GONE_SECONDS]:
            # How often it told is kept: it may be silent for long, and then tell the last again.
            del self._heard[who], self._metrics.elsewhere[who]


async def asked(handle: Handle, *given: object) -> Any:  # noqa: ANN401 - what the method returns
    """What the tally answers.

    Args:
        handle: Of a method of it.
        given: What that takes.

    Raises:
        EngineLostError: nothing, within seconds.
    """
    response = handle.remote(*given)
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            return await response
    except (RayError, RayServeException, TimeoutError) as error:
        response.cancel()
        raise EngineLostError("what the cluster has counted cannot be had just now") from error


class Teller:
    """Tells the tally what a process has counted, once a second.

    Args:
        metrics: The process'.
        tally: A handle of it.
        stop: Is called when the tally says that the server is to end, each time.
    """

    def __init__(
        self, metrics: Metrics, tally: Handle, stop: Callable[[], None] = lambda: None
    ) -> None:
        self._stop = stop
        self._metrics = metrics
        self._tally = tally.options(method_name="tell")
        self._who = uuid.uuid4().hex
        self._telling: asyncio.Task[None] | None = None
        # What is being told, until it is known that it was heard.
        self._number = 0
        self._taken: Taken | None = None
        self._turn = asyncio.Lock()

    def start(self) -> None:
        """Begin, on this event loop, unless it has begun."""
        if self._telling is None:
            self._telling = asyncio.create_task(self._keep_telling())

    async def tell(self) -> None:
        """Tell now; while nobody can be told, what was counted stays here."""
        metrics = self._metrics
        async with self._turn:
            if self._taken is None:
                self._number += 1
                self._taken = metrics.counts.take()
            told = (self._who, self._number, self._taken, metrics.in_flight, metrics.build)
            with suppress(EngineLostError):
                stopping = await asked(self._tally, *told)
                self._taken = None
                if stopping:
                    self._stop()

    async def close(self) -> None:
        """Tell the rest, and end."""
        if self._telling is not None:
            self._telling.cancel()
        await self.tell()

    async def _keep_telling(self) -> None:
        while True:
            await asyncio.sleep(_COUNT_SECONDS)
            await self.tell()
