"""Long tables in Parquet and CSV files, read by row groups and files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa
from pyarrow import csv, dataset, fs

from foretell.batch.errors import BatchError
from foretell.batch.places import Place
from foretell.batch.texts import converted, kind_of_times, parsed
from foretell.bundle.nearness import listed
from foretell.service.forecast.table import ID, TARGET, TIME
from foretell.service.validation import shown

_ENDINGS = (".parquet", ".csv", ".csv.gz")
# Cells of Parquet that are read at a time, and bytes of CSV.
_CELLS, _BYTES = 4 * 1024 * 1024, 4 * 1024 * 1024
_COMMENTS = (
    "a comment is no row here: take out the lines that begin with # and are no rows, or save the "
    "table as Parquet"
)
# What an error of Arrow has before the cause, and the errors that a comment may be the cause of.
_OPENING = re.compile(r"Could not open \w+ input source '.*?': (Invalid: )?", re.DOTALL)
_WIDTHS = re.compile(r"Expected \d+ columns, got \d+")


class Piece(NamedTuple):
    """A row group of a Parquet file, or a CSV file; `row` is its first row in the file."""

    file: str
    group: int | None = None
    row: int = 0


@dataclass(frozen=True)
class Table:
    """The files of a place, which hold one long table.

    Attributes:
        place: Where they lie.
        files: Their names, in their order.
        names: What they call the columns that are read, by what we call them: `unique_id`, `ds` if
            there are times, and the channels.
        schema: The types of these, by our names.
    """

    place: Place
    files: tuple[str, ...]
    names: dict[str, str]
    schema: pa.Schema

    def pieces(self) -> list[Piece]:
        """What is read by itself.

        Raises:
            BatchError: a file cannot be read.
        """
        return [piece for file in self.files for piece in self._pieces(file)]

    def _pieces(self, file: str) -> list[Piece]:
        if _is_text(self.place, file):
            return [Piece(file)]
        with _naming(self.place, file):
            groups = _fragment(self.place, file, self.names).row_groups
        rows = accumulate((group.num_rows for group in groups), initial=0)
        return [Piece(file, group.id, row) for group, row in zip(groups, rows, strict=False)]

    def ids(self, piece: Piece) -> Iterator[pa.Array]:
        """The names of series of a piece's rows, some at a time; texts may be dictionaries.

        Raises:
            BatchError: it cannot be read.
        """
        for batch in _read(self.place, piece, {ID: self.names[ID]}):
            yield batch.column(0)

    def rows(self, piece: Piece) -> Iterator[pa.Table]:
        """A piece's rows, some at a time, with our names; those of CSV with `WRONG` besides.

        Raises:
            BatchError: it cannot be read.
        """
        for batch in _read(self.place, piece, self.names):
            columns = {ours: batch.column(theirs) for ours, theirs in self.names.items()}
            if piece.group is None:
                kinds = {name: self.schema.field(name).type for name in self.names if name != ID}
                columns = converted(columns, kinds)
            yield pa.table(columns)


def open_table(
    place: Place,
    files: tuple[str, ...],
    id_column: str,
    time_column: str,
    channels: tuple[str, ...],
) -> Table:
    """The table of some files of a place; the one channel of a model may also be called `y`.

    Raises:
        BatchError: there is none, a file cannot be read, or they have not the same columns.
    """
    if not files:
        raise BatchError(f"{place}: there is no file that ends with .parquet or .csv")
    with _naming(place, files[0]):
        there = _fragment(place, files[0], {}).physical_schema.names
    one = len(channels) == 1 and channels[0] not in there and TARGET in there
    times = {TIME: time_column} if time_column in there else {}
    names = {ID: id_column, **times, **{name: TARGET if one else name for name in channels}}
    schemas = {file: found for file in files if (found := _schema(place, file, names))}
    if not schemas:
        raise BatchError(f"{place}: there are no rows")
    first, schema = next(iter(schemas.items()))
    for file, other in schemas.items():
        if other != schema:
            raise BatchError(
                f"{place.of(file)}: its columns are {_shown(other)}, and those of "
                f"{place.of(first)} are {_shown(schema)}"
            )
    return Table(place, files, names, schema)


def files_of(place: Place) -> dict[str, fs.FileInfo]:
    """The tables among the files of a place.

    Raises:
        BatchError: they cannot be listed.
    """
    return {
        name: about
        for name, about in place.files().items()
        if place.of(name).lower().endswith(_ENDINGS)
    }


def _schema(place: Place, file: str, names: dict[str, str]) -> pa.Schema | None:
    """The columns of a file that are read; of CSV the types of its first rows, None without."""
    with _naming(place, file):
        found = _fragment(place, file, names).physical_schema
    for theirs in names.values():
        if found.names.count(theirs) != 1:
            remedy = f"; {_COMMENTS}" if "".join(found.names).startswith("#") else ""
            raise BatchError(
                f"{place.of(file)}: expected one column {theirs!r}; the table has "
                f"{listed(found.names) or 'none'}{remedy}"
            )
    kinds = {ours: found.field(theirs).type for ours, theirs in names.items()}
    kinds = {
        name: kind.value_type if pa.types.is_dictionary(kind) else kind
        for name, kind in kinds.items()
    }
    if not _is_text(place, file):
        return pa.schema(kinds)
    if not (first := next(_read(place, Piece(file), names), None)):
        return None
    for ours, theirs in names.items():
        if ours == TIME:
            kinds[ours] = kind_of_times(first.column(theirs))
        elif ours != ID:
            kinds[ours] = pa.float64()
            if parsed(first.column(theirs), kinds[ours])[1].all():
                raise BatchError(
                    f"{place.of(file)}: column {theirs!r}: expected numbers, got "
                    f"{shown(first.column(theirs)[0].as_py())}"
                )
    return pa.schema(kinds)


def _read(place: Place, piece: Piece, names: dict[str, str]) -> Iterator[pa.RecordBatch]:
    with _naming(place, piece.file):
        fragment = _fragment(place, piece.file, names)
        if piece.group is not None:
            fragment = fragment.subset(row_group_ids=[piece.group])
        columns = list(names.values())
        rows = max(_CELLS // len(columns), 1)
        yield from fragment.to_batches(columns=columns, batch_size=rows, use_threads=False)


@contextmanager
def _naming(place: Place, file: str) -> Iterator[None]:
    """As `Place.naming`, with a remedy."""
    try:
        with place.naming(file):
            yield
    except BatchError as error:
        reason = _OPENING.sub("", str(error))
        remedy = f"; {_COMMENTS}" if _WIDTHS.search(reason) else ""
        raise BatchError(f"{reason}{remedy}") from None


def _fragment(place: Place, file: str, names: dict[str, str]) -> dataset.Fragment:
    if _is_text(place, file):
        # What is a number or a time, and what is neither, is found out by series.
        form: dataset.FileFormat = dataset.CsvFileFormat(
            csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(names.values(), pa.string())
            ),
            read_options=csv.ReadOptions(block_size=_BYTES),
        )
    else:
        form = dataset.ParquetFileFormat(dictionary_columns=[names[ID]] if names else [])
    return form.make_fragment(place.path(file), place.system)


def _is_text(place: Place, file: str) -> bool:
    return not place.of(file).lower().endswith(_ENDINGS[0])


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
