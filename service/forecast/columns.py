"""The columns of tables in long form: names of series, times and numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from foretell.bundle.nearness import listed, nearest
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.times import Clock, FixedClock, Timeline, ZoneClock, find_zone
from foretell.timeaxis.errors import TimestampError
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.timestamps import Timestamps
from foretell.timeaxis.zones import offsets_at

ID, TIME, TARGET = "unique_id", "ds", "y"

MISSING = "a value is missing, and missing is 'error'"
_TEXTS = pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view
_ADD_ID = (
    "one series needs it too, with the same value in every row: df.assign(unique_id='a'), in "
    "polars df.with_columns(unique_id=pl.lit('a'))"
)
# Rows whose ids are encoded at a time.
_PIECE_ROWS = 64 * 1024
_LARGEST = float(np.finfo(np.float32).max)


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
    column = find_column(table, ID)
    if not table.num_rows:
        raise InvalidInputError("expected at least one row", param=ID)
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise InvalidInputError("expected a value in every row, got null", param=f"{ID}[{row}]")
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (is_text(kind) or pa.types.is_integer(kind)):
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
    column = find_column(table, TIME)
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
        yield read_numbers(table, name, channels)


def read_numbers(table: pa.Table, name: str, channels: Collection[str] = ()) -> NDArray[np.float64]:
    """The values `[rows]` of a column, NaN where missing; errors as of `read_values`."""
    column = find_column(table, name, channels)
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


def is_text(kind: pa.DataType) -> bool:
    return any(is_it(kind) for is_it in _TEXTS)


def find_column(table: pa.Table, name: str, channels: Collection[str] = ()) -> pa.ChunkedArray:
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


def check_known(steps: Timestamps, path: Callable[[int], str]) -> None:
    """Refuse a missing time among the steps of a series, at the path of its row."""
    if np.isnat(steps).any():
        row = int(np.isnat(steps).argmax())
        raise InvalidInputError("expected a timestamp, got null", param=path(row))
