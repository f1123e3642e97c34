"""From a table in long form to a job."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel

from foretell.bundle.errors import TimestampError
from foretell.bundle.manifest import Manifest
from foretell.bundle.nearness import listed
from foretell.bundle.timestamps import check_years
from foretell.service.engine.registry import Model
from foretell.service.errors import InvalidInputError, ServiceError, kept
from foretell.service.forecast.inputs import Filled, Series, fill
from foretell.service.forecast.job import Job
from foretell.service.forecast.options import Operation, Plan
from foretell.service.forecast.origins import Origins
from foretell.service.forecast.table import (
    ID,
    TARGET,
    TIME,
    Groups,
    Times,
    read_groups,
    read_times,
    read_values,
)
from foretell.service.forecast.times import Timeline, timeline_of
from foretell.service.forecast.warnings import Notice, notice
from foretell.service.settings import Settings
from foretell.service.validation import Names

# What the columns of an answer do not tell, as JSON in the schema's metadata.
NOTES = b"foretell"
_METADATA = "schema.metadata"
# What columns of times are called elsewhere, in lower case.
_TIMES = {TIME, "date", "dates", "datetime", "time", "times", "timestamp", "timestamps"}
# Names of the metadata that are compared with those of options, however many there are.
_MOST_COMPARED = 64


@dataclass(frozen=True)
class Request:
    """A table, checked.

    Attributes:
        job: What to do.
        ids: `[series]`, one for every entry of the job.
        times: The type of the table's timestamps, if it has any.
    """

    job: Job
    ids: pa.Array
    times: pa.DataType | None


def read_request(
    table: pa.Table, task: Operation, options: BaseModel, model: Model, settings: Settings
) -> Request:
    """Read a table of which any series, and all of them, may be bad.

    Args:
        table: Rows of every series in order of time; the series may be mixed.
        task: What is asked for.
        options: Of it.
        model: Who forecasts.
        settings: Limits.

    Raises:
        InvalidInputError: the table does not fit the model; `NotSupportedError` likewise.
    """
    manifest = model.manifest
    groups = read_groups(table, settings.max_inputs)
    wanted = task.plan(options, len(groups), model, settings)
    notices = _unread(table, manifest.channels, task)
    times = read_times(table, manifest.step)
    if times is None and manifest.calendar is not None:
        raise InvalidInputError(f"required: {manifest.name} uses calendar features", param=TIME)
    values = read_values(table, manifest.channels)
    reader = _Reader(manifest, wanted, groups, times, values)
    entries = [reader.read(index) for index in range(len(groups))]
    history, calendar = reader.arrays()
    past = None if reader.origins is None or not len(history) else reader.origins.past()
    job = Job(model, wanted, entries, history, calendar, None, notices, past)
    # Of the rest nothing is needed any more, which may be the body itself.
    return Request(job, groups.ids, None if times is None else times.kind)


def _unread(table: pa.Table, channels: tuple[str, ...], task: Operation) -> list[Notice]:
    """What of a table is not read; refuses times and options that stand where none are read."""
    found = table.column_names
    is_read = {ID, TIME, *channels}
    if len(channels) == 1 and channels[0] not in found:
        is_read.add(TARGET)
    others = [field for field in table.schema if field.name not in is_read]
    for field in others if TIME not in found else ():
        is_time = pa.types.is_timestamp(field.type) or pa.types.is_date(field.type)
        if is_time or field.name.lower() in _TIMES:
            raise InvalidInputError(
                f"times are read from a column named {TIME!r}, and the table has none; rename this "
                "one, or leave it out",
                param=field.name[:60],
            )
    # An index that pandas adds is nothing that the caller meant to be read.
    others = [field for field in others if not field.name.startswith("__index_level_")]
    notices = []
    if others:
        names = listed([field.name[:60] for field in others])
        notices.append(notice("ignored_field", f"columns that are not read: {names}", None))
    metadata = table.schema.metadata or {}
    known = Names({_METADATA: {}, "the URL": task.query.model_fields})
    for name in islice(metadata, _MOST_COMPARED):
        known.sift(_METADATA, [name.decode(errors="replace")], _METADATA, {})
    if NOTES in metadata:
        place = f"{_METADATA}.{NOTES.decode()}"
        text = "not read: what is an option in JSON is a parameter of the URL"
        notices.append(notice("ignored_field", text, place))
    return notices


class _Reader:
    """Reads series into the rows of arrays; those with the same timestamps are checked once.

    Attributes:
        origins: Cuts what is forecast again, if anything.
    """

    def __init__(
        self,
        manifest: Manifest,
        wanted: Plan,
        groups: Groups,
        times: Times | None,
        values: list[NDArray[np.float64]],
    ) -> None:
        self._manifest = manifest
        self._plan = wanted
        self._groups = groups
        self._times = times
        self._values = values
        # Of all series at once: most of them have no gap to look for.
        self._missing = np.logical_or.reduce([np.isnan(channel) for channel in values])
        self._windows: list[NDArray[np.int64]] = []
        self._filled: dict[int, NDArray[np.float64]] = {}
        self._calendars: list[NDArray[np.float32]] = []
        self._known: dict[bytes, tuple[Timeline, NDArray[np.float32] | None]] = {}
        self.origins: Origins | None = None
        if wanted.rolling is not None:
            steps = manifest.context + wanted.passes * manifest.horizon
            self.origins = Origins(manifest, wanted.horizon, steps, wanted.rolling, wanted.missing)

    def read(self, index: int) -> Series | ServiceError:
        rows = self._groups.of(index)
        context = self._manifest.context
        try:
            if len(rows) < context:
                raise InvalidInputError(
                    f"expected at least {context} rows, the model's context, got {len(rows)}",
                    param=f"unique_id[{rows[0]}]",
                )
            timeline, calendar = self._read_times(rows)
            filled = self._fill(rows)
            if self.origins is not None:
                values = np.stack([values[rows] for values in self._values], axis=1)
                self.origins.add(values, timeline, f"unique_id[{rows[0]}]")
        except ServiceError as error:
            self._filled.pop(len(self._windows), None)
            return kept(error)
        name = str(self._groups.ids[index].as_py())
        self._windows.append(rows[-context:])
        if calendar is not None:
            self._calendars.append(calendar)
        return Series(name, len(self._windows) - 1, False, None, timeline, filled)

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """History and calendar of the windows that were read, as a `Job` has them."""
        windows, context, channels = len(self._windows), self._manifest.context, len(self._values)
        history = np.empty((windows, context, channels), np.float32)
        rows = np.array(self._windows, np.int64).reshape(windows, context)
        for channel, values in enumerate(self._values):
            history[:, :, channel] = values[rows]
        for window, values in self._filled.items():
            history[window] = values
        return history, np.stack(self._calendars) if self._calendars else None

    def _fill(self, rows: NDArray[np.int64]) -> Filled:
        # As in JSON, a longer history is refused as a whole.
        reads_all = self._plan.missing == "error"
        window = rows if reads_all else rows[-self._manifest.context :]
        if not self._missing[window].any():
            return {}
        channels = self._manifest.channels
        if self._plan.missing == "error":
            gaps = np.isnan([values[window] for values in self._values])
            channel, row = np.argwhere(gaps)[0]
            raise InvalidInputError(
                "a value is missing, and missing is 'error'",
                param=f"{channels[channel]}[{window[row]}]",
            )
        series = np.stack([values[rows] for values in self._values], axis=1)
        filled = fill(
            series,
            self._plan.missing,
            len(window),
            channels,
            lambda row, column: f"{channels[column]}[{rows[row]}]",
            self._manifest.needed_steps(self._plan.missing),
        )
        self._filled[len(self._windows)] = series[-len(window) :]
        return filled

    def _read_times(
        self, rows: NDArray[np.int64]
    ) -> tuple[Timeline | None, NDArray[np.float32] | None]:
        if self._times is None:
            return None, None
        manifest, steps = self._manifest, self._times.steps[rows]
        key = steps.tobytes()
        if key not in self._known:
            if np.isnat(steps).any():
                row = rows[np.isnat(steps).argmax()]
                raise InvalidInputError("expected a timestamp, got null", param=f"{TIME}[{row}]")
            try:
                timeline = timeline_of(
                    steps, self._times.clock, manifest.step, lambda at: f"{TIME}[{rows[at]}]"
                )
                count = manifest.context + self._plan.passes * manifest.horizon
                walls, _ = timeline.read(-manifest.context, count)
                check_years(walls)
            except TimestampError as error:
                raise InvalidInputError(str(error), param=f"{TIME}[{rows[0]}]") from None
            calendar = manifest.calendar
            self._known[key] = timeline, None if calendar is None else calendar.encode(walls)
        return self._known[key]
