"""Long tables, read as one sequence of rows: Parquet by row groups, CSV by blocks of bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyarrow import parquet

from foretell.batch.errors import BatchError, RowError
from foretell.batch.places import Place
from foretell.batch.rows import Rows
from foretell.batch.texts import (
    COMMENTS,
    Block,
    begins_with_comment,
    converted,
    kind_of_times,
    open_text,
    parsed,
    with_remedy,
)
from foretell.bundle.nearness import listed
from foretell.service.forecast.table import ID, TARGET, TIME
from foretell.service.validation import shown

Name = str | int
# Rows that are read at a time.
_ROWS = 256 * 1024
# Bytes of a text that are read by themselves.
_BLOCK = 64 * 1024 * 1024
# Bytes of a row group that is not read whole, and of each of its columns that are held then.
_LARGE, _BUFFER = 256 * 1024 * 1024, 1024 * 1024
# Which row of a text Arrow's errors are of, from 1; the first has the names of the columns.
_ROW_OF_TEXT = re.compile(r"Row #(\d+): ")


class Columns(NamedTuple):
    """What a table calls its columns.

    Attributes:
        id: Of the names of series.
        time: Of the times; None in tables without.
        values: Of the values, in the order of the model's channels.
    """

    id: str
    time: str | None
    values: tuple[str, ...]


class Piece(NamedTuple):
    """What of a file can be read by itself.

    Attributes:
        file: Its name.
        group: The row group, or the block of a text; gzipped ones have one.
    """

    file: str
    group: int


class Range(NamedTuple):
    """What a file itself tells of a piece's names, all of which are there.

    Attributes:
        rows: Of the piece.
        low: No name is less.
        high: No name is greater.
    """

    rows: int
    low: Name
    high: Name


class Span(NamedTuple):
    """Rows of a piece.

    Attributes:
        piece: The piece.
        skipped: Its rows before them.
        rows: How many they are.
        row: Which row of the file the first of them is, from 0.
        first: Which of all rows it is.
    """

    piece: Piece
    skipped: int
    rows: int
    row: int
    first: int


@dataclass(frozen=True)
class Tables:
    """The files of a place that hold one long table.

    Attributes:
        place: Where they lie.
        columns: What they call their columns.
        channels: What the model calls the values.
        time: The type of the times, without which texts are not read but for names.
    """

    place: Place
    columns: Columns
    channels: tuple[str, ...]
    time: pa.DataType | None = None

    def pieces(self, file: str) -> Iterator[tuple[Piece, Range | None]]:
        """What of a file can be read by itself, and what the file tells of it, if it does.

        Raises:
            BatchError: it cannot be read.
        """
        if _is_zipped(self.place, file):
            yield Piece(file, 0), None
            return
        with told(self.place.of(file)), self.place.open(file) as source:
            if _is_text(self.place, file):
                for block in range(-(-source.size() // _BLOCK)):
                    yield Piece(file, block), None
                return
            about = parquet.ParquetFile(source).metadata
            paths = [about.schema.column(number).path for number in range(about.num_columns)]
            own = [number for number, path in enumerate(paths) if path == self.columns.id]
            for group in range(about.num_row_groups):
                yield Piece(file, group), _range(about.row_group(group), own)

    def schema(self, file: str) -> pa.Schema:
        """The columns that are read of a file, by our names and in the types that are read.

        Raises:
            BatchError: it cannot be read, or has no such columns.
        """
        found = read_schema(self.place, file, self.columns)
        names = self.names
        fields = []
        for ours, theirs in names.items():
            if found.names.count(theirs) != 1:
                told = f"; {COMMENTS}" if found.names and found.names[0].startswith("#") else ""
                raise BatchError(
                    f"{self.place.of(file)}: expected one column {theirs!r}; the table has "
                    f"{listed(found.names) or 'none'}{told}"
                )
            kind = found.field(theirs).type
            fields.append((ours, kind.value_type if pa.types.is_dictionary(kind) else kind))
        return pa.schema(fields)

    def ids(self, piece: Piece, rows: int | None = None) -> Iterator[pa.Array]:
        """The names of series of a piece's rows, so many at a time; texts may be dictionaries.

        Raises:
            BatchError: it cannot be read; a `RowError` counts from the piece's begin.
        """
        for batch in self._read(piece, [self.columns.id], at_a_time=rows):
            yield batch.column(0)

    def rows(self, spans: Sequence[Span]) -> Iterator[Rows]:
        """The rows of spans, in parts of a stretch each.

        Raises:
            BatchError: they cannot be read.
        """
        names = self.names
        has_text = any(_is_text(self.place, span.piece.file) for span in spans)
        for span in spans:
            at, end = 0, span.skipped + span.rows
            before = span.row - span.skipped
            for batch in self._read(span.piece, list(names.values()), before):
                first, last = max(at, span.skipped), min(at + len(batch), end)
                if first < last:
                    part = batch.slice(first - at, last - first)
                    row = span.first + first - span.skipped
                    columns = {ours: part.column(theirs) for ours, theirs in names.items()}
                    if has_text:
                        columns = converted(columns, self._kinds(TIME, self.channels))
                    yield Rows.of(pa.table(columns), row)
                at += len(batch)
                if at >= end:
                    break

    @property
    def names(self) -> dict[str, str]:
        """What a file calls the columns that are read, by what we call them."""
        times = {} if self.columns.time is None else {TIME: self.columns.time}
        values = zip(self.channels, self.columns.values, strict=True)
        return {ID: self.columns.id, **times, **dict(values)}

    def _kinds(self, time: str | None, values: Sequence[str]) -> dict[str, pa.DataType]:
        """The types of columns of a text, of which these are the names."""
        times = {} if self.time is None or time is None else {time: self.time}
        return {**times, **dict.fromkeys(values, pa.float64())}

    def _read(
        self, piece: Piece, names: list[str], before: int = 0, at_a_time: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        with told(self.place.of(piece.file), before):
            if not _is_text(self.place, piece.file):
                yield from self._read_group(piece, names, at_a_time or _ROWS)
                return
            rows = 0
            try:
                kinds = self._kinds(self.columns.time, self.columns.values)
                for batch in self._read_text(piece, kinds, names):
                    yield batch
                    rows += len(batch)
            except pa.ArrowInvalid:
                # Something is no number, or no time; as texts, what is can be told from it.
                for batch in self._read_text(piece, dict.fromkeys(names, pa.string()), names):
                    yield batch[rows:]
                    rows = max(0, rows - len(batch))

    def _read_group(self, piece: Piece, names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        with self.place.open(piece.file) as source:
            file = parquet.ParquetFile(source, read_dictionary=[self.columns.id])
            if file.metadata.row_group(piece.group).total_byte_size > _LARGE:
                # Slower, but it holds little of a row group at a time.
                file = parquet.ParquetFile(
                    source, read_dictionary=[self.columns.id], buffer_size=_BUFFER
                )
            yield from file.iter_batches(
                rows, row_groups=[piece.group], columns=names, use_threads=False
            )

    def _read_text(
        self, piece: Piece, kinds: dict[str, pa.DataType], names: list[str]
    ) -> Iterator[pa.RecordBatch]:
        # Names of series that are numbers may begin with zeros.
        kinds = kinds | {self.columns.id: pa.string()}
        with self.place.open(piece.file) as source:
            is_zipped = _is_zipped(self.place, piece.file)
            if not is_zipped:
                source = pa.PythonFile(Block(source, piece.group, _BLOCK), "r")
            yield from open_text(source, kinds, names, is_zipped=is_zipped)


def read_schema(place: Place, file: str, columns: Columns | None) -> pa.Schema:
    """All columns of a file.

    Args:
        place: Where it lies.
        file: Its name.
        columns: Of a text those of names and values, whose types are known; of the others, times
            among them, its first rows tell, whatever else some of them say.

    Raises:
        BatchError: it cannot be read, or a column of values has none.
    """
    is_zipped = _is_zipped(place, file)
    if _is_text(place, file):
        with told(place.of(file)), place.open(file) as source:
            if begins_with_comment(source, is_zipped=is_zipped):
                raise BatchError(f"{place.of(file)}: line 1 begins with #: {COMMENTS}")
    with told(place.of(file)), place.open(file) as source:
        if not _is_text(place, file):
            return parquet.ParquetFile(source).schema_arrow
        values = () if columns is None else columns.values
        texts = dict.fromkeys(values if columns is None else (columns.id, *values), pa.string())
        reader = open_text(source, texts, is_zipped=is_zipped)
        found = reader.schema
        first = next(iter(reader), None)
        # Of a column that is not there, or twice, `Tables.schema` tells.
        for name in (each for each in values if found.names.count(each) == 1):
            if first and parsed(first.column(name), pa.float64())[1].all():
                raise BatchError(
                    f"{place.of(file)}: column {name!r}: expected numbers, got "
                    f"{shown(first.column(name)[0].as_py())}"
                )
            found = found.set(found.names.index(name), pa.field(name, pa.float64()))
        time = columns and columns.time
        if first and found.names.count(time) == 1 and pa.types.is_string(found.field(time).type):
            kind = kind_of_times(first.column(time))
            found = found.set(found.names.index(time), pa.field(time, kind))
        return found


def _range(group: parquet.RowGroupMetaData, columns: list[int]) -> Range | None:
    """What is told of the only one of these columns."""
    if not group.num_rows:
        return Range(0, "", "")
    found = group.column(columns[0]).statistics if len(columns) == 1 else None
    if found is None or not found.has_min_max or found.null_count != 0:
        return None
    return Range(group.num_rows, found.min, found.max)


def _is_text(place: Place, file: str) -> bool:
    return place.of(file).endswith(".csv") or _is_zipped(place, file)


def _is_zipped(place: Place, file: str) -> bool:
    return place.of(file).endswith(".csv.gz")


def columns_of(
    names: Sequence[str], id_column: str, time_column: str, channels: tuple[str, ...]
) -> Columns:
    """Which columns of a table are read; the one channel of a model may also be called `y`."""
    values = channels
    if len(channels) == 1 and channels[0] not in names and TARGET in names:
        values = (TARGET,)
    return Columns(id_column, time_column if time_column in names else None, values)


@contextmanager
def told(place: str, before: int = 0) -> Iterator[None]:
    """Name the place of what Arrow cannot read.

    Args:
        place: The file.
        before: Its rows before those that are read.

    Raises:
        BatchError: instead of Arrow's error.
    """
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        said = with_remedy(str(error).splitlines()[0])
        if row := _ROW_OF_TEXT.search(said):
            said = said.replace(row[0], "", 1)
            raise RowError(place, before + int(row[1]) - 2, said) from None
        raise BatchError(f"{place}: {said}") from None
