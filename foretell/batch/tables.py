"""Tables in long form in Parquet and CSV files, read by row group or file."""

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
from foretell.bundle.covariates import NO_COVARIATES, besides, by_name
from foretell.bundle.manifest import Manifest
from foretell.bundle.nearness import listed, nearest
from foretell.service.forecast.columns import ID, TARGET, TIME
from foretell.service.validation import shown

# Types of covariates in CSV.
_TEXTS = {"number": pa.float64(), "boolean": pa.bool_(), "category": pa.string()}
_ENDINGS = (".parquet", ".csv", ".csv.gz")
# Cells of Parquet, and bytes of CSV, that are read at a time.
_CELLS, _BYTES = 4 * 1024 * 1024, 4 * 1024 * 1024
_COMMENTS = (
    "comments are not supported: remove the lines that begin with #, or save the table as Parquet"
)
# The prefix of Arrow's errors before the reason, and errors that a comment may cause.
_OPENING = re.compile(r"Could not open \w+ input source '.*?': (Invalid: )?", re.DOTALL)
_WIDTHS = re.compile(r"Expected \d+ columns, got \d+")


class Piece(NamedTuple):
    """A row group of a Parquet file, or a CSV file; `row` is its first row in the file."""

    file: str
    group: int | None = None
    row: int = 0


@dataclass(frozen=True)
class Table:
    """One table in long form in the files of a place.

    Attributes:
        place: Folder or file of the table.
        files: Names of the files, in order.
        names: Columns that are read, by our names: `unique_id`, `ds` if there are times, the
            channels and covariates.
        schema: Types of these columns, by our names.
    """

    place: Place
    files: tuple[str, ...]
    names: dict[str, str]
    schema: pa.Schema

    def pieces(self) -> list[Piece]:
        """Row groups of Parquet files, and CSV files.

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
        """Series names of a piece's rows in batches; strings may be dictionaries.

        Raises:
            BatchError: the file cannot be read.
        """
        for batch in _read(self.place, piece, {ID: self.names[ID]}):
            yield batch.column(0)

    def rows(self, piece: Piece) -> Iterator[pa.Table]:
        """Rows of a piece in batches, with our column names; for CSV with the column `WRONG`.

        Raises:
            BatchError: the file cannot be read.
        """
        for batch in _read(self.place, piece, self.names):
            columns = {ours: batch.column(name) for ours, name in self.names.items()}
            if piece.group is None:
                kinds = {name: self.schema.field(name).type for name in self.names if name != ID}
                columns = converted(columns, kinds)
            yield pa.table(columns)


def open_table(
    place: Place,
    files: tuple[str, ...],
    id_column: str,
    time_column: str,
    about: Manifest,
) -> Table:
    """Open the table in files of a place; the only channel of a model may also be named `y`.

    A past category has a column of its name, or one for each of its channels.

    Raises:
        BatchError: there are no rows, a file cannot be read, or files have different columns.
    """
    if not files:
        raise BatchError(f"{place}: there is no file that ends with .parquet, .csv or .csv.gz")
    with _naming(place, files[0]):
        there = _fragment(place, files[0], {}).physical_schema.names
    known = about.covariates or NO_COVARIATES
    past = by_name(known.past, there)
    covariates = [*known.future, *known.static, *past]
    channels = besides(about.channels, past)
    one = len(channels) == 1 and channels[0] not in there and TARGET in there
    times = {TIME: time_column} if time_column in there else {}
    names = {ID: id_column, **times, **{name: TARGET if one else name for name in channels}}
    names |= {each.name: each.name for each in covariates}
    texts = {each.name: _TEXTS[each.type] for each in covariates}
    schemas = {file: found for file in files if (found := _schema(place, file, names, texts))}
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
    """The Parquet and CSV files of a place.

    Raises:
        BatchError: the files cannot be listed.
    """
    return {
        name: about
        for name, about in place.files().items()
        if place.of(name).lower().endswith(_ENDINGS)
    }


def _schema(
    place: Place, file: str, names: dict[str, str], texts: dict[str, pa.DataType]
) -> pa.Schema | None:
    """The types of the columns that are read; for CSV from its first rows, None without rows.

    `texts` are types in CSV, by our names; the others, but names and times, are numbers.
    """
    with _naming(place, file):
        found = _fragment(place, file, names).physical_schema
    for name in names.values():
        if found.names.count(name) != 1:
            near = nearest(name, [each for each in found.names if each != name])
            remedy = f"; did you mean {near!r}?" if near else ""
            if "".join(found.names).startswith("#"):
                remedy = f"; {_COMMENTS}"
            raise BatchError(
                f"{place.of(file)}: expected one column {name!r}; the table has "
                f"{listed(found.names) or 'none'}{remedy}"
            )
    kinds = {ours: found.field(name).type for ours, name in names.items()}
    kinds = {
        ours: kind.value_type if pa.types.is_dictionary(kind) else kind
        for ours, kind in kinds.items()
    }
    if not _is_text(place, file):
        return pa.schema(kinds)
    if not (first := next(_read(place, Piece(file), names), None)):
        return None
    for ours, name in names.items():
        if ours == TIME:
            kinds[ours] = kind_of_times(first.column(name))
        elif ours != ID:
            kinds[ours] = texts.get(ours, pa.float64())
            if parsed(first.column(name), kinds[ours])[1].all():
                what = "true or false" if pa.types.is_boolean(kinds[ours]) else "numbers"
                raise BatchError(
                    f"{place.of(file)}: column {name!r}: expected {what}, got "
                    f"{shown(first.column(name)[0].as_py())}"
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
    """Add the name of a file and a remedy to errors of Arrow."""
    try:
        with place.naming(file):
            yield
    except BatchError as error:
        reason = _OPENING.sub("", str(error))
        remedy = f"; {_COMMENTS}" if _WIDTHS.search(reason) else ""
        raise BatchError(f"{reason}{remedy}") from None


def _fragment(place: Place, file: str, names: dict[str, str]) -> dataset.Fragment:
    if _is_text(place, file):
        # Cells are parsed later, so that a wrong cell rejects only its series.
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
