"""The tables that a part leaves: forecasts, and the series that have none."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from foretell.batch.errors import BatchError
from foretell.batch.forecaster import Forecasts
from foretell.batch.places import Place
from foretell.batch.plan import Part
from foretell.batch.rows import Rows
from foretell.batch.tables import Columns, Tables
from foretell.batch.windows import Rejected
from foretell.bundle.manifest import Manifest
from foretell.service.forecast.table import ID, TIME

FORECASTS, REJECTED = "forecasts", "rejected"
# What the metadata of a part's forecasts say of it; where Arrow's readers look for types.
_COUNTS, _ARROW = "foretell", "ARROW:schema"
_CHANNEL, _UNSURE = "channel", "ill_conditioned"


class Counts(NamedTuple):
    """Series of a part.

    Attributes:
        forecast: Those that have a forecast.
        rejected: Those that have none.
    """

    forecast: int
    rejected: int


def schema_of(
    columns: Columns, given: pa.Schema, manifest: Manifest, levels: Sequence[float]
) -> pa.Schema:
    """The columns of forecasts.

    Args:
        columns: What the table calls its own.
        given: Their types, by our names.
        manifest: The model's.
        levels: Of the quantiles.

    Raises:
        BatchError: two would have the same name.
    """
    found = [(columns.id, given.field(ID).type)]
    if columns.time is not None:
        found.append((columns.time, given.field(TIME).type))
    found.append(("step", pa.int32()))
    if len(manifest.targets) > 1:
        found.append((_CHANNEL, pa.string()))
    found += [(name, pa.float32()) for name in ("forecast", *(f"q{level:g}" for level in levels))]
    found += [("model", pa.string()), ("version", pa.string()), (_UNSURE, pa.bool_())]
    names = [name for name, _ in found]
    for name in names:
        if names.count(name) > 1:
            raise BatchError(f"forecasts have a column {name!r} of their own; rename the table's")
    # No value is missing: it need not be written which are.
    return pa.schema(pa.field(name, kind, nullable=False) for name, kind in found)


class Writer:
    """Writes the tables of a part, which appear when it is left without an error.

    Args:
        place: Where.
        part: The part.
        tables: What it is of.
        schema: Of the forecasts.
        manifest: The model's.
    """

    def __init__(
        self, place: Place, part: Part, tables: Tables, schema: pa.Schema, manifest: Manifest
    ) -> None:
        self._place = place
        self._part = part
        self._tables = tables
        self._schema = schema
        self._manifest = manifest
        self._stack = ExitStack()
        self._rejects: parquet.ParquetWriter | None = None
        self._forecast = self._rejected = 0

    @property
    def counts(self) -> Counts:
        """The series so far."""
        return Counts(self._forecast, self._rejected)

    def __enter__(self) -> Self:
        # Left last: where there are forecasts the part is whole.
        path = self._stack.enter_context(self._place.writing(f"{FORECASTS}/{self._part.file}"))
        written = _repeating(self._schema)
        self._forecasts = self._stack.enter_context(
            parquet.ParquetWriter(
                path,
                written,
                # Numbers that repeat with each series are as small and faster without.
                use_dictionary=[
                    field.name for field in written if pa.types.is_dictionary(field.type)
                ],
                compression="zstd",
                write_statistics=[written.names[0]],
                store_schema=False,
            )
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            # Whoever reads it has plain columns: dictionaries were only faster to write.
            plain = base64.b64encode(self._schema.serialize().to_pybytes())
            counts = json.dumps(self.counts._asdict())
            self._forecasts.add_key_value_metadata({_ARROW: plain, _COUNTS: counts})
        self._stack.__exit__(kind, error, trace)

    def add(self, chunk: Rows, forecasts: Forecasts) -> None:
        """Write forecasts of series of a chunk."""
        _, windows, horizon, targets = forecasts.layers.shape
        about = self._manifest
        ids = chunk.table.column(ID).chunk(0).take(pa.array(forecasts.series))
        if pa.types.is_dictionary(ids.type):
            ids = ids.dictionary_decode()
        columns = [_repeated(ids, np.repeat(np.arange(windows, dtype=np.int32), targets * horizon))]
        if forecasts.moments is not None:
            kind = self._schema.field(len(columns)).type
            columns.append(_times(np.repeat(forecasts.moments, targets, axis=0).ravel(), kind))
        columns.append(
            pa.array(np.tile(np.arange(1, horizon + 1, dtype=np.int32), windows * targets))
        )
        if targets > 1:
            channel = np.tile(np.repeat(np.arange(targets, dtype=np.int32), horizon), windows)
            columns.append(_repeated(pa.array(about.targets), channel))
        columns += [pa.array(layer.transpose(0, 2, 1).ravel()) for layer in forecasts.layers]
        rows = windows * targets * horizon
        for text in (about.name, about.version):
            columns.append(_repeated(pa.array([text]), np.zeros(rows, np.int32)))
        columns.append(pa.array(np.repeat(forecasts.ill_conditioned, targets * horizon)))
        self._forecasts.write_table(pa.table(columns, schema=_repeating(self._schema)))
        self._forecast += windows

    def reject(self, chunk: Rows, rejected: Sequence[Rejected]) -> None:
        """Write who has no forecast of a chunk, why, and where that shows."""
        if not rejected:
            return
        ordered = sorted(rejected)
        ids = chunk.table.column(ID).chunk(0).take(pa.array([each.series for each in ordered]))
        names = self._tables.names
        places = [
            self._part.place(chunk.number(each.series if each.row is None else each.row))
            for each in ordered
        ]
        table = pa.table(
            {
                self._tables.columns.id: ids.cast(self._schema.field(0).type),
                "reason": [each.reason for each in ordered],
                "file": [file for file, _ in places],
                "row": pa.array([row for _, row in places], pa.int64()),
                "column": pa.array([names.get(each.column or "") for each in ordered], pa.string()),
            }
        )
        if self._rejects is None:
            path = self._stack.enter_context(self._place.writing(f"{REJECTED}/{self._part.file}"))
            writer = parquet.ParquetWriter(path, table.schema, compression="zstd")
            self._rejects = self._stack.enter_context(writer)
        self._rejects.write_table(table)
        self._rejected += len(ordered)


def read_counts(place: Place, part: Part) -> Counts:
    """The series of a part that was written."""
    with place.open(f"{FORECASTS}/{part.file}") as source:
        about = parquet.ParquetFile(source).metadata.metadata
    return Counts(**json.loads(about[_COUNTS.encode()]))


def _repeating(schema: pa.Schema) -> pa.Schema:
    """As it is written: what is the same in many rows as dictionaries."""
    return pa.schema(
        field.with_type(pa.dictionary(pa.int32(), field.type))
        if index == 0 or pa.types.is_string(field.type)
        else field
        for index, field in enumerate(schema)
    )


def _repeated(values: pa.Array, places: np.ndarray) -> pa.Array:
    return pa.DictionaryArray.from_arrays(places, values, safe=False)


def _times(moments: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Moments as the column of times has them.

    Raises:
        BatchError: it cannot hold them.
    """
    found = pa.array(moments.view(np.int64)).view(pa.timestamp("us", getattr(kind, "tz", None)))
    try:
        return found.cast(kind, safe=pa.types.is_timestamp(kind))
    except pa.ArrowInvalid:
        raise BatchError(f"the times of a forecast do not fit {kind}") from None
