"""A client of a foretell server for coroutines."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

import httpx
from pydantic import TypeAdapter

from foretell.client import cards, ledger
from foretell.client.answers import Answer, warn
from foretell.client.backtesting import Backtest, BacktestOptions, backtest
from foretell.client.cards import ModelCard, ModelReport
from foretell.client.clients import RETRY_FOR, TIMEOUT
from foretell.client.comparing import Compared, CompareOptions, compare
from foretell.client.exchange import Outcome, Pause, Steps, connection, post_json
from foretell.client.explaining import ExplainOptions, Explanation, explain
from foretell.client.forecasting import ForecastOptions, forecast, sole_frame
from foretell.client.ledger import (
    AccuracyOptions,
    ActualsOptions,
    Trajectories,
    TrajectoryOptions,
    Written,
)

if TYPE_CHECKING:
    import pandas as pd

Frame = TypeVar("Frame")
Read = TypeVar("Read")
Result = TypeVar("Result")


class AsyncClient:
    """A client for coroutines, with the methods and answers of `Client`.

    Args:
        url: Address of the server; see `Client` for this and the others.
        key: API key.
        timeout: Seconds to wait for an answer.
        retry_for: Seconds within which a request is retried.

    Example:
        >>> async with AsyncClient("localhost:8000") as client:
        ...     forecasts = await asyncio.gather(*map(client.forecast, frames))
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = TIMEOUT,
        retry_for: float = RETRY_FOR,
    ) -> None:
        self._retry_for = retry_for
        self._http = httpx.AsyncClient(**connection(url, key, timeout))

    async def forecast(self, frame: Frame, **options: Unpack[ForecastOptions]) -> Frame:
        """Forecast every series of a frame, as `Client.forecast` does."""
        answer = await self.forecast_with_notes(frame, **options)
        return sole_frame(answer, stacklevel=2)

    async def forecast_with_notes(
        self, frame: Frame, **options: Unpack[ForecastOptions]
    ) -> Answer[Frame]:
        """Forecast, and return notes, as `Client.forecast_with_notes` does."""
        return await self._run(forecast(frame, self._retry_for, **options))

    async def backtest(self, frame: Frame, **options: Unpack[BacktestOptions]) -> Backtest[Frame]:
        """Measure errors on past rows of a frame, as `Client.backtest` does."""
        found = await self._run(backtest(frame, self._retry_for, **options))
        warn([*found.notes.errors, *found.notes.warnings], stacklevel=2)
        return found

    async def explain(self, frame: object, **options: Unpack[ExplainOptions]) -> Explanation:
        """Forecast one series, and return attention, as `Client.explain` does."""
        found = await self._run(explain(frame, self._retry_for, **options))
        warn(found.warnings, stacklevel=2)
        return found

    async def compare(
        self, model: str, a: str, b: str, **options: Unpack[CompareOptions]
    ) -> Compared:
        """As `Client.compare`."""
        return await self._run(compare(model, a, b, self._retry_for, **options))

    async def actuals(self, frame: object, **options: Unpack[ActualsOptions]) -> Written:
        """Write actual values, as `Client.actuals` does."""
        found = await self._run(ledger.actuals(frame, self._retry_for, **options))
        warn([*found.notes.errors, *found.notes.warnings], stacklevel=2)
        return found

    async def accuracy(self, model: str, **options: Unpack[AccuracyOptions]) -> pd.DataFrame:
        """Scores of a model's forecasts, as `Client.accuracy` returns them."""
        return await self._run(ledger.accuracy(model, self._retry_for, **options))

    async def trajectories(
        self, model: str, series: str, **options: Unpack[TrajectoryOptions]
    ) -> Trajectories:
        """Stored forecasts of a series, as `Client.trajectories` returns them."""
        return await self._run(ledger.trajectories(model, series, self._retry_for, **options))

    async def delete_series(self, name: str, *, namespace: str | None = None) -> int:
        """Delete a series, as `Client.delete_series` does."""
        return await self._run(ledger.delete_series(name, namespace, self._retry_for))

    async def models(self) -> list[ModelCard]:
        """Cards of the models that are served."""
        return await self._run(cards.models(self._retry_for))

    async def model(self, name: str) -> ModelReport:
        """Report of a model, by name or name@version."""
        return await self._run(cards.model(name, self._retry_for))

    async def request(self, path: str, body: object, wanted: TypeAdapter[Read]) -> Read:
        """Post a JSON body, as `Client.request` does."""
        return await self._run(post_json(path, body, wanted, self._retry_for))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _run(self, steps: Steps[Result]) -> Result:
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                result: Result = end.value
                return result
            outcome = None
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            else:
                try:
                    outcome = await self._http.request(**vars(step))
                except httpx.TransportError as error:
                    outcome = error
