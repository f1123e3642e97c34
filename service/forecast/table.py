"""Reads tables of series in long form: columns become the values and times of each series."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from foretell.bundle.nearness import listed
from foretell.service.engine.registry import Model
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.columns import (
    ID,
    MISSING,
    TARGET,
    TIME,
    Times,
    check_known,
    read_groups,
    read_times,
    read_values,
)
from foretell.service.forecast.job import Job
from foretell.service.forecast.options import Operation
from foretell.service.forecast.series import Series, SeriesReader
from foretell.service.forecast.table_covariates import TableCovariates
from foretell.service.forecast.times import Timeline, timeline_of
from foretell.service.forecast.warnings import AnswerWarning, warning
from foretell.service.settings import Settings
from foretell.service.validation import KnownFields
from foretell.timeaxis.errors import TimestampError
from foretell.timeaxis.timestamps import check_years

# Key of the schema's metadata with the parts of an answer that are not columns, as JSON.
NOTES = b"foretell"
_METADATA = "schema.metadata"
# Other common names of a column of times, in lower case.
_TIMES = {TIME, "date", "dates", "datetime", "time", "times", "timestamp", "timestamps"}
# Most keys of the metadata that are compared with the names of options.
_MOST_COMPARED = 64


def read_request(
    table: pa.Table, operation: Operation, options: BaseModel, model: Model, settings: Settings
) -> tuple[Job, pa.Array, pa.DataType | None]:
    """Read a table; each bad series becomes an entry with its error.

    The rows of a series are in order of time; rows of several series may alternate. If the model
    reads future covariates, the rows after a series' last target have them. Returns the
    job, the ids of its entries `[series]`, and the type of the times, if any. InvalidInputError or
    NotSupportedError: the table does not fit the model.
    """
    manifest = model.manifest
    groups = read_groups(table, settings.max_inputs)
    checked = operation.read_options(options, len(groups), model, settings)
    covariates = TableCovariates(table, groups, manifest, checked)
    channels = covariates.channels
    is_read = {*channels, *covariates.names}
    if len(channels) == 1 and channels[0] not in table.column_names:
        is_read.add(TARGET)
    warnings = check_unread(table, is_read, operation.query)
    times = read_times(table, manifest.step)
    if times is None and manifest.calendar is not None:
        raise InvalidInputError(f"required: {manifest.name} uses calendar features", param=TIME)
    reader = SeriesReader(manifest, checked, len(groups))
    has_gaps = checked.missing != "error"
    rows = reader.read(_Rows(table, times, covariates, reader, has_gaps=has_gaps).read)
    # The job must not hold the table, which may be the body itself.
    job = Job(model, checked, rows.entries, rows.history, rows.calendar, None, warnings, rows.past)
    job.covariates, job.static = rows.covariates, rows.static
    return job, groups.ids, None if times is None else times.kind


def check_unread(
    table: pa.Table, is_read: Container[str], query: type[BaseModel]
) -> list[AnswerWarning]:
    """Warnings about columns besides those read; refuses times and options in the wrong place."""
    names = table.column_names
    others = [
        field
        for field in table.schema
        if field.name not in is_read and field.name not in (ID, TIME)
    ]
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
    known = KnownFields({_METADATA: {}, "the URL": query.model_fields})
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
        table: pa.Table,
        times: Times | None,
        covariates: TableCovariates,
        reader: SeriesReader,
        *,
        has_gaps: bool,
    ) -> None:
        self._groups = groups = covariates.groups
        self._manifest = covariates.manifest
        self._starts: list[int] = groups.starts.tolist()
        self._names = list(map(str, groups.ids.to_pylist()))
        self._clock = None if times is None else times.clock
        self._steps = None if times is None else groups.sort(times.steps)
        names = covariates.channels
        self._values = np.empty((self._starts[-1], len(names)))
        self._is_hollow = np.zeros(self._starts[-1], np.bool_)
        # A column is freed before the next one is read.
        for place, column in enumerate(read_values(table, names)):
            in_order = groups.sort(column)
            self._values[:, place] = in_order
            self._is_hollow |= np.isnan(in_order)
        self._covariates = covariates
        self._reader = reader
        self._has_gaps = has_gaps
        # Series with the same times share a timeline, which is checked once.
        self._timelines: dict[tuple[bytes, int], Timeline] = {}

    def read(self, index: int) -> Series:
        """Read a series; raises a `ServiceError` if it is invalid."""
        start, end = self._starts[index : index + 2]

        def path(row: int | None = None, column: int = 0) -> str:
            if row is None:
                return f"{ID}[{self._groups.row(start)}]"
            return f"{self._covariates.channels[column]}[{self._groups.row(start + row)}]"

        values = self._values[start:end]
        rows = self._covariates.rows_of(values, start)
        values, gaps = values[:rows], bool(self._is_hollow[start : start + rows].any())
        if len(values) < self._manifest.context:
            raise self._reader.too_short(len(values), path)
        try:
            timeline = self._timeline(start, end, rows)
            if gaps and not self._has_gaps:
                channel, row = np.argwhere(np.isnan(values.T))[0].tolist()
                raise InvalidInputError(MISSING, param=path(row, channel))
            covariates = self._covariates.read(rows, start)
            series = self._reader.add(
                self._names[index], values, timeline, path, covariates=covariates, gaps=gaps
            )
        except TimestampError as error:
            at = self._groups.row(start)
            raise InvalidInputError(str(error), param=f"{TIME}[{at}]") from None
        series.is_named = True
        return series

    def _timeline(self, start: int, end: int, rows: int) -> Timeline | None:
        """The times of the first `rows` of a series; the others follow at the model's step."""
        if self._steps is None or self._clock is None:
            return None
        steps = self._steps[start:end]
        key = steps.tobytes(), rows
        if key not in self._timelines:

            def path(row: int) -> str:
                return f"{TIME}[{self._groups.row(start + row)}]"

            check_known(steps, path)
            timeline = timeline_of(steps, self._clock, self._manifest.step, path)
            check_years(steps)
            self._timelines[key] = replace(timeline, rows=rows)
        return self._timelines[key]
