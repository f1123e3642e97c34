"""From the bytes of an Arrow stream to a table that can be trusted, and back.

https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from flatbuffers import encode, packer
from flatbuffers.table import Table as FlatTable
from numpy.typing import NDArray
from pyarrow import ipc

from foretell.bundle.errors import TimestampError
from foretell.bundle.frequency import Frequency
from foretell.bundle.nearness import listed, nearest
from foretell.bundle.timestamps import Timestamps
from foretell.bundle.zones import offsets_at
from foretell.service.errors import InvalidInputError, ServiceError, TooLargeError, UnreadableError
from foretell.service.forecast.clocks import Clock, FixedClock, ZoneClock, find_zone
from foretell.service.forecast.times import Timeline
from foretell.service.http.compression import Body, unreadable

# Positions of fields in the flatbuffers of Message.fbs.
_HEADER = 8
_DICTIONARY_DATA = 6
_COMPRESSION = 10


def read_table(body: Body, most_rows: int) -> pa.Table:
    """Read a stream.

    Args:
        body: The stream.
        most_rows: Most rows it may have.

    Raises:
        UnreadableError: the bytes are no stream, or one that should not be trusted.
        TooLargeError: it has more rows.
    """
    buffer = pa.py_buffer(body)
    try:
        _refuse_compression(buffer)
        with ipc.open_stream(buffer) as reader:
            table = reader.read_all()
        if table.num_rows > most_rows:
            raise TooLargeError(f"expected at most {most_rows} rows, got {table.num_rows}")
        # Offsets that point outside their buffers would be followed otherwise.
        table.validate(full=True)
        # Names that are no text raise when they are looked at: here, and not later.
        for field in table.schema:
            _ = field.name, getattr(field.type, "tz", None)
    except ServiceError:
        raise
    # Damaged bytes make Arrow raise anything, UnicodeDecodeError and IndexError among them.
    except Exception as error:
        said = f"the body is not a sound Arrow stream: {str(error)[:200]}"
        raise unreadable(said, body) from None
    return table


def write_table(table: pa.Table) -> bytes:
    """Write a stream."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _refuse_compression(buffer: pa.Buffer) -> None:
    """A few bytes of compressed buffers could unfold to any size; only their header tells."""
    for message in ipc.MessageReader.open_stream(buffer):
        if message.type == "schema":
            continue
        raw = message.metadata.to_pybytes()
        batch = _child(FlatTable(raw, encode.Get(packer.uoffset, raw, 0)), _HEADER)
        if message.type == "dictionary":
            batch = _child(batch, _DICTIONARY_DATA)
        if batch.Offset(_COMPRESSION):
            raise UnreadableError(
                "compressed record batches are not accepted; "
                "compress the whole body instead (Content-Encoding: zstd or gzip)"
            )


def _child(table: FlatTable, field: int) -> FlatTable:
    return FlatTable(table.Bytes, table.Indirect(table.Offset(field) + table.Pos))


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
# Of ids that are looked at together.
_PIECE_ROWS = 64 * 1024
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Groups:
    """Which rows of a table belong to which series.

    Attributes:
        ids: `[series]`, in order of appearance.
        rows: `[rows]`, the table's rows series by series, each in the table's order; None if the
            table has them so.
        starts: `[series + 1]`, where each series begins in `rows`, and its end.
    """

    ids: pa.Array
    rows: NDArray[np.int64] | None
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    def of(self, series: int) -> NDArray[np.int64]:
        """The rows of a series."""
        start, end = self.starts[series : series + 2]
        return np.arange(start, end) if self.rows is None else self.rows[start:end]


@dataclass(frozen=True)
class Times:
    """The column of timestamps.

    Attributes:
        steps: `[rows]`, as the clock takes them; NaT where one is missing.
        clock: Tells their wall-clock times.
        kind: The column's type, for the answer.
    """

    steps: Timestamps
    clock: Clock
    kind: pa.DataType


def read_groups(table: pa.Table, most: int) -> Groups:
    """Find the series.

    Args:
        table: The table.
        most: Most series it may have.

    Raises:
        InvalidInputError: the column is missing, has nulls or a type that names nothing, or the
            table is empty or has too many series.
    """
    column = _column(table, ID)
    if not table.num_rows:
        raise InvalidInputError("expected at least one row", param=ID)
    if column.null_count:
        raise InvalidInputError("expected a value in every row, got null", param=_null(column, ID))
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
        # Numbers as short as can be are sorted at once.
        short = codes.astype(np.min_scalar_type(len(encoded.dictionary)))
        rows = np.argsort(short, kind="stable")
        starts = np.append(0, 1 + np.flatnonzero(np.diff(short[rows])))
    firsts = starts if rows is None else rows[starts]
    ids = encoded.take(pa.array(firsts)).dictionary_decode()
    if ids.null_count:
        # A dictionary may hold one.
        raise InvalidInputError("expected a value in every row, got null", param=ID)
    return Groups(ids, rows, np.append(starts, len(codes)))


def _merge(
    codes: NDArray[np.integer], dictionary: pa.Array, used: NDArray[np.intp]
) -> tuple[NDArray[np.integer], int]:
    """Codes of which each is of another value, and how many; a dictionary may hold one twice."""
    values = dictionary.take(pa.array(used)).dictionary_encode("encode")
    if (count := len(values.dictionary)) == len(used):
        return codes, count
    merged = np.zeros(len(dictionary), codes.dtype)
    merged[used] = values.indices
    return merged[codes], count


def _encode(column: pa.ChunkedArray, most: int) -> pa.ChunkedArray:
    """The column as dictionaries, of which none that is made here has too many values."""
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
    """The timestamps, if the table has any.

    Args:
        table: The table.
        frequency: The model's.

    Raises:
        InvalidInputError: the column is of another type, or of a time zone nobody knows.
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
        return Times(moments, clock, kind)
    assert isinstance(clock, ZoneClock)  # noqa: S101 - the only other
    if clock.in_utc:
        return Times(moments, clock, kind)
    known = ~np.isnat(moments)
    steps = moments.copy()
    try:
        steps[known] += offsets_at(moments[known], clock.zone)
    except TimestampError as error:
        raise InvalidInputError(str(error), param=TIME) from None
    return Times(steps, clock, kind)


def moments_of(timeline: Timeline, horizon: int, kind: pa.DataType) -> Timestamps:
    """Forecast steps `[horizon]` as a column of a type has them: in UTC where it has a zone."""
    walls, offset = timeline.read(0, horizon)
    if offset is None or getattr(kind, "tz", None) is None:
        return walls
    return np.asarray(
        walls - (offset if isinstance(offset, np.ndarray) else np.timedelta64(offset))
    )


def _to_times(field: pa.Field) -> str:
    """How a client makes times of a column that holds none."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    # A server without pandas knows of its extension by the metadata alone.
    given = (field.metadata or {}).get(b"ARROW:extension:name", b"")
    if b"pandas.period" in (given, getattr(kind, "extension_name", "").encode()):
        how = "df['ds'].dt.to_timestamp()"
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        how = "pd.to_datetime(df['ds'], unit='s'), in polars pl.from_epoch(df['ds'])"
    else:
        how = "pd.to_datetime(df['ds']), in polars df['ds'].str.to_datetime()"
    return f"; convert the column: {how}"


def read_values(table: pa.Table, channels: Sequence[str]) -> list[NDArray[np.float64]]:
    """The values `[rows]` of each channel, NaN where one is missing.

    The one channel of a univariate model may also be called `y`.

    Raises:
        InvalidInputError: a column is missing or holds no numbers, or a value is too large for
            float32.
    """
    if (
        len(channels) == 1
        and channels[0] not in table.column_names
        and TARGET in table.column_names
    ):
        channels = (TARGET,)
    return [_values(table, name, channels) for name in channels]


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
    """The column of a name; none of the `channels` is told to be it under another name."""
    if table.column_names.count(name) != 1:
        found = listed(table.column_names) or "none"
        # Those that are compared, however many there are.
        others = set(table.column_names[:1000]) - {name, *channels}
        meant = nearest(name, sorted(others))
        hint = f"; did you mean {meant!r}?" if meant else ""
        if name == ID and ID not in table.column_names:
            hint += f"; {_ADD_ID}"
        raise InvalidInputError(
            f"expected one column of this name; the table has {found}{hint}", param=name
        )
    return table.column(name)


def _null(column: pa.ChunkedArray, name: str) -> str:
    return f"{name}[{pc.index(pc.is_null(column), True).as_py()}]"


def _clock(zone: str | None, frequency: Frequency) -> Clock:
    if zone is None:
        return FixedClock(None)
    if zone[:1] in "+-":
        hours, _, minutes = zone[1:].partition(":")
        if (hours + minutes).isdecimal() and len(hours + minutes) == 4:
            offset = timedelta(hours=int(hours), minutes=int(minutes))
            return FixedClock(-offset if zone[0] == "-" else offset)
    return ZoneClock(find_zone(zone, TIME), in_utc=frequency.sub_daily)
