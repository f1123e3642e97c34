"""The codec of forecasts in Arrow's format, of a table in long form.

https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import methodcaller
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa
from flatbuffers import encode as flat
from flatbuffers import packer
from flatbuffers.table import Table as FlatTable
from numpy.typing import NDArray
from pyarrow import ipc

from foretell.service.arrays import FORECAST, MARGIN, Arrays
from foretell.service.engine.registry import Model
from foretell.service.errors import (
    InvalidInputError,
    ServiceError,
    TooLargeError,
    UnreadableError,
    error_object,
)
from foretell.service.forecast.actuals_types import TableReference
from foretell.service.forecast.columns import ID, TIME, moments_of
from foretell.service.forecast.encode import learned_from, not_finite, quantiles_of, warn
from foretell.service.forecast.job import Job
from foretell.service.forecast.options import Operation
from foretell.service.forecast.requests import TableOptions
from foretell.service.forecast.series import Series
from foretell.service.forecast.table import NOTES, read_request
from foretell.service.forecast.warnings import outside
from foretell.service.http.body import ALWAYS
from foretell.service.http.compression import Body, unreadable
from foretell.service.http.pipeline import Parsed
from foretell.service.settings import Settings
from foretell.service.validation import validate
from foretell.timeaxis.timestamps import Timestamps

# Bytes of the smallest value, which with `max_body_bytes` bounds the rows of a table.
_SMALLEST = 2
# Most bytes for a row: its place among the series, each of its values, and its time.
_ROW, _COLUMN, _TIME = 12, 12, 64
# Positions of fields in the flatbuffers of Message.fbs.
_HEADER = 8
_DICTIONARY_DATA = 6
_COMPRESSION = 10
Query = TypeVar("Query", TableOptions, TableReference)
# The ids of the series, and the type of the times, if there are any.
_Columns = tuple[pa.Array, pa.DataType | None]


def parse(
    body: Body, query: Mapping[str, str], settings: Settings, kind: type[Query]
) -> Parsed[tuple[pa.Table, Query]]:
    """Read the options in the URL, and of the table all that does not need the model."""
    known = kind.model_fields
    for name in query:
        if name not in known:
            raise InvalidInputError(
                f"expected one of {', '.join(known)}, got {name[:60]!r}", param="query"
            )
    options = validate(kind, dict(query), "query")
    table = read_table(body, settings.max_body_bytes // _SMALLEST)
    size = _ROW + _COLUMN * len(table.column_names)
    if TIME in table.column_names:
        size += _TIME
    find = methodcaller("find", options.model)
    return Parsed((table, options), find, ALWAYS, size * int(table.num_rows))


def decode(
    parsed: Parsed[tuple[pa.Table, TableOptions]],
    model: Model,
    settings: Settings,
    operation: Operation,
) -> Job:
    """Read the series; if none of them fits the model, raise the first one's error."""
    table, query = parsed.release()
    given = query.model_dump(exclude={"model"}, exclude_unset=True)
    options = validate(operation.options, given, "query")
    job, ids, times = read_request(table, operation, options, model, settings)
    if not len(job.history):
        raise next(entry for entry in job.entries if isinstance(entry, ServiceError))
    job.table = ids, times
    return job


def encode(job: Job, outputs: Arrays) -> bytes:
    """Write the answer: `unique_id`, `ds` if it was sent, the targets, and `<target>_q<level>`."""
    ids, times = cast("_Columns", job.table)
    forecast = outputs[FORECAST][:, : job.options.horizon]
    layers = [forecast]
    if job.options.quantiles:
        layers.extend(quantiles_of(job, outputs))
    good, failures = _outcomes(job, np.asarray(np.isfinite(layers).all(axis=(0, 2, 3))))
    if not good:
        raise next(iter(failures.values()))
    indices = np.array([index for index, _ in good])
    rows = np.array([series.row for _, series in good])
    columns = {ID: ids.take(pa.array(np.repeat(indices, job.options.horizon)))}
    if times is not None:
        columns[TIME] = _times([series for _, series in good], job.options.horizon, times)
    names = ["", *(f"_q{level}" for level in job.options.quantiles)]
    for suffix, layer in zip(names, layers, strict=True):
        for channel, name in enumerate(job.model.manifest.targets):
            columns[name + suffix] = pa.array(layer[rows, :, channel].ravel())
    table = pa.table(columns)
    notes = _notes(job, ids, good, failures, outputs)
    return write_table(table.replace_schema_metadata({NOTES: json.dumps(notes).encode()}))


def _outcomes(
    job: Job, finite: NDArray[np.bool_]
) -> tuple[list[tuple[int, Series]], dict[int, ServiceError]]:
    """The series with a forecast, and the errors of the others, both with their index."""
    good: list[tuple[int, Series]] = []
    failures: dict[int, ServiceError] = {}
    for index, entry in enumerate(job.entries):
        if isinstance(entry, ServiceError):
            failures[index] = entry
        elif finite[entry.row]:
            good.append((index, entry))
        else:
            job.refuse(index)
            failures[index] = not_finite(f"unique_id={entry.name[:60]}")
    return good, failures


def _times(series: list[Series], horizon: int, kind: pa.DataType) -> pa.Array:
    known: dict[int, Timestamps] = {}
    found = []
    for one in series:
        assert one.timeline is not None  # noqa: S101 - the table has times
        # Series with the same timestamps share their timeline.
        if id(one.timeline) not in known:
            known[id(one.timeline)] = moments_of(one.timeline, horizon, kind)
        found.append(known[id(one.timeline)])
    moments = pa.array(np.concatenate(found), pa.timestamp("us", getattr(kind, "tz", None)))
    try:
        return moments.cast(kind, safe=pa.types.is_timestamp(kind))
    except pa.ArrowInvalid:
        raise InvalidInputError(
            f"the times of the forecast do not fit {kind}", param=TIME
        ) from None


def _notes(
    job: Job,
    ids: pa.Array,
    good: list[tuple[int, Series]],
    failures: dict[int, ServiceError],
    outputs: Arrays,
) -> dict[str, object]:
    notes: dict[str, object] = {
        "model": job.model.name,
        "model_version": job.model.version,
        "model_digest": job.model.digest,
        "status": "partial" if failures else "completed",
        "errors": [
            {"unique_id": ids[index].as_py(), **error_object(error)}
            for index, error in failures.items()
        ],
    }
    if job.learned:
        notes["calibration"] = {
            series.name: learned_from(job.learned[series.row]) for _, series in good
        }
    if job.ledger is not None:
        notes["in_ledger"] = [series.name for _, series in good if job.is_kept(series)]
    if job.options.passes > 1:
        notes["rolled_from"] = job.model.manifest.horizon
    if job.past is not None:
        origins = {series.name: len(job.past.origins[series.row]) for _, series in good}
        notes["calibration"] = {"method": "history", "origins": origins}
    if filled := {series.name: series.filled for _, series in good if series.filled}:
        notes[job.options.of_gaps] = filled
    bound = job.model.manifest.margin_bound
    if bound is not None:
        notes["ill_conditioned"] = [
            series.name for _, series in good if outputs[MARGIN][series.row] < bound
        ]
    far = outside(
        job.model.manifest,
        job.history,
        outputs[FORECAST][:, : job.options.horizon],
        lambda row: f"unique_id={job.entry_of(row)[1].name[:60]}",
    )
    if warnings := warn(job, far):
        notes["warnings"] = warnings
    return notes


def read_table(body: Body, max_rows: int) -> pa.Table:
    """Read a stream, which may be hostile; TooLargeError if it has more than `max_rows` rows."""
    buffer = pa.py_buffer(body)
    try:
        _refuse_compression(buffer)
        with ipc.open_stream(buffer) as reader:
            table = reader.read_all()
        if table.num_rows > max_rows:
            raise TooLargeError(f"expected at most {max_rows} rows, got {table.num_rows}")
        # Otherwise Arrow would follow offsets that point outside their buffers.
        table.validate(full=True)
        # Names that are not text raise here instead of later.
        for field in table.schema:
            _ = field.name, getattr(field.type, "tz", None)
    except ServiceError:
        raise
    # Damaged bytes make Arrow raise anything, UnicodeDecodeError and IndexError among them.
    except Exception as error:
        message = f"the body is not a sound Arrow stream: {str(error)[:200]}"
        raise unreadable(message, body) from None
    return table


def write_table(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _refuse_compression(buffer: pa.Buffer) -> None:
    """Refuse compressed buffers: a few bytes may decompress to any size, which no header states."""
    for message in ipc.MessageReader.open_stream(buffer):
        if message.type == "schema":
            continue
        raw = message.metadata.to_pybytes()
        batch = _child(FlatTable(raw, flat.Get(packer.uoffset, raw, 0)), _HEADER)
        if message.type == "dictionary":
            batch = _child(batch, _DICTIONARY_DATA)
        if batch.Offset(_COMPRESSION):
            raise UnreadableError(
                "compressed record batches are not accepted; "
                "compress the whole body instead (Content-Encoding: zstd or gzip)"
            )


def _child(table: FlatTable, field: int) -> FlatTable:
    return FlatTable(table.Bytes, table.Indirect(table.Offset(field) + table.Pos))
