"""Forecasts of histories by `POST /forecast`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.client import Client
from foretell.client.cards import ModelCard
from foretell.client.covariates import PLACE
from foretell.client.errors import ForetellError
from foretell.client.explaining import FORECASTS, SeriesForecast, Stage
from foretell.data.table import Table
from foretell.errors import RefusedError
from foretell.predict.histories import History
from foretell.timeaxis.regularity import origin
from foretell.timeaxis.timestamps import Timestamps, parse, render, shown

Floats = NDArray[np.float64]

# Limits of a request: a server's default, and 60 MB of JSON for numbers and times of 20 characters
# each.
_MOST_SERIES, _MOST_NUMBERS = 1024, 1_500_000


@dataclass(frozen=True)
class Forecast:
    """The forecast of a series with its history.

    Attributes:
        model: Name and version of the model.
        series: Name of the series; empty for one series without a name.
        history: Rows that were sent.
        times: Times of the steps, as the server wrote them `[horizon]`.
        targets: Names of the channels that are forecast, in the history's order.
        values: Forecast in the user's units `[horizon, targets]`.
        quantiles: Quantiles by level, in the shape of `values`.
        actual: Actual values after the history `[steps, targets]`; no steps if unknown.
        rolled_from: First step, from 0, that was forecast from forecasts, if any.
        ill_conditioned: Whether rounding may have decided what the model chose.
        attention: Attention of each stage, if requested.
    """

    model: str
    series: str
    history: Table
    times: list[str]
    targets: tuple[str, ...]
    values: Floats
    quantiles: Mapping[float, Floats] = field(default_factory=dict)
    actual: Floats = field(default_factory=lambda: np.empty((0, 0)))
    rolled_from: int | None = None
    ill_conditioned: bool = False
    attention: Sequence[Stage] = ()

    @property
    def timestamps(self) -> Timestamps:
        """Wall-clock times of the steps `[horizon]`, datetime64[us]."""
        return np.array([parse(text).wall for text in self.times], "M8[us]")


@dataclass(frozen=True)
class Answers:
    """Forecasts, failures and warnings of all series.

    Attributes:
        forecasts: Forecasts in the order of the file.
        failures: Error messages of series without a forecast, by name.
        warnings: Warnings of the server.
    """

    forecasts: list[Forecast]
    failures: dict[str, str]
    warnings: list[str]


def choose_model(served: Sequence[ModelCard], model: str | None) -> ModelCard:
    """The card of a model by name or name@version; without a name, of the only model.

    Raises:
        RefusedError: the model is not served, or a name is needed.
    """
    by_name = {card.name: card for card in served}
    names = ", ".join(sorted(by_name)) or "none"
    if model is None:
        if len(by_name) != 1:
            raise RefusedError(f"choose one of the served models with --model: {names}")
        return next(iter(by_name.values()))
    name, at, version = model.partition("@")
    if name not in by_name:
        raise RefusedError(f"model {name!r} is not served; served: {names}")
    card = by_name[name]
    if at and version not in card.versions:
        raise RefusedError(f"{name} has no version {version!r}; served: {', '.join(card.versions)}")
    return card


def request_forecasts(
    client: Client,
    model: str,
    card: ModelCard,
    histories: Sequence[History],
    options: Mapping[str, Any],
    unnamed: str,
) -> Answers:
    """Request forecasts of series, in requests within the limits of a server.

    Args:
        client: Client of the server.
        model: Name of the model, or name@version.
        card: Card of the model.
        histories: Histories of the series.
        options: Options of the requests.
        unnamed: Name in requests for a series without a name.

    Raises:
        ForetellError: the server returned an error, or no answer.
    """
    answers = Answers([], {}, [])
    levels = len(options.get("quantiles", ()))
    steps = options.get("horizon", card.horizon)
    numbers = max(
        card.context * len(card.channels) + (card.context + steps) * len(card.covariates.future),
        steps * len(card.channels) * (1 + levels),
    )
    size = min(max(_MOST_NUMBERS // numbers, 1), _MOST_SERIES)
    for first in range(0, len(histories), size):
        some = histories[first : first + size]
        inputs = [{"name": one.name or unnamed, **_input(one.table), **one.fields} for one in some]
        body = {"model": model, "inputs": inputs, "options": dict(options)}
        try:
            answer = client.request("forecast", body, FORECASTS)
        except ForetellError as error:
            error.place = _placed(error.place, some)
            raise
        name = f"{answer.model}@{answer.model_version}"
        for history, output in zip(some, answer.outputs, strict=True):
            answers.forecasts.extend(_forecast(name, history, one) for one in output.content)
            if output.error is not None:
                place = _placed(output.error.place, some)
                own = f"{place}: " if place != output.error.place else ""
                answers.failures[history.name] = f"{own}{output.error.message}"
        answers.warnings.extend(one.message for one in answer.warnings)
    return answers


def _placed(place: str | None, histories: Sequence[History]) -> str | None:
    """A place of a request; that of a covariate as column and time of the file."""
    found = PLACE.match(place or "")
    if found is None:
        return place
    number, _, name, row = found.groups()
    history = histories[int(number)]
    of = f"{history.name}, " if history.name else ""
    if row is None:
        return f"{of}column {name!r}"
    table, steps = history.table, int(row) - len(history.table)
    time = table.timestamps[int(row)] if steps < 0 else _after(table, steps)
    return f"{of}column {name!r}, {shown(time)}"


def _after(table: Table, steps: int) -> np.datetime64:
    time: np.datetime64 = table.frequency.steps_from(table.timestamps[-1], steps + 2)[-1]
    return time


def _forecast(model: str, history: History, found: SeriesForecast) -> Forecast:
    steps, targets = len(found.timestamps), found.channels or history.table.channels
    columns = [history.table.channels.index(name) for name in targets]
    return Forecast(
        model=model,
        series=history.name,
        history=history.table,
        times=list(found.timestamps),
        targets=targets,
        values=found.mean_forecast.reshape(steps, -1),
        quantiles={level: one.reshape(steps, -1) for level, one in found.quantiles.items()},
        actual=history.actual[:steps, columns],
        rolled_from=found.rolled_from,
        ill_conditioned=found.ill_conditioned,
        attention=found.attention,
    )


def _input(history: Table) -> dict[str, Any]:
    values = history.values
    entry: dict[str, Any] = {"series": (values[:, 0] if values.shape[1] == 1 else values).tolist()}
    times = render(history.timestamps, history.utc_offset)
    changes = isinstance(history.utc_offset, np.ndarray)
    if changes or origin(history.frequency, history.timestamps):
        # The first time alone does not determine the day of the month of the others, nor when the
        # clock changes.
        return entry | {"timestamps": times}
    return entry | {"start_timestamp": times[0]}
