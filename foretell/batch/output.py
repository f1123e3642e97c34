"""Output tables of a part: forecasts, and rejected series."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from foretell.batch.chunks import Chunk
from foretell.batch.errors import BatchError
from foretell.batch.forecaster import Forecasts
from foretell.batch.places import Place
from foretell.batch.plan import Part
from foretell.batch.tables import Table
from foretell.batch.windows import Rejected
from foretell.bundle.manifest import Manifest
from foretell.service.forecast.columns import ID, TIME

FORECASTS, REJECTED = "forecasts", "rejected"
# Metadata keys of a part's files: counts, digest of the run, and Arrow's schema.
_COUNTS, _RUN, _ARROW = "foretell", "foretell-run", "ARROW:schema"


class Counts(NamedTuple):
    """Numbers of series with and without a forecast."""

    forecast: int
    rejected: int


def schema_of(
    names: Mapping[str, str], given: pa.Schema, manifest: Manifest, levels: Sequence[float]
) -> pa.Schema:
    """The schema of forecasts of a table.

    Args:
        names: Names of the table's columns, by our names.
        given: Types of the table's columns, by our names.
        manifest: Manifest of the model.
        levels: Levels of the quantiles.

    Raises:
        BatchError: two columns would have the same name.
    """
    found = [(names[name], given.field(name).type) for name in (ID, TIME) if name in names]
    found.append(("step", pa.int32()))
    if len(manifest.targets) > 1:
        found.append(("channel", pa.string()))
    found += [(name, pa.float32()) for name in ("forecast", *(f"q{level:g}" for level in levels))]
    found += [("model", pa.string()), ("version", pa.string()), ("ill_conditioned", pa.bool_())]
    every = [name for name, _ in found]
    for name in every:
        if every.count(name) > 1:
            raise BatchError(f"forecasts have a column {name!r} of their own; rename the table's")
    # No value is missing, so the files need no validity bits.
    return pa.schema(pa.field(name, kind, nullable=False) for name, kind in found)


class Writer:
    """Writes the tables of a part; the files appear when the block ends without an error.

    Args:
        place: Target of the files.
        part: The part.
        table: Table of the part.
        schema: Schema of the forecasts.
        manifest: Manifest of the model.
        run: Digest of the run's record.
    """

    def __init__(
        self,
        place: Place,
        part: Part,
        table: Table,
        schema: pa.Schema,
        manifest: Manifest,
        run: str,
    ) -> None:
        self.counts = Counts(0, 0)
        self._run = run
        self._place = place
        self._part = part
        self._table = table
        self._schema = schema
        self._manifest = manifest
        # Columns with few values are written as dictionaries, which is faster.
        self._written = pa.schema(
            field.with_type(pa.dictionary(pa.int32(), field.type))
            if index == 0 or pa.types.is_string(field.type)
            else field
            for index, field in enumerate(schema)
        )
        self._stack = ExitStack()
        self._rejects: parquet.ParquetWriter | None = None

    def __enter__(self) -> Self:
        # Opened first, so its file appears last: a part with forecasts is complete.
        repeated = [field.name for field in self._written if pa.types.is_dictionary(field.type)]
        self._forecasts = self._open(
            FORECASTS,
            self._written,
            # Other columns are as small without a dictionary, and faster to write.
            use_dictionary=repeated,
            write_statistics=repeated[:1],
            store_schema=False,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            # Arrow's readers return plain columns instead of dictionaries.
            plain = base64.b64encode(self._schema.serialize().to_pybytes())
            counts = json.dumps(self.counts._asdict())
            self._forecasts.add_key_value_metadata({_ARROW: plain, _COUNTS: counts})
        self._stack.__exit__(kind, error, trace)

    def _open(self, folder: str, schema: pa.Schema, **options: object) -> parquet.ParquetWriter:
        path = self._stack.enter_context(self._place.writing(f"{folder}/{self._part.file}"))
        writer = parquet.ParquetWriter(
            path, schema, filesystem=self._place.system, compression="zstd", **options
        )
        writer.add_key_value_metadata({_RUN: self._run})
        return self._stack.enter_context(writer)

    def add(self, chunk: Chunk, forecasts: Forecasts) -> None:
        """Write forecasts of series of a chunk."""
        _, windows, horizon, targets = forecasts.layers.shape
        each, rows = np.arange(windows, dtype=np.int32), windows * targets * horizon
        columns = [
            _repeated(
                chunk.names.take(pa.array(forecasts.series)), np.repeat(each, targets * horizon)
            )
        ]
        if forecasts.moments is not None:
            kind = self._schema.field(len(columns)).type
            columns.append(_times(np.repeat(forecasts.moments, targets, axis=0).ravel(), kind))
        columns.append(
            pa.array(np.tile(np.arange(1, horizon + 1, dtype=np.int32), windows * targets))
        )
        if targets > 1:
            channel = np.tile(np.repeat(np.arange(targets, dtype=np.int32), horizon), windows)
            columns.append(_repeated(pa.array(self._manifest.targets), channel))
        columns += [pa.array(layer.transpose(0, 2, 1).ravel()) for layer in forecasts.layers]
        for text in (self._manifest.name, self._manifest.version):
            columns.append(_repeated(pa.array([text]), np.zeros(rows, np.int32)))
        columns.append(pa.array(np.repeat(forecasts.ill_conditioned, targets * horizon)))
        self._forecasts.write_table(pa.table(columns, schema=self._written))
        self.counts = Counts(self.counts.forecast + windows, self.counts.rejected)

    def reject(self, chunk: Chunk, rejected: Sequence[Rejected]) -> None:
        """Write the rejected series of a chunk, with reasons and places."""
        if not rejected:
            return
        ordered = sorted(rejected, key=lambda each: each.series)
        rows = [chunk.begins[each.series] if each.row is None else each.row for each in ordered]
        places = [self._part.place(chunk.row + int(row)) for row in rows]
        names = self._table.names
        table = pa.table(
            {
                names[ID]: chunk.names.take(pa.array([each.series for each in ordered])),
                "reason": [each.reason for each in ordered],
                # The name is empty if the table is one file.
                "file": [file or self._table.place.text.rpartition("/")[2] for file, _ in places],
                "row": pa.array([row for _, row in places], pa.int64()),
                "column": pa.array([names.get(each.column or "") for each in ordered], pa.string()),
            }
        )
        if self._rejects is None:
            self._rejects = self._open(REJECTED, table.schema)
        self._rejects.write_table(table)
        self.counts = Counts(self.counts.forecast, self.counts.rejected + len(ordered))


def read_counts(place: Place, part: Part, run: str) -> Counts:
    """Read the counts of a part that was written.

    Raises:
        BatchError: the file cannot be read, or belongs to another run.
    """
    return Counts(**json.loads(_about(place, f"{FORECASTS}/{part.file}", run)[_COUNTS.encode()]))


def check_files(place: Place, parts: Sequence[Part], run: str) -> None:
    """Check that a place contains all files of a run, and no others.

    Raises:
        BatchError: a file is missing, or belongs to another run.
    """
    expected = {part.file for part in parts}
    there = {folder: place.files(folder) for folder in (FORECASTS, REJECTED)}
    if missing := expected - there[FORECASTS].keys():
        raise BatchError(
            f"{place.of(f'{FORECASTS}/{min(missing)}')}: is missing although a worker wrote "
            "it; write to a place that all nodes of the cluster share"
        )
    for folder, names in there.items():
        for name in names:
            if name not in expected:
                raise _of_another(place, f"{folder}/{name}")
            _about(place, f"{folder}/{name}", run)


def _about(place: Place, name: str, run: str) -> dict[bytes, bytes]:
    """The metadata of a file, which must belong to the run."""
    with place.naming(name):
        about = parquet.read_metadata(place.path(name), filesystem=place.system).metadata
    if about is None or about.get(_RUN.encode()) != run.encode():
        raise _of_another(place, name)
    return dict(about)


def _of_another(place: Place, name: str) -> BatchError:
    return BatchError(
        f"{place.of(name)}: was written by another run; remove {place}, and run one at a time"
    )


def _repeated(values: pa.Array, places: NDArray[np.int32]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(places, values, safe=False)


def _times(moments: NDArray[np.datetime64], kind: pa.DataType) -> pa.Array:
    """Times in the type of the table's column of times.

    Raises:
        BatchError: a time does not fit the type.
    """
    found = pa.array(moments.view(np.int64)).view(pa.timestamp("us", getattr(kind, "tz", None)))
    try:
        return found.cast(kind, safe=pa.types.is_timestamp(kind))
    except pa.ArrowInvalid:
        raise BatchError(f"the times of a forecast do not fit {kind}") from None
