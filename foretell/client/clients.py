"""Clients of a foretell server, with and without asyncio."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self, TypeVar, Unpack

import httpx
from pydantic import TypeAdapter

from foretell.client import cards
from foretell.client.answers import Answer, warn
from foretell.client.backtesting import Backtest, BacktestOptions, backtest
from foretell.client.cards import ModelCard, ModelReport
from foretell.client.exchange import Outcome, Pause, Steps, connection, post_json
from foretell.client.explaining import ExplainOptions, Explanation, explain
from foretell.client.forecasting import ForecastOptions, forecast, sole_frame

Frame = TypeVar("Frame")
Read = TypeVar("Read")
Result = TypeVar("Result")

TIMEOUT = 30.0
RETRY_FOR = 60.0


class Client:
    """Asks a server; for use from several threads at a time.

    A request that the server is too busy for is sent again when it says so, and so is one whose
    connection fails: forecasts change nothing, so that asking twice does no harm.

    Args:
        url: The server's address, such as `localhost:8000` or `https://host/prefix`.
        key: API key; that of the variable `FORETELL_KEY` by default.
        timeout: Seconds that the server may take for an answer.
        retry_for: Seconds from the first try of a request within which others may follow; 0 for
            one try alone.
        transport: What sends requests, if that is not to be httpx's own, over the network.

    Raises:
        InvalidInputError: one of them can be none.

    Example:
        >>> with Client("localhost:8000") as client:
        ...     forecast = client.forecast(frame, model="patchtst", quantiles=[0.1, 0.9])
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = TIMEOUT,
        retry_for: float = RETRY_FOR,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._retry_for = retry_for
        self._http = httpx.Client(**connection(url, key, timeout), transport=transport)

    def forecast(self, frame: Frame, **options: Unpack[ForecastOptions]) -> Frame:
        """Forecast every series of a frame.

        Args:
            frame: Of pandas, polars or pyarrow, or another table that Arrow reads; rows in order
                of time. Of one series, or of many in long form: a row for each series and time.
                A column for each channel of the model, by its name.
            **options:
                `model`: a name, or name@version; may be absent when one model is served.
                `horizon`: steps; the model's by default.
                `quantiles`: their levels, such as `[0.1, 0.9]`: columns `<channel>_q<level>`.
                `missing`: what becomes of missing values: an `error`, or they are filled by
                `interpolate` or `ffill`, or left out by `mask`, of models that read gaps.
                `calibration`: what quantiles come from: errors `stored` with the model, or
                corrected by those on the rows of the `history`.
                `id_column`: names the series; `unique_id` if there is such a column.
                `time_column`: holds the times; a pandas index of times, `ds`, or the only column
                of times.

        Returns:
            A row for each series and step in the same kind of frame, with the same names, types
            and index; its columns are the model's targets, and their quantiles. The server's
            warnings become Python's.

        Raises:
            PartialForecastError: some of the series have no forecast; it holds those of the others.
            InvalidInputError: the frame does not fit the model.
            ForetellError: of another kind; see `foretell.client.errors`.

        Example:
            >>> history = pd.read_csv("load.csv", index_col="date", parse_dates=True)
            >>> client.forecast(history, horizon=24)
        """
        answer = self.forecast_with_notes(frame, **options)
        return sole_frame(answer, stacklevel=2)

    def forecast_with_notes(
        self, frame: Frame, **options: Unpack[ForecastOptions]
    ) -> Answer[Frame]:
        """Forecast as `forecast` does, and return what there is to say besides.

        Series without a forecast are in `answer.notes.errors`, and warnings in
        `answer.notes.warnings`; neither is raised.
        """
        return self._run(forecast(frame, self._retry_for, **options))

    def backtest(self, frame: Frame, **options: Unpack[BacktestOptions]) -> Backtest[Frame]:
        """How well a model would have forecast the rows of a frame, each time from those before.

        Args:
            frame: As `forecast` has it, with more rows than the model reads.
            **options: `model`, `horizon`, `quantiles`, `missing`, `calibration`, `id_column` and
                `time_column` as `forecast` has them; `stride`, rows from an origin to the next, the
                horizon by default, or half of it to correct quantiles by the history; `origins`, at
                most how many of each series, the latest.

        Returns:
            Errors next to those of repeating the last value and the last season. Series that could
            not be forecast are in its notes; they and the server's warnings become Python's.

        Raises:
            ForetellError: none could.

        Example:
            >>> client.backtest(history, model="patchtst", quantiles=[0.1, 0.9]).frame
        """
        found = self._run(backtest(frame, self._retry_for, **options))
        warn([*found.notes.errors, *found.notes.warnings], stacklevel=2)
        return found

    def explain(self, frame: object, **options: Unpack[ExplainOptions]) -> Explanation:
        """Forecast one series, and return what the model looked at.

        Args:
            frame: As `forecast` has it.
            **options: `model`, `horizon`, `missing`, `id_column` and `time_column` as `forecast`
                has them; `series`, which one of several; `stages`, their names, or `layers`, their
                numbers, all by default; `heads`, `"all"`, `"mean"`, or some by number.

        Raises:
            ForetellError: there is no answer.

        Example:
            >>> explanation = client.explain(history, model="autoformer", heads="mean")
            >>> [(stage.name, stage.lags) for stage in explanation.stages]
        """
        found = self._run(explain(frame, self._retry_for, **options))
        warn(found.warnings, stacklevel=2)
        return found

    def models(self) -> list[ModelCard]:
        """The models that are served, and what each needs."""
        return self._run(cards.models(self._retry_for))

    def model(self, name: str) -> ModelReport:
        """A model, by name or name@version, and what was measured of it.

        Raises:
            NotFoundError: it is not served.
        """
        return self._run(cards.model(name, self._retry_for))

    def request(self, path: str, body: object, wanted: TypeAdapter[Read]) -> Read:
        """Post a body in JSON that the caller has made, and read what is wanted of the answer.

        Args:
            path: Of the service, such as `forecast`.
            body: What is sent.
            wanted: What is read.

        Raises:
            ForetellError: there is no answer, or not the one that is wanted.
        """
        return self._run(post_json(path, body, wanted, self._retry_for))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, steps: Steps[Result]) -> Result:
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                result: Result = end.value
                return result
            outcome = None
            if isinstance(step, Pause):
                time.sleep(step.seconds)
            else:
                try:
                    outcome = self._http.request(**vars(step))
                except httpx.TransportError as error:
                    outcome = error


class AsyncClient:
    """Asks a server from coroutines; what `Client` does, with the same arguments and answers.

    Args:
        url: As `Client` has it, like the others.
        key: Likewise.
        timeout: Likewise.
        retry_for: Likewise.

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
        """Forecast, and return what there is to say besides."""
        return await self._run(forecast(frame, self._retry_for, **options))

    async def backtest(self, frame: Frame, **options: Unpack[BacktestOptions]) -> Backtest[Frame]:
        """How well a model would have forecast the rows of a frame, as `Client.backtest` does."""
        found = await self._run(backtest(frame, self._retry_for, **options))
        warn([*found.notes.errors, *found.notes.warnings], stacklevel=2)
        return found

    async def explain(self, frame: object, **options: Unpack[ExplainOptions]) -> Explanation:
        """Forecast one series, and return what the model looked at, as `Client.explain` does."""
        found = await self._run(explain(frame, self._retry_for, **options))
        warn(found.warnings, stacklevel=2)
        return found

    async def models(self) -> list[ModelCard]:
        """The models that are served, and what each needs."""
        return await self._run(cards.models(self._retry_for))

    async def model(self, name: str) -> ModelReport:
        """A model, by name or name@version, and what was measured of it."""
        return await self._run(cards.model(name, self._retry_for))

    async def request(self, path: str, body: object, wanted: TypeAdapter[Read]) -> Read:
        """Post a body in JSON, as `Client.request` does."""
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
