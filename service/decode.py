"""From the bytes of a request to a job: histories in batch arrays, and how to answer each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic_core import from_json

from bundle.errors import TimestampError
from bundle.manifest import Manifest
from service.attention import Selection, select
from service.errors import InvalidInputError, NotSupportedError, ServiceError, UnreadableError
from service.model import FUTURE_CALENDAR, HISTORY, HISTORY_CALENDAR, Model
from service.schemas import Envelope, ForecastOptions, SeriesInput
from service.series import is_multivariate, read_values
from service.session import Arrays
from service.settings import Settings
from service.timeline import Timeline, check_frequency, read_timeline
from service.validation import shown, validate


@dataclass(frozen=True)
class Series:
    """One input that will be forecast.

    Attributes:
        name: As the request has it.
        row: Its window in the batch arrays.
        univariate: Whether it came, and is answered, as `[time]`.
        columns: The model's channel of each of its columns, if not in the model's order.
        timeline: When its steps are, if it said so.
        timestamps: Times of the forecast's steps, likewise.
    """

    name: str
    row: int
    univariate: bool
    columns: list[int] | None
    timeline: Timeline | None
    timestamps: list[str] | None


@dataclass(frozen=True)
class Job:
    """A request, checked.

    Attributes:
        model: Who forecasts.
        horizon: Steps to answer.
        entries: For every input what was read, or why it could not be.
        feeds: `[windows, …]` by input name, a window for every input that was read.
        attention: The attention to answer, if any.
        metadata: To be echoed, as JSON.
    """

    model: Model
    horizon: int
    entries: list[Series | ServiceError]
    feeds: Arrays
    attention: Selection | None
    metadata: bytes | None


def parse(body: bytes | bytearray) -> Envelope:
    """Read a request as far as it can be read without knowing its model.

    Raises:
        UnreadableError: the body is no JSON.
        InvalidInputError: the request does not fit the interface.
    """
    try:
        # NaN and Infinity are let through, to be refused with their place by `read_values`.
        value = from_json(body, allow_inf_nan=True, cache_strings="keys")
    except ValueError as error:
        raise UnreadableError(f"the body is not JSON: {error}") from None
    return validate(Envelope, value)


def decode(envelope: Envelope, model: Model, settings: Settings) -> Job:
    """Read the rest of a request.

    Raises:
        InvalidInputError: the request does not fit the model, or none of its inputs does;
            `NotSupportedError` likewise.
    """
    manifest = model.manifest
    if len(envelope.inputs) > settings.max_inputs:
        raise InvalidInputError(
            f"expected at most {settings.max_inputs} inputs, got {len(envelope.inputs)}",
            param="inputs",
        )
    horizon = _check_options(envelope.options, manifest)
    attention = None
    if envelope.options.attention is not None:
        attention = select(envelope.options.attention, manifest, "options.attention")
        _check_size(attention, manifest, len(envelope.inputs), settings.max_attention_values)
    metadata = _encode_metadata(envelope.metadata)
    entries, feeds = _Reader(manifest, horizon, len(envelope.inputs)).read(envelope.inputs)
    if not len(feeds[HISTORY]):
        raise next(entry for entry in entries if isinstance(entry, ServiceError))
    return Job(model, horizon, entries, feeds, attention, metadata)


def _check_options(options: ForecastOptions, manifest: Manifest) -> int:
    if options.quantiles:
        raise NotSupportedError(
            "prediction intervals are not supported yet", param="options.quantiles"
        )
    if options.missing != "error":
        raise NotSupportedError(
            f"missing values can not be filled yet: expected 'error', got {options.missing!r}",
            param="options.missing",
        )
    if options.horizon is None:
        return manifest.horizon
    if options.horizon > manifest.horizon:
        raise NotSupportedError(
            f"{manifest.name} forecasts at most {manifest.horizon} steps, got "
            f"{shown(options.horizon)}; longer horizons are not supported yet",
            param="options.horizon",
        )
    return options.horizon


def _check_size(attention: Selection, manifest: Manifest, inputs: int, limit: int) -> None:
    values = inputs * attention.values(len(manifest.channels))
    if values > limit:
        raise InvalidInputError(
            f"the answer would hold {values} attention weights and may hold {limit} "
            "(max_attention_values); send fewer inputs, choose stages or layers, or set heads to "
            "'mean'",
            param="options.attention",
        )


def _encode_metadata(metadata: dict[str, Any] | None) -> bytes | None:
    if metadata is None:
        return None
    try:
        return json.dumps(metadata, allow_nan=False).encode()
    except ValueError:
        raise InvalidInputError(
            "expected JSON values; NaN and Infinity are none", param="metadata"
        ) from None


class _Reader:
    """Reads inputs one by one into batch arrays."""

    def __init__(self, manifest: Manifest, horizon: int, inputs: int) -> None:
        self._manifest = manifest
        self._frequency = manifest.step
        self._horizon = horizon
        self._names: set[str] = set()
        self._feeds: Arrays = {
            HISTORY: np.empty((inputs, manifest.context, len(manifest.channels)), np.float32)
        }
        if manifest.calendar is not None:
            features = len(manifest.calendar.features)
            self._feeds[HISTORY_CALENDAR] = np.empty(
                (inputs, manifest.context, features), np.float32
            )
            self._feeds[FUTURE_CALENDAR] = np.empty(
                (inputs, manifest.horizon, features), np.float32
            )

    def read(self, inputs: list[Any]) -> tuple[list[Series | ServiceError], Arrays]:
        entries: list[Series | ServiceError] = []
        windows = 0
        for index, raw in enumerate(inputs):
            try:
                entries.append(self._read(raw, index, windows))
                windows += 1
            except ServiceError as error:
                entries.append(error)
        return entries, {name: rows[:windows] for name, rows in self._feeds.items()}

    def _read(self, raw: object, index: int, row: int) -> Series:
        place = f"inputs[{index}]"
        entry = validate(SeriesInput, raw, place)
        name = self._claim_name(entry.name, index)
        if entry.frequency is not None:
            check_frequency(entry.frequency, self._frequency, f"{place}.frequency")
        if entry.frequency_multiple not in (None, self._frequency.multiple):
            raise InvalidInputError(
                f"expected the model's, {self._frequency.multiple} (frequency {self._frequency}), "
                f"got {shown(entry.frequency_multiple)}",
                param=f"{place}.frequency_multiple",
            )
        columns = self._columns(entry.channels, f"{place}.channels")
        self._read_history(entry, columns, row, place)
        timeline = read_timeline(
            entry.start_timestamp, entry.timestamps, self._frequency, len(entry.series), place
        )
        timestamps = self._read_calendar(timeline, row, place)
        return Series(name, row, not is_multivariate(entry.series), columns, timeline, timestamps)

    def _claim_name(self, given: str | None, index: int) -> str:
        name = f"series-{index}" if given is None else given
        if name in self._names:
            raise InvalidInputError(
                f"expected a name that no other input has, got {shown(name)}",
                param=f"inputs[{index}].name",
            )
        self._names.add(name)
        return name

    def _columns(self, names: list[str] | None, place: str) -> list[int] | None:
        channels = self._manifest.channels
        if names is None or tuple(names) == channels:
            return None
        for index, name in enumerate(names):
            if name not in channels:
                raise InvalidInputError(
                    f"expected a channel of the model ({', '.join(channels)}), got {shown(name)}",
                    param=f"{place}[{index}]",
                )
            if name in names[:index]:
                raise InvalidInputError(f"{name!r} is named twice", param=f"{place}[{index}]")
        if missing := [name for name in channels if name not in names]:
            raise InvalidInputError(
                f"the model needs every channel; missing: {', '.join(missing)}", param=place
            )
        return [channels.index(name) for name in names]

    def _read_history(
        self, entry: SeriesInput, columns: list[int] | None, row: int, place: str
    ) -> None:
        context = self._manifest.context
        _check_type(entry, place)
        names = self._manifest.channels if columns is None else entry.channels or ()
        values = read_values(entry.series, names, f"{place}.series")
        if len(values) < context:
            raise InvalidInputError(
                f"expected at least {context} rows, the model's context, got {len(values)}",
                param=f"{place}.series",
            )
        window = self._feeds[HISTORY][row]
        if columns is None:
            window[:] = values[-context:]
        else:
            window[:, columns] = values[-context:]

    def _read_calendar(self, timeline: Timeline | None, row: int, place: str) -> list[str] | None:
        """Fill in the calendar features, and say when the forecast's steps are."""
        manifest = self._manifest
        if timeline is None:
            if manifest.calendar is not None:
                raise InvalidInputError(
                    f"required: {manifest.name} uses calendar features",
                    param=f"{place}.start_timestamp",
                )
            return None
        try:
            timestamps = timeline.labels(0, manifest.horizon)
        except TimestampError as error:
            raise InvalidInputError(str(error), param=f"{place}.start_timestamp") from None
        if manifest.calendar is not None:
            history = timeline.steps(-manifest.context, manifest.context)
            future = timeline.steps(0, manifest.horizon)
            self._feeds[HISTORY_CALENDAR][row] = manifest.calendar.encode(history)
            self._feeds[FUTURE_CALENDAR][row] = manifest.calendar.encode(future)
        return timestamps[: self._horizon]


def _check_type(entry: SeriesInput, place: str) -> None:
    if entry.type is None or not entry.series:
        return
    found = "multivariate" if is_multivariate(entry.series) else "univariate"
    if entry.type != f"{found}_time_series":
        form = "[time][channel]" if found == "univariate" else "[time]"
        raise InvalidInputError(
            f"series is {'[time]' if found == 'univariate' else '[time][channel]'}, and "
            f"{entry.type} is {form}",
            param=f"{place}.type",
        )
