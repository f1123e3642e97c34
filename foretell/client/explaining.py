"""Explanations: a forecast with the attention of the model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, TypeAdapter

from foretell.bundle.covariates import besides, by_name
from foretell.client.answers import Floats, Integers, JsonAnswer, Notice, Part
from foretell.client.cards import ModelCard, chosen
from foretell.client.covariates import PLACE, fields, rows_before_future
from foretell.client.errors import ForetellError, InvalidInputError
from foretell.client.exchange import Steps, post_json
from foretell.client.forecasting import FrameOptions
from foretell.client.frames import ID, TIME, Given, check_column, is_time, read

Heads = Literal["all", "mean"] | Sequence[int]

# The server accepts this name for the only channel of a model.
_TARGET = "y"
_PLACE = re.compile(r"inputs\[0\]\.(\w+)(?:\[(\d+)\])?(?:\[(\d+)\])?$")


class Patch(Part):
    """A patch on an axis: its first and its last step."""

    start: int | str
    end: int | str


Label = int | str | Patch | None


class Stage(Part):
    """Attention weights of one stage.

    The label of a step is its time; without times, its number, with 0 for the first forecast step.
    The label of a channel is its name, that of a landmark or cluster its number. Padding is None.

    Attributes:
        name: Name of the stage.
        kind: Name of the mechanism.
        form: Form of the map: `dense`, all weights; `circulant`, all weights and their lags;
            `sparse`, weights of some keys of each query; `none`, no weights.
        axes: Names of the axes of `weights`, such as `("head", "query", "key")`.
        weights: Weights, with these axes.
        keys: Index of the key of each weight of a sparse map; -1 is padding.
        channels: Labels of the channel axis.
        heads: Numbers of the heads.
        query: Labels of the query axis.
        key: Labels of all keys.
        lags: Chosen lags of a circulant map, in positions of the axes.
        lag_durations: Lags as ISO 8601 durations; None for a lag without a fixed duration.
        lag_weights: Weights of the lags.
        correlation: Correlation at every lag `[lags]`.
    """

    name: str
    kind: str
    form: str
    axes: tuple[str, ...] = ()
    weights: Floats | None = None
    keys: Integers | None = None
    channels: tuple[str, ...] | None = None
    heads: tuple[int, ...] | None = None
    query: tuple[Label, ...] | None = None
    key: tuple[Label, ...] | None = None
    lags: tuple[int, ...] | None = None
    lag_durations: tuple[str | None, ...] | None = None
    lag_weights: Floats | None = None
    correlation: Floats | None = None


class Explanation(Part):
    """A forecast of one series, with the attention of the model.

    Attributes:
        model: Name of the model.
        model_version: Version of the model.
        model_digest: Digest of its manifest, `sha256:…`; empty from an earlier server.
        targets: Columns of `values`.
        timestamps: Times of the steps in ISO 8601; empty if the frame has no times.
        values: Forecast `[step, target]`.
        stages: Attention of each stage.
        warnings: Warnings of the server.
    """

    model: str
    model_version: str
    model_digest: str = ""
    targets: tuple[str, ...]
    timestamps: tuple[str, ...]
    values: Floats
    stages: tuple[Stage, ...]
    warnings: tuple[Notice, ...]


class SeriesForecast(Part):
    """A forecast of one series in JSON.

    Attributes:
        timestamps: Times of the steps in ISO 8601; empty if the series has no times.
        mean_forecast: Forecast `[step]`, or `[step, target]` of several channels.
        channels: Names of the targets, if they are not all channels.
        quantiles: Quantiles by level, in the shape of `mean_forecast`.
        rolled_from: First step, from 0, that was forecast from forecasts, if any.
        ill_conditioned: Whether rounding may decide what the model attends to.
        attention: Attention of each stage, if requested.
    """

    timestamps: tuple[str, ...] = ()
    mean_forecast: Floats
    channels: tuple[str, ...] | None = None
    quantiles: dict[float, Floats] = Field(default_factory=dict)
    rolled_from: int | None = None
    ill_conditioned: bool = False
    attention: tuple[Stage, ...] = ()


FORECASTS = TypeAdapter(JsonAnswer[SeriesForecast])


class ExplainOptions(FrameOptions, total=False):
    """The options of `Client.explain`."""

    series: str | int | None
    stages: Sequence[str] | None
    layers: Sequence[int] | None
    heads: Heads


def explain(
    frame: object, retry_for: float, **options: Unpack[ExplainOptions]
) -> Steps[Explanation]:
    """Forecast one series with attention; see `Client.explain`."""
    given = read(frame, options.get("id_column"), options.get("time_column"))
    rows, model = _rows(given, options.get("series")), options.get("model")
    card = yield from chosen(model, retry_for)
    names = given.table.column_names
    channels = besides(card.channels, by_name(card.covariates.past, names))
    if len(channels) == 1 and channels[0] not in names and _TARGET in names:
        channels = [_TARGET]
    attention = {"heads": "all"} | _set(options, "stages", "layers", "heads")
    body = {
        "model": model or f"{card.name}@{card.version}",
        "inputs": [_input(given, rows, channels, card)],
        "options": {**_set(options, "horizon", "missing"), "attention": attention},
    }
    try:
        answer = yield from post_json("forecast", body, FORECASTS, retry_for)
    except ForetellError as error:
        error.place = _placed(error.place, given, rows, channels)
        raise
    (found,) = answer.outputs[0].content
    for notice in answer.warnings:
        notice.place = _placed(notice.place, given, rows, channels)
    return Explanation(
        model=answer.model,
        model_version=answer.model_version,
        model_digest=answer.model_digest,
        targets=card.targets,
        timestamps=found.timestamps,
        values=found.mean_forecast.reshape(len(found.mean_forecast), -1),
        stages=found.attention,
        warnings=tuple(answer.warnings),
    )


def _rows(given: Given[Any], series: str | int | None) -> pa.Array:
    """The rows of a series, by default of the only one."""
    ids = given.table[ID]
    if series is None:
        names = ids.unique().to_pylist()
        if len(names) > 1:
            raise InvalidInputError(
                f"expected one series, got {len(names):,}; choose one, such as series={names[0]!r}",
                place="series",
            )
        return pa.array(range(len(ids)))
    rows = [row for row, name in enumerate(ids.to_pylist()) if name == series]
    if not rows:
        raise InvalidInputError(f"no row of {series!r}", place=given.id_column or "series")
    return pa.array(rows)


def _input(
    given: Given[Any], rows: pa.Array, channels: list[str], card: ModelCard
) -> dict[str, object]:
    """The rows of a series as an input of a request in JSON."""
    series = given.table.take(rows)
    targets = [name for name in channels if name in (*card.targets, _TARGET)]
    count = rows_before_future(series, targets, card)
    covariates, rows = fields(given.table, rows, count, card), rows[:count]
    columns = [_numbers(given.table, name).take(rows).to_pylist() for name in channels]
    found: dict[str, object] = {"series": columns[0]}
    if len(channels) > 1:
        found = {"series": list(zip(*columns, strict=True)), "channels": channels}
    if given.time_column is not None:
        times = given.table[TIME].take(rows)
        zone = getattr(times.type, "tz", None)
        found["timestamps"] = _texts(times, rows, given.time_column)
        if zone is not None and zone[:1] not in "+-":
            found["time_zone"] = zone
    return found | covariates


def _numbers(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A channel as numbers; the server reads both NaN and null as missing."""
    check_column(name, table.column_names)
    kind = table[name].type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise InvalidInputError(f"expected a column of numbers, got {kind}", place=name)
    return table[name].cast(pa.float64())


def _texts(times: pa.ChunkedArray, rows: pa.Array, name: str) -> list[str]:
    kind = times.type
    if not is_time(kind):
        raise InvalidInputError(f"expected a column of timestamps or dates, got {kind}", place=name)
    if times.null_count:
        row = rows[pc.index(pc.is_null(times), True).as_py()]
        raise InvalidInputError("expected a timestamp, got null", place=f"{name}[{row}]")
    # Python's datetime has microseconds.
    moments = times.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
    return [moment.isoformat() for moment in moments.to_pylist()]


def _placed(
    place: str | None, given: Given[Any], rows: pa.Array, channels: Sequence[str]
) -> str | None:
    """A place of the request as a place of the caller's frame or options."""
    if (found := PLACE.match(place or "")) is not None:
        _, kind, name, number = found.groups()
        if kind == "static":
            # Its value is that of the first row.
            number = "0"
        return name if number is None else f"{name}[{rows[int(number)]}]"
    found = _PLACE.match(place or "")
    if found is None:
        return place and place.removeprefix("options.").removeprefix("attention.")
    field, first, second = found.groups()
    row = "" if first is None else f"[{rows[int(first)]}]"
    if field == "timestamps":
        return f"{given.time_column}{row}"
    if field == "series" and row:
        return f"{channels[int(second or 0)]}{row}"
    return None


def _set(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The options among these names that are set, for JSON."""
    return {
        name: value if isinstance(value, str | int) else list(value)
        for name in names
        if (value := options.get(name)) is not None
    }
