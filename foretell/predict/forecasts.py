"""Forecasts of histories by `POST /forecast`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.client import Client
from foretell.client.cards import ModelCard
from foretell.client.explaining import FORECASTS, SeriesForecast, Stage
from foretell.data.table import Table
from foretell.errors import RefusedError
from foretell.predict.histories import History
from foretell.timeaxis.regularity import origin
from foretell.timeaxis.timestamps import Timestamps, parse, render

Floats = NDArray[np.float64]

# Of a request: what a server takes by default; numbers of 20 characters, and as many of times, are
# 60 MB of JSON.
_MOST_SERIES, _MOST_NUMBERS = 1024, 1_500_000


@dataclass(frozen=True)
class Forecast:
    """What the server answered for a series, next to what it was sent.

    Attributes:
        model: Name and version of the model.
        series: Name of the series; empty where the file has one without a name.
        history: The rows that were sent.
        times: `[horizon]`, as the server wrote them.
        targets: Names of the channels that are forecast, in the history's order.
        values: `[horizon, targets]` in the user's units.
        quantiles: By level, each like `values`.
        actual: `[steps, targets]`, what followed the history; no steps where nothing is known.
        rolled_from: The first step, from 0, that was forecast from forecasts, if any was.
        ill_conditioned: Whether rounding may have decided what the model chose.
        attention: Its stages, if they were requested.
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
        """`[horizon]` datetime64[us], wall-clock time."""
        return np.array([parse(text).wall for text in self.times], "M8[us]")


@dataclass(frozen=True)
class Answers:
    """What came of all series.

    Attributes:
        forecasts: Of those that have one, in the order of the file.
        failures: Why the others have none, by name.
        warnings: The server's.
    """

    forecasts: list[Forecast]
    failures: dict[str, str]
    warnings: list[str]


def choose_model(served: Sequence[ModelCard], model: str | None) -> ModelCard:
    """The one of a name, or of name@version; without one the only one.

    Raises:
        RefusedError: there is none such.
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
    """Have series forecast, as many at a time as a server takes.

    Args:
        client: Of the server.
        model: Its name, or name@version.
        card: What the server says of it.
        histories: Of the series.
        options: Of the requests.
        unnamed: What a series without a name is called in requests.

    Raises:
        ForetellError: no answer, or an error; the message is the server's.
    """
    answers = Answers([], {}, [])
    levels = len(options.get("quantiles", ()))
    numbers = max(
        card.context * len(card.channels),
        options.get("horizon", card.horizon) * len(card.channels) * (1 + levels),
    )
    size = min(max(_MOST_NUMBERS // numbers, 1), _MOST_SERIES)
    for first in range(0, len(histories), size):
        some = histories[first : first + size]
        inputs = [{"name": one.name or unnamed, **_input(one.table)} for one in some]
        body = {"model": model, "inputs": inputs, "options": dict(options)}
        answer = client.request("forecast", body, FORECASTS)
        name = f"{answer.model}@{answer.model_version}"
        for history, output in zip(some, answer.outputs, strict=True):
            answers.forecasts.extend(_forecast(name, history, one) for one in output.content)
            if output.error is not None:
                answers.failures[history.name] = output.error.message
        answers.warnings.extend(one.message for one in answer.warnings)
    return answers


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
        # The first time alone would not say on which day of the month the others are, nor when the
        # clock changes.
        return entry | {"timestamps": times}
    return entry | {"start_timestamp": times[0]}
