"""A client of a foretell server."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

import httpx
from pydantic import TypeAdapter

from foretell.client import cards, ledger
from foretell.client.answers import Answer, warn
from foretell.client.backtesting import Backtest, BacktestOptions, backtest
from foretell.client.cards import ModelCard, ModelReport
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

TIMEOUT = 30.0
RETRY_FOR = 60.0


class Client:
    """A client for a foretell server; threads may share it.

    The client retries a request if the server is busy, after the time that the server names, or if
    the connection fails. A request that is sent twice changes nothing the second time.

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
                `ledger`: whether a server with a ledger may keep the forecasts; it may by default.
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

    def actuals(self, frame: object, **options: Unpack[ActualsOptions]) -> Written:
        """Write actual values into the server's ledger, which compares forecasts with them.

        Args:
            frame: Table as for `forecast`, with a column for at least one channel that the model
                forecasts. Steps may be missing. Later values of a time replace earlier ones.
            **options:
                `model`: the model that gives channels and frequency, as for `forecast`.
                `id_column` and `time_column`: as for `forecast`; series have the same names.

        Returns:
            Numbers of values. Series of which nothing was written are in the notes; they and the
            server's warnings become Python warnings.

        Raises:
            ForetellError: nothing was written, or not all parts of a large table.

        Example:
            >>> client.actuals(measured, model="patchtst").new
        """
        found = self._run(ledger.actuals(frame, self._retry_for, **options))
        warn([*found.notes.errors, *found.notes.warnings], stacklevel=2)
        return found

    def accuracy(self, model: str, **options: Unpack[AccuracyOptions]) -> pd.DataFrame:
        """Scores of a model's forecasts in the server's ledger.

        Args:
            model: Name of the model.
            **options:
                `by`: groups of the rows: `total`, `step`, `channel`, `series` or `day`.
                `version`, `calibration`, `channel`, `series`, `namespace`, `frequency`: forecasts
                to score.
                `since` and `until`: first and last day of the actual values, in UTC.
                `limit`: largest number of rows.

        Returns:
            A row for each version and group: `count`, `mae`, `rmse`, `bias`, `naive_mae` (of
            repeating the last season), `mase`, and for quantiles `pinball_<level>`,
            `coverage_<level>` and `width_<level>`.

        Example:
            >>> client.accuracy("patchtst", by="step", since="2026-01-01")
        """
        return self._run(ledger.accuracy(model, self._retry_for, **options))

    def trajectories(
        self, model: str, series: str, **options: Unpack[TrajectoryOptions]
    ) -> Trajectories:
        """Stored forecasts of a series, and what came true.

        Args:
            model: Name of the model.
            series: Name of the series.
            **options: As for `accuracy`, without `by`; `limit` is the largest number of forecasts.
        """
        return self._run(ledger.trajectories(model, series, self._retry_for, **options))

    def delete_series(self, name: str, *, namespace: str | None = None) -> int:
        """Delete all that the server's ledger holds of a series.

        Args:
            name: Name of the series.
            namespace: Namespace of keys, for admin keys; that of the key by default.

        Returns:
            Number of deleted series: one for each frequency.
        """
        return self._run(ledger.delete_series(name, namespace, self._retry_for))

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
