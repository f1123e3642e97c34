"""Reads tables of series in long form: columns become the values and times of each series."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel

from foretell.bundle.manifest import Manifest
from foretell.bundle.nearness import listed, nearest
from foretell.service.engine.registry import Model
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.job import Job
from foretell.service.forecast.options import Operation
from foretell.service.forecast.series import Series, SeriesReader
from foretell.service.forecast.times import (
    Clock,
    FixedClock,
    Timeline,
    ZoneClock,
    find_zone,
    timeline_of,
)
from foretell.service.forecast.warnings import AnswerWarning, warning
from foretell.service.settings import Settings
from foretell.service.validation import KnownFields
from foretell.timeaxis.errors import TimestampError
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.timestamps import Timestamps, check_years
from foretell.timeaxis.zones import offsets_at

ID, TIME, TARGET = "unique_id", "ds", "y"

_NAMES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_integer,
)
_ADD_ID = (
    "one series needs it too, with the same value in every row: df.assign(unique_id='a'), in "
    "polars df.with_columns(unique_id=pl.lit('a'))"
)
# Rows whose ids are encoded at a time.
_PIECE_ROWS = 64 * 1024
_LARGEST = float(np.finfo(np.float32).max)
# Key of the schema's metadata with the parts of an answer that are not columns, as JSON.
NOTES = b"foretell"
_METADATA = "schema.metadata"
# Other common names of a column of times, in lower case.
_TIMES = {TIME, "date", "dates", "datetime", "time", "times", "timestamp", "timestamps"}
# Most keys of the metadata that are compared with the names of options.
_MOST_COMPARED = 64


@dataclass(frozen=True)
class Groups:
    """The series of a table, and their rows."""

    # `[series]`, in order of appearance.
    ids: pa.Array
    # `[rows]`, series by series, each in the table's order; None if the table is sorted so.
    rows: NDArray[np.int64] | None
    # `[series + 1]`, where each series begins in `rows`, and the end of the last one.
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    def of(self, series: int) -> NDArray[np.int64]:
        start, end = self.starts[series : series + 2]
        return np.arange(start, end) if self.rows is None else self.rows[start:end]

    def sort(self, column: NDArray[Any]) -> NDArray[Any]:
        """A column, sorted series by series."""
        return column if self.rows is None else column[self.rows]

    def row(self, position: int) -> int:
        """The table's row of a position in a sorted column."""
        return position if self.rows is None else int(self.rows[position])


@dataclass(frozen=True)
class Times:
    """The column of timestamps, of type `kind`."""

    # `[rows]`, steps of the clock; NaT where missing.
    steps: Timestamps
    clock: Clock
    kind: pa.DataType


def read_groups(table: pa.Table, most: int) -> Groups:
    """Find the series of a table, at most `most`."""
    column = _column(table, ID)
    if not table.num_rows:
        raise InvalidInputError("expected at least one row", param=ID)
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise InvalidInputError("expected a value in every row, got null", param=f"{ID}[{row}]")
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not any(is_it(kind) for is_it in _NAMES):
        raise InvalidInputError(f"expected strings or integers, got {kind}", param=ID)
    encoded = _encode(column, most).unify_dictionaries().combine_chunks()
    codes = encoded.indices.to_numpy()
    is_used = np.zeros(len(encoded.dictionary), np.bool_)
    for start in range(0, len(codes), _PIECE_ROWS):
        is_used[codes[start : start + _PIECE_ROWS]] = True
    if (series := int(np.count_nonzero(is_used))) > most:
        raise _too_many(most)
    if kind != column.type:
        codes, series = _merge(codes, encoded.dictionary, np.flatnonzero(is_used))
    starts = np.append(0, 1 + np.flatnonzero(codes[1:] != codes[:-1]))
    rows = None
    if len(starts) > series:
        # numpy sorts short integers with a radix sort.
        short = codes.astype(np.min_scalar_type(len(encoded.dictionary)))
        rows = np.argsort(short, kind="stable")
        starts = np.append(0, 1 + np.flatnonzero(np.diff(short[rows])))
    firsts = starts if rows is None else rows[starts]
    ids = encoded.take(pa.array(firsts)).dictionary_decode()
    if ids.null_count:
        # A dictionary may hold a null.
        raise InvalidInputError("expected a value in every row, got null", param=ID)
    return Groups(ids, rows, np.append(starts, len(codes)))


def _merge(
    codes: NDArray[np.integer], dictionary: pa.Array, used: NDArray[np.intp]
) -> tuple[NDArray[np.integer], int]:
    """Codes of distinct values, and their number: a dictionary may hold a value twice."""
    values = dictionary.take(pa.array(used)).dictionary_encode("encode")
    if (count := len(values.dictionary)) == len(used):
        return codes, count
    merged = np.zeros(len(dictionary), codes.dtype)
    merged[used] = values.indices
    return merged[codes], count


def _encode(column: pa.ChunkedArray, most: int) -> pa.ChunkedArray:
    """Encode the column as dictionaries; InvalidInputError as soon as one has too many values."""
    # Arrow has no dictionaries of views.
    if pa.types.is_dictionary(column.type):
        if not pa.types.is_string_view(column.type.value_type):
            return column
        return pa.chunked_array(
            pa.DictionaryArray.from_arrays(piece.indices, piece.dictionary.cast(pa.large_string()))
            for piece in column.chunks
        )
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    pieces = []
    for start in range(0, len(column), _PIECE_ROWS):
        piece = column.slice(start, _PIECE_ROWS).combine_chunks().dictionary_encode()
        if len(piece.dictionary) > most:
            raise _too_many(most)
        pieces.append(piece)
    return pa.chunked_array(pieces)


def _too_many(most: int) -> InvalidInputError:
    return InvalidInputError(f"expected at most {most} series", param=ID)


def read_times(table: pa.Table, frequency: Frequency) -> Times | None:
    """Read the column of times, if the table has one, for a model's frequency.

    InvalidInputError: the column is of another type, or of an unknown time zone.
    """
    if TIME not in table.column_names:
        return None
    column = _column(table, TIME)
    kind = column.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise InvalidInputError(
            f"expected timestamps or dates, got {kind}{_to_times(table.schema.field(TIME))}",
            param=TIME,
        )
    try:
        moments = column.cast(pa.timestamp("us", getattr(kind, "tz", None))).to_numpy()
    except pa.ArrowInvalid as error:
        raise InvalidInputError(str(error)[:200], param=TIME) from None
    moments = moments.astype("M8[us]", copy=False)
    clock = _clock(getattr(kind, "tz", None), frequency)
    if isinstance(clock, FixedClock):
        if clock.offset:
            moments = moments + np.timedelta64(clock.offset)
    elif not clock.in_utc:
        known = ~np.isnat(moments)
        moments = moments.copy()
        try:
            moments[known] += offsets_at(moments[known], clock.zone)
        except TimestampError as error:
            raise InvalidInputError(str(error), param=TIME) from None
    return Times(moments, clock, kind)


def moments_of(timeline: Timeline, horizon: int, kind: pa.DataType) -> Timestamps:
    """The times of forecast steps `[horizon]`, in UTC if the type of the column has a zone."""
    walls, offset = timeline.read(0, horizon)
    if offset is None or getattr(kind, "tz", None) is None:
        return walls
    return np.asarray(
        walls - (offset if isinstance(offset, np.ndarray) else np.timedelta64(offset))
    )


def _to_times(field: pa.Field) -> str:
    """A hint how a client converts a column to times."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    # Without pandas, only the metadata has its extension type.
    given = (field.metadata or {}).get(b"ARROW:extension:name", b"")
    if b"pandas.period" in (given, getattr(kind, "extension_name", "").encode()):
        how = "df['ds'].dt.to_timestamp()"
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        how = "pd.to_datetime(df['ds'], unit='s'), in polars pl.from_epoch(df['ds'])"
    else:
        how = "pd.to_datetime(df['ds']), in polars df['ds'].str.to_datetime()"
    return f"; convert the column: {how}"


def read_values(table: pa.Table, channels: Sequence[str]) -> Iterator[NDArray[np.float64]]:
    """The values `[rows]` of each channel in turn, NaN where missing.

    InvalidInputError: a column is missing or not numeric, or a value is too large for float32.
    """
    # The one channel of a univariate model may also be called `y`.
    if (
        len(channels) == 1
        and channels[0] not in table.column_names
        and TARGET in table.column_names
    ):
        channels = (TARGET,)
    for name in channels:
        yield _values(table, name, channels)


def _values(table: pa.Table, name: str, channels: Sequence[str]) -> NDArray[np.float64]:
    column = _column(table, name, channels)
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise InvalidInputError(
            f"expected a column of numbers, got {column.type}; convert the column: "
            f"df[{name!r}].astype(float), in polars df[{name!r}].cast(pl.Float64)",
            param=name,
        )
    values: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    wrong = np.abs(values) > _LARGEST
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidInputError(
            f"expected a finite number of at most 3.4e38 (float32), got {values[row]}",
            param=f"{name}[{row}]",
        )
    return values


def _column(table: pa.Table, name: str, channels: Collection[str] = ()) -> pa.ChunkedArray:
    """The column of a name; an error suggests other columns, but no `channels`."""
    if table.column_names.count(name) != 1:
        columns = listed(table.column_names) or "none"
        others = set(table.column_names[:1000]) - {name, *channels}
        meant = nearest(name, sorted(others))
        hint = f"; did you mean {meant!r}?" if meant else ""
        if name == ID and ID not in table.column_names:
            hint += f"; {_ADD_ID}"
        raise InvalidInputError(
            f"expected one column of this name; the table has {columns}{hint}", param=name
        )
    return table.column(name)


def _clock(zone: str | None, frequency: Frequency) -> FixedClock | ZoneClock:
    if zone is None:
        return FixedClock(None)
    if zone[:1] in "+-":
        hours, _, minutes = zone[1:].partition(":")
        if (hours + minutes).isdecimal() and len(hours + minutes) == 4:
            offset = timedelta(hours=int(hours), minutes=int(minutes))
            return FixedClock(-offset if zone[0] == "-" else offset)
    return ZoneClock(find_zone(zone, TIME), in_utc=frequency.sub_daily)


def read_request(
    table: pa.Table, operation: Operation, options: BaseModel, model: Model, settings: Settings
) -> tuple[Job, pa.Array, pa.DataType | None]:
    """Read a table; each bad series becomes an entry with its error.

    The rows of a series are in order of time; rows of several series may alternate. Returns the
    job, the ids of its entries `[series]`, and the type of the times, if any. InvalidInputError or
    NotSupportedError: the table does not fit the model.
    """
    manifest = model.manifest
    groups = read_groups(table, settings.max_inputs)
    checked = operation.read_options(options, len(groups), model, settings)
    warnings = _unread(table, manifest.channels, operation)
    times = read_times(table, manifest.step)
    if times is None and manifest.calendar is not None:
        raise InvalidInputError(f"required: {manifest.name} uses calendar features", param=TIME)
    columns = read_values(table, manifest.channels)
    reader = SeriesReader(manifest, checked, len(groups))
    has_gaps = checked.missing != "error"
    rows = reader.read(_Rows(groups, times, columns, manifest, reader, has_gaps=has_gaps).read)
    # The job must not hold the table, which may be the body itself.
    job = Job(model, checked, rows.entries, rows.history, rows.calendar, None, warnings, rows.past)
    return job, groups.ids, None if times is None else times.kind


def _unread(
    table: pa.Table, channels: tuple[str, ...], operation: Operation
) -> list[AnswerWarning]:
    """Warnings about unread columns; refuses times and options in the wrong place."""
    names = table.column_names
    is_read = {ID, TIME, *channels}
    if len(channels) == 1 and channels[0] not in names:
        is_read.add(TARGET)
    others = [field for field in table.schema if field.name not in is_read]
    for field in others if TIME not in names else ():
        is_time = pa.types.is_timestamp(field.type) or pa.types.is_date(field.type)
        if is_time or field.name.lower() in _TIMES:
            raise InvalidInputError(
                f"times are read from a column named {TIME!r}, and the table has none; rename this "
                "one, or leave it out",
                param=field.name[:60],
            )
    # pandas adds its index as a column, often without intention.
    others = [field for field in others if not field.name.startswith("__index_level_")]
    warnings = []
    if others:
        unread = listed([field.name[:60] for field in others])
        warnings.append(warning("ignored_field", f"columns that are not read: {unread}", None))
    metadata = table.schema.metadata or {}
    known = KnownFields({_METADATA: {}, "the URL": operation.query.model_fields})
    for name in islice(metadata, _MOST_COMPARED):
        known.check(_METADATA, [name.decode(errors="replace")], _METADATA, {})
    if NOTES in metadata:
        place = f"{_METADATA}.{NOTES.decode()}"
        text = "not read: options in JSON are parameters of the URL here"
        warnings.append(warning("ignored_field", text, place))
    return warnings


class _Rows:
    def __init__(
        self,
        groups: Groups,
        times: Times | None,
        columns: Iterator[NDArray[np.float64]],
        manifest: Manifest,
        reader: SeriesReader,
        *,
        has_gaps: bool,
    ) -> None:
        self._groups = groups
        self._starts: list[int] = groups.starts.tolist()
        self._names = list(map(str, groups.ids.to_pylist()))
        self._clock = None if times is None else times.clock
        self._steps = None if times is None else groups.sort(times.steps)
        self._values = np.empty((self._starts[-1], len(manifest.channels)))
        self._is_hollow = np.zeros(self._starts[-1], np.bool_)
        # A column is freed before the next one is read.
        for channel, column in enumerate(columns):
            self._values[:, channel] = in_order = groups.sort(column)
            self._is_hollow |= np.isnan(in_order)
        self._manifest = manifest
        self._reader = reader
        self._has_gaps = has_gaps
        # Series with the same times share a timeline, which is checked once.
        self._timelines: dict[bytes, Timeline] = {}

    def read(self, index: int) -> Series:
        """Read a series; raises a `ServiceError` if it is invalid."""
        start, end = self._starts[index : index + 2]

        def path(row: int | None = None, column: int = 0) -> str:
            if row is None:
                return f"{ID}[{self._groups.row(start)}]"
            return f"{self._manifest.channels[column]}[{self._groups.row(start + row)}]"

        values, gaps = self._values[start:end], bool(self._is_hollow[start:end].any())
        if len(values) < self._manifest.context:
            raise self._reader.too_short(len(values), path)
        try:
            timeline = self._timeline(start, end)
            if gaps and not self._has_gaps:
                channel, row = np.argwhere(np.isnan(values.T))[0].tolist()
                raise InvalidInputError(
                    "a value is missing, and missing is 'error'", param=path(row, channel)
                )
            return self._reader.add(self._names[index], values, timeline, path, gaps=gaps)
        except TimestampError as error:
            at = self._groups.row(start)
            raise InvalidInputError(str(error), param=f"{TIME}[{at}]") from None

    def _timeline(self, start: int, end: int) -> Timeline | None:
        if self._steps is None or self._clock is None:
            return None
        steps = self._steps[start:end]
        key = steps.tobytes()
        if key not in self._timelines:

            def path(row: int) -> str:
                return f"{TIME}[{self._groups.row(start + row)}]"

            if np.isnat(steps).any():
                row = int(np.isnat(steps).argmax())
                raise InvalidInputError("expected a timestamp, got null", param=path(row))
            timeline = timeline_of(steps, self._clock, self._manifest.step, path)
            check_years(steps)
            self._timelines[key] = timeline
        return self._timelines[key]
