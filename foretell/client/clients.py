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
from foretell.client.comparing import Compared, CompareOptions, compare
from foretell.client.exchange import Outcome, Pause, Steps, connection, post_json
from foretell.client.explaining import ExplainOptions, Explanation, explain
from foretell.client.forecasting import ForecastOptions, forecast, sole_frame

Frame = TypeVar("Frame")
Read = TypeVar("Read")
Result = TypeVar("Result")

TIMEOUT = 30.0
RETRY_FOR = 60.0


class Client:
    """A client for a foretell server; threads may share it.

    The client retries a request if the server is busy, after the time that the server names, or if
    the connection fails. Requests change nothing on the server, so a retry is safe.

    Args:
        url: Address of the server, such as `localhost:8000` or `https://host/prefix`.
        key: API key; the value of `FORETELL_KEY` by default.
        timeout: Seconds to wait for an answer.
        retry_for: Seconds from the first try within which a request is retried; 0 disables
            retries.
        transport: Transport of httpx, if not the default.

    Raises:
        InvalidInputError: an argument is invalid.

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
            frame: Table of pandas, polars, pyarrow or any library with the Arrow interface. It has
                a column for each channel of the model, by name. Rows are in order of time. Many
                series are in long form: a row for each series and time. Covariates are columns,
                too; future ones go on in rows without targets, after the last one.
            **options:
                `model`: NAME or NAME@VERSION; optional if the server has one model.
                `horizon`: steps to forecast; the model's by default.
                `quantiles`: levels, such as `[0.1, 0.9]`; the columns are `<channel>_q<level>`.
                `missing`: how to treat missing values: raise an `error`, fill them by
                `interpolate` or `ffill`, or `mask` them (models that read gaps).
                `calibration`: source of the quantiles: errors `stored` with the model, or these
                corrected by errors on the rows of the `history`.
                `id_column`: column of series names; `unique_id` by default, if there is one.
                `time_column`: column of times; by default a pandas index of times, `ds`, or the
                only column of times.

        Returns:
            A row for each series and step in the same kind of frame, with the same names, types
            and index. Its columns are the model's targets and their quantiles. Warnings of the
            server become Python warnings.

        Raises:
            PartialForecastError: some series have no forecast; it contains the other forecasts.
            InvalidInputError: the frame does not fit the model.
            ForetellError: another error; see `foretell.client.errors`.

        Example:
            >>> history = pd.read_csv("load.csv", index_col="date", parse_dates=True)
            >>> client.forecast(history, horizon=24)
        """
        answer = self.forecast_with_notes(frame, **options)
        return sole_frame(answer, stacklevel=2)

    def forecast_with_notes(
        self, frame: Frame, **options: Unpack[ForecastOptions]
    ) -> Answer[Frame]:
        """Forecast as `forecast` does, and return notes besides the frame.

        Series without a forecast are in `answer.notes.errors`, and warnings in
        `answer.notes.warnings`; neither is raised.
        """
        return self._run(forecast(frame, self._retry_for, **options))

    def backtest(self, frame: Frame, **options: Unpack[BacktestOptions]) -> Backtest[Frame]:
        """Forecast past rows of a frame from the rows before them, and measure the errors.

        Args:
            frame: Table as for `forecast`, with more rows than the model reads. Its covariates are
                those that came true.
            **options:
                `model`, `horizon`, `quantiles`, `missing`, `calibration`, `id_column` and
                `time_column`: as for `forecast`.
                `stride`: rows from one origin to the next; the horizon by default, or half of it
                with `calibration="history"`.
                `origins`: largest number of forecasts of each series; the latest are used.

        Returns:
            Errors next to those of repeating the last value and the last season. Series that could
            not be forecast are in the notes. They and the server's warnings become Python warnings.

        Raises:
            ForetellError: no series could be forecast.

        Example:
            >>> client.backtest(history, model="patchtst", quantiles=[0.1, 0.9]).frame
        """
        found = self._run(backtest(frame, self._retry_for, **options))
        warn([*found.notes.errors, *found.notes.warnings], stacklevel=2)
        return found

    def explain(self, frame: object, **options: Unpack[ExplainOptions]) -> Explanation:
        """Forecast one series, and return the attention of the model.

        Args:
            frame: Table as for `forecast`.
            **options:
                `model`, `horizon`, `missing`, `id_column` and `time_column`: as for `forecast`.
                `series`: name of the series, if there are several.
                `stages` or `layers`: names of stages, or numbers of layers; all by default.
                `heads`: `"all"`, `"mean"`, or numbers of heads.

        Raises:
            ForetellError: the server returned an error, or no answer.

        Example:
            >>> explanation = client.explain(history, model="autoformer", heads="mean")
            >>> [(stage.name, stage.lags) for stage in explanation.stages]
        """
        found = self._run(explain(frame, self._retry_for, **options))
        warn(found.warnings, stacklevel=2)
        return found

    def compare(self, model: str, a: str, b: str, **options: Unpack[CompareOptions]) -> Compared:
        """Test whether version `b` of a model forecasts better than version `a`.

        Args:
            model: Name of the model.
            a: A version, such as the one that serves.
            b: Another version.
            **options: `series`, the name of the only one that counts; `since` and `until`, the
                first and the last day; `namespace`, for admin keys.

        Raises:
            InvalidInputError: the server keeps no ledger, or both versions are the same.
        """
        return self._run(compare(model, a, b, self._retry_for, **options))

    def models(self) -> list[ModelCard]:
        """Cards of the models that are served."""
        return self._run(cards.models(self._retry_for))

    def model(self, name: str) -> ModelReport:
        """Report of a model, by name or name@version.

        Raises:
            NotFoundError: the model is not served.
        """
        return self._run(cards.model(name, self._retry_for))

    def request(self, path: str, body: object, wanted: TypeAdapter[Read]) -> Read:
        """Post a JSON body, and parse the answer.

        Args:
            path: Path below the address of the server, such as `forecast`.
            body: Body of the request.
            wanted: Type of the answer.

        Raises:
            ForetellError: there is no answer, or one of another type.
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
