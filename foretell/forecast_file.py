"""What `foretell forecast` does: the end of a file to `POST /forecast`, the forecasts back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, TypeAdapter

from foretell.bundle.nearness import nearest
from foretell.client import Client
from foretell.client.cards import ModelCard
from foretell.data import reading
from foretell.data.errors import DataError
from foretell.data.reading import Reading
from foretell.data.table import Table
from foretell.timeaxis.regularity import origin
from foretell.timeaxis.timestamps import Timestamps, parse, render

Floats = NDArray[np.float64]

# Of a request: what a server takes by default; numbers of 20 characters, and as many of times, are
# 60 MB of JSON.
_MOST_SERIES, _MOST_NUMBERS = 1024, 1_500_000


class _Content(BaseModel):
    timestamps: list[str]
    channels: tuple[str, ...] | None = None
    mean_forecast: list[float] | list[list[float]]
    quantiles: dict[float, list[float] | list[list[float]]] = {}
    rolled_from: int | None = None
    ill_conditioned: bool = False
    attention: list[dict[str, Any]] = []


class _Problem(BaseModel):
    message: str


class _Output(BaseModel):
    content: Annotated[list[_Content], Field(max_length=1)]
    error: _Problem | None = None


class _Answer(BaseModel):
    model: str
    model_version: str
    outputs: list[_Output]
    warnings: list[_Problem] = []


_ANSWER = TypeAdapter(_Answer)


@dataclass(frozen=True)
class History:
    """A series of a file, up to where it is to be forecast.

    Attributes:
        name: Of the series; empty where the file has one without a name.
        table: The rows that are sent.
        actual: `[steps, channels]`, the rows after them, which were held back; NaN where a value
            is missing.
    """

    name: str
    table: Table
    actual: Floats


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
        attention: Its stages, as the answer has them, where they were asked for.
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
    attention: Sequence[Mapping[str, Any]] = ()

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
        ValueError: there is none such.
    """
    by_name = {card.name: card for card in served}
    names = ", ".join(sorted(by_name)) or "none"
    if model is None:
        if len(by_name) != 1:
            raise ValueError(f"choose one of the served models with --model: {names}")
        return next(iter(by_name.values()))
    name, at, version = model.partition("@")
    if name not in by_name:
        raise ValueError(f"model {name!r} is not served; served: {names}")
    card = by_name[name]
    if at and version not in card.versions:
        raise ValueError(f"{name} has no version {version!r}; served: {', '.join(card.versions)}")
    return card


def read_histories(
    path: Path, card: ModelCard, how: Reading, series: Sequence[str], hold_back: int
) -> tuple[list[History], tuple[str, ...]]:
    """The rows of a file that the model reads, and what is to be told of the file.

    Args:
        path: The file; its columns must include the model's channels.
        card: The model.
        how: The file is read; the channels and the frequency are the model's.
        series: Names of those to take; all if empty.
        hold_back: Rows at the end that are not sent.

    Raises:
        DataError: the file cannot be read, does not have a series, or has no more rows than are
            held back.
    """
    how = how.model_copy(update={"channels": card.channels, "frequency": card.frequency})
    spare = 0 if how.missing == "error" else how.longest_gap
    panel = reading.read(path, how, last=card.context + hold_back + spare)
    names = list(panel.series)
    for name in series:
        if name not in names:
            near = nearest(name, names)
            first = names[0] or "without a name"
            meant = f"did you mean {near}?" if near else f"the first is {first}"
            raise DataError(f"{path}: no series {name}; {meant}")
    # What lies before a hole that was not filled is of no use.
    tables = {name: panel.tables[panel.series[name][-1]] for name in series or names}
    found = [_history(table, name, card.context, hold_back) for name, table in tables.items()]
    for history in found:
        if not len(history.table):
            said = f" of series {history.name}" if history.name else ""
            raise DataError(f"{path}: {len(history.actual)} rows{said}, all of which are held back")
    return found, panel.notes


def _history(table: Table, name: str, context: int, hold_back: int) -> History:
    end = max(len(table) - hold_back, 0)
    rows = slice(max(end - context, 0), end)
    offset = table.utc_offset
    sent = replace(
        table,
        timestamps=table.timestamps[rows],
        # Sent filled, from what is known before the rows that are held back.
        values=table.history(rows.start, end),
        filled=None,
        utc_offset=offset[rows] if isinstance(offset, np.ndarray) else offset,
    )
    return History(name, sent, table.known(end))


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
        answer = client.request("forecast", body, _ANSWER)
        for history, output in zip(some, answer.outputs, strict=True):
            for content in output.content:
                name = f"{answer.model}@{answer.model_version}"
                answers.forecasts.append(_forecast(name, history, content))
            if output.error is not None:
                answers.failures[history.name] = output.error.message
        answers.warnings.extend(one.message for one in answer.warnings)
    return answers


def _forecast(model: str, history: History, content: _Content) -> Forecast:
    table, steps = history.table, len(content.timestamps)

    def read(series: list[float] | list[list[float]]) -> Floats:
        return np.array(series, dtype=np.float64).reshape(steps, -1)

    targets = content.channels or table.channels
    columns = [table.channels.index(name) for name in targets]
    return Forecast(
        model=model,
        series=history.name,
        history=table,
        times=content.timestamps,
        targets=targets,
        values=read(content.mean_forecast),
        quantiles={level: read(each) for level, each in content.quantiles.items()},
        actual=history.actual[:steps, columns],
        rolled_from=content.rolled_from,
        ill_conditioned=content.ill_conditioned,
        attention=content.attention,
    )


def _input(history: Table) -> dict[str, Any]:
    values = history.values
    entry: dict[str, Any] = {"series": (values[:, 0] if values.shape[1] == 1 else values).tolist()}
    times = render(history.timestamps, history.utc_offset)
    changes = isinstance(history.utc_offset, np.ndarray)
    if changes or origin(history.frequency, history.timestamps):
        # The first time alone would not tell on which day of the month the others are, nor when the
        # clock changes.
        return entry | {"timestamps": times}
    return entry | {"start_timestamp": times[0]}
