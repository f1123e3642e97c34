"""What `foretell forecast` does: the tail of a CSV to `POST /forecast`, the forecast back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import httpx
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from foretell.bundle.frequency import Frequency
from foretell.bundle.nearness import nearest
from foretell.bundle.regularity import origin
from foretell.bundle.timestamps import Timestamps, parse, render
from foretell.models.data import reading
from foretell.models.data.errors import DataError
from foretell.models.data.panel import Panel
from foretell.models.data.table import Table

Read = TypeVar("Read")


class ClientError(Exception):
    """The server does not answer, or answers with an error."""


class _Served(BaseModel):
    name: str
    versions: tuple[str, ...]
    channels: tuple[str, ...]
    context: int
    frequency: str


class _Content(BaseModel):
    timestamps: list[str]
    channels: tuple[str, ...] | None = None
    mean_forecast: list[float] | list[list[float]]
    quantiles: dict[float, list[float] | list[list[float]]] | None = None


class _Output(BaseModel):
    content: Annotated[list[_Content], Field(min_length=1)]


class _Answer(BaseModel):
    model: str
    model_version: str
    outputs: Annotated[list[_Output], Field(min_length=1)]


_MODELS = TypeAdapter(list[_Served])
_FORECAST = TypeAdapter(_Answer)


@dataclass(frozen=True)
class Forecast:
    """What the server answered, next to what it was sent.

    Attributes:
        model: Name and version of the model.
        history: The rows that were sent.
        timestamps: `[horizon]` datetime64[us], wall-clock time.
        targets: Names of the channels that are forecast, in the history's order.
        values: `[horizon, targets]` in the user's units.
        quantiles: By level, each like `values`.
        actual: `[steps, targets]`, what followed the history, where rows were held back.
    """

    model: str
    history: Table
    timestamps: Timestamps
    targets: tuple[str, ...]
    values: NDArray[np.float64]
    quantiles: Mapping[float, NDArray[np.float64]] = field(default_factory=dict)
    actual: NDArray[np.float64] | None = None


def request_forecast(
    url: str,
    path: Path,
    *,
    model: str | None,
    horizon: int | None,
    timeout: float,
    quantiles: Sequence[float] = (),
    series: str | None = None,
    hold_back: int = 0,
) -> Forecast:
    """Post the last `context` rows of a CSV.

    Args:
        url: Base address of the server.
        path: The CSV; its columns must include the model's channels.
        model: A served name, or name@version; the only one served by default.
        horizon: Steps to forecast; the model's by default.
        timeout: Seconds to wait.
        quantiles: Levels to ask for.
        series: Name of the series to send; needed where the file has several.
        hold_back: Rows at the end that are not sent.

    Raises:
        ClientError: no answer, or an error; the message is the server's.
        DataError: the CSV cannot be read, does not have the series, or has no more rows than are
            held back.
    """
    try:
        client = httpx.Client(base_url=url.rstrip("/"), timeout=timeout)
    except httpx.InvalidURL as error:
        raise ClientError(f"{url}: {error}") from None
    with client:
        info = _choose(_call(client, "GET", "/models", _MODELS), model)
        frequency = Frequency.parse(info.frequency)
        panel = reading.read(
            path, reading.Reading(channels=info.channels, frequency=info.frequency)
        )
        table = _last_stretch(panel, series, path)
        end = len(table) - hold_back
        if end <= 0:
            raise DataError(f"{path}: {len(table)} rows, all of which are held back")
        rows = slice(max(end - info.context, 0), end)
        offset = table.utc_offset
        history = Table(
            table.timestamps[rows],
            table.values[rows],
            table.channels,
            frequency,
            offset[rows] if isinstance(offset, np.ndarray) else offset,
        )
        options: dict[str, Any] = {} if horizon is None else {"horizon": horizon}
        if quantiles:
            options["quantiles"] = list(quantiles)
        body: dict[str, Any] = {
            "model": model or info.name,
            "inputs": [{"name": series or path.stem, **_input(history)}],
            "options": options,
        }
        answer = _call(client, "POST", "/forecast", _FORECAST, body)
    content = answer.outputs[0].content[0]
    steps = np.array([parse(text).wall for text in content.timestamps])

    def read(series: list[float] | list[list[float]]) -> NDArray[np.float64]:
        return np.array(series, dtype=np.float64).reshape(len(steps), -1)

    targets = content.channels or table.channels
    columns = [table.channels.index(name) for name in targets]
    return Forecast(
        f"{answer.model}@{answer.model_version}",
        history,
        steps,
        targets,
        read(content.mean_forecast),
        {level: read(each) for level, each in (content.quantiles or {}).items()},
        table.values[end : end + len(steps), columns] if hold_back else None,
    )


def _last_stretch(panel: Panel, series: str | None, path: Path) -> Table:
    """The rows of a series after its last hole."""
    names = list(panel.series)
    if series is None:
        if len(names) > 1:
            raise DataError(
                f"{path}: {len(names):,} series; choose one with --series, such as {names[0]}"
            )
        series = names[0]
    elif series not in names:
        near = nearest(series, names)
        meant = f"did you mean {near}?" if near else f"the first is {names[0] or 'without a name'}"
        raise DataError(f"{path}: no series {series}; {meant}")
    return panel.tables[panel.series[series][-1]]


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


def _choose(served: list[_Served], model: str | None) -> _Served:
    by_name = {entry.name: entry for entry in served}
    names = ", ".join(sorted(by_name)) or "none"
    if model is None:
        if len(by_name) != 1:
            raise ClientError(f"choose one of the served models with --model: {names}")
        return next(iter(by_name.values()))
    name, at, version = model.partition("@")
    if name not in by_name:
        raise ClientError(f"model {name!r} is not served; served: {names}")
    info = by_name[name]
    if at and version not in info.versions:
        raise ClientError(f"{name} has no version {version!r}; served: {', '.join(info.versions)}")
    return info


def _call(
    client: httpx.Client, method: str, path: str, wanted: TypeAdapter[Read], body: object = None
) -> Read:
    try:
        response = client.request(method, path, json=body)
    except httpx.HTTPError as error:
        raise ClientError(f"{client.base_url}: {error}") from None
    try:
        content = response.json()
    except ValueError:
        raise ClientError(f"{response.url}: {response.status_code}, not JSON") from None
    if response.is_error:
        said = content.get("error") if isinstance(content, dict) else None
        if not isinstance(said, dict):
            said = {"message": said or content}
        place = f"{said['param']}: " if said.get("param") else ""
        raise ClientError(f"{response.status_code}: {place}{said.get('message', content)}")
    try:
        return wanted.validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "body"
        raise ClientError(
            f"{response.url}: no answer of foretell: {place}: {first['msg']}"
        ) from None
