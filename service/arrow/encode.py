"""From a job's outputs to a table in long form."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretell.bundle.timestamps import Timestamps
from foretell.service.arrays import Arrays
from foretell.service.arrow.columns import ID, TIME, Times
from foretell.service.arrow.decode import Request
from foretell.service.arrow.stream import write_table
from foretell.service.errors import InvalidInputError, ServiceError, error_object
from foretell.service.requests.decode import Job
from foretell.service.requests.inputs import Series
from foretell.service.tensors import FORECAST, MARGIN
from foretell.service.times.timeline import Timeline

# What the columns do not tell, as JSON in the schema's metadata.
NOTES = b"foretell"


def encode(request: Request, outputs: Arrays) -> bytes:
    """Write the answer: `unique_id`, `ds` if it came, the channels, and `<channel>_q<level>`.

    Args:
        request: The request.
        outputs: `[windows, …]` by output name.

    Raises:
        ServiceError: no series has a forecast; it is the first one's error.
    """
    job = request.job
    forecast = outputs[FORECAST][:, : job.plan.horizon]
    layers = [forecast]
    if job.plan.quantiles:
        layers.extend(job.model.intervals.quantiles(job.history, forecast, job.plan.quantiles))
    good, failures = _outcomes(request, np.asarray(np.isfinite(layers).all(axis=(0, 2, 3))))
    if not good:
        raise next(iter(failures.values()))
    indices = np.array([index for index, _ in good])
    rows = np.array([series.row for _, series in good])
    columns = {ID: request.ids.take(pa.array(np.repeat(indices, job.plan.horizon)))}
    if request.times is not None:
        columns[TIME] = _times([series for _, series in good], job.plan.horizon, request.times)
    names = ["", *(f"_q{level}" for level in job.plan.quantiles)]
    for suffix, layer in zip(names, layers, strict=True):
        for channel, name in enumerate(job.model.manifest.channels):
            columns[name + suffix] = pa.array(layer[rows, :, channel].ravel())
    table = pa.table(columns)
    notes = _notes(request, good, failures, outputs)
    return write_table(table.replace_schema_metadata({NOTES: json.dumps(notes).encode()}))


def _outcomes(
    request: Request, finite: NDArray[np.bool_]
) -> tuple[list[tuple[int, Series]], dict[int, ServiceError]]:
    """The series that have a forecast, and why the others have none, by their index."""
    good: list[tuple[int, Series]] = []
    failures: dict[int, ServiceError] = {}
    for index, entry in enumerate(request.job.entries):
        if isinstance(entry, ServiceError):
            failures[index] = entry
        elif finite[entry.row]:
            good.append((index, entry))
        else:
            failures[index] = InvalidInputError(
                "the model's forecast of this series is not finite: its values are too far from "
                "those it was trained on",
                param=f"unique_id={entry.name[:60]}",
            )
    return good, failures


def _times(series: list[Series], horizon: int, times: Times) -> pa.Array:
    known: dict[int, Timestamps] = {}
    found = []
    for one in series:
        assert one.timeline is not None  # noqa: S101 - the table has times
        # Series with the same timestamps share their timeline.
        if id(one.timeline) not in known:
            known[id(one.timeline)] = _moments(one.timeline, horizon, times)
        found.append(known[id(one.timeline)])
    moments = pa.array(np.concatenate(found), pa.timestamp("us", getattr(times.kind, "tz", None)))
    try:
        return moments.cast(times.kind, safe=pa.types.is_timestamp(times.kind))
    except pa.ArrowInvalid:
        raise InvalidInputError(
            f"the times of the forecast do not fit {times.kind}", param=TIME
        ) from None


def _moments(timeline: Timeline, horizon: int, times: Times) -> Timestamps:
    """Forecast steps `[horizon]`; in UTC where the column has a time zone."""
    walls, offset = timeline.read(0, horizon)
    if offset is None or getattr(times.kind, "tz", None) is None:
        return walls
    return np.asarray(
        walls - (offset if isinstance(offset, np.ndarray) else np.timedelta64(offset))
    )


def _notes(
    request: Request,
    good: list[tuple[int, Series]],
    failures: dict[int, ServiceError],
    outputs: Arrays,
) -> dict[str, object]:
    job: Job = request.job
    notes: dict[str, object] = {
        "model": job.model.name,
        "model_version": job.model.version,
        "status": "partial" if failures else "completed",
        "errors": [
            {"unique_id": request.ids[index].as_py(), **error_object(error)}
            for index, error in failures.items()
        ],
    }
    if job.plan.passes > 1:
        notes["rolled_from"] = job.model.manifest.horizon
    if filled := {series.name: series.filled for _, series in good if series.filled}:
        notes["filled"] = filled
    bound = job.model.manifest.margin_bound
    if bound is not None:
        notes["ill_conditioned"] = [
            series.name for _, series in good if outputs[MARGIN][series.row] < bound
        ]
    return notes
