"""Reads actual values of a table in long form."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foretell.bundle.manifest import Manifest
from foretell.bundle.nearness import listed, nearest
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.actuals_inputs import Actual, Entries, read_all
from foretell.service.forecast.actuals_types import TableReference
from foretell.service.forecast.columns import (
    ID,
    TARGET,
    TIME,
    Groups,
    Times,
    check_known,
    read_groups,
    read_numbers,
    read_times,
)
from foretell.service.forecast.moments import Moments, moments_of
from foretell.service.forecast.table import check_unread
from foretell.service.forecast.warnings import AnswerWarning
from foretell.service.settings import Settings
from foretell.service.validation import check_storable
from foretell.timeaxis.errors import TimestampError


def read_table(
    table: pa.Table, manifest: Manifest, settings: Settings
) -> tuple[Entries, list[AnswerWarning]]:
    """Read a table with a column for at least one forecast channel, and collect warnings.

    The rows of a series are in order of time; rows of several series may alternate.
    InvalidInputError: the table does not fit the model, or no series is valid.
    """
    groups = read_groups(table, settings.max_inputs)
    columns = _columns(table, manifest)
    warnings = check_unread(table, columns.values(), TableReference)
    times = read_times(table, manifest.step)
    if times is None:
        raise InvalidInputError("required: actual values need their times", param=TIME)
    values = np.empty((table.num_rows, len(columns)))
    for place, name in enumerate(columns.values()):
        values[:, place] = groups.sort(read_numbers(table, name))
    rows = _Rows(groups, times, manifest, [*columns], values)
    return read_all(rows.read, len(groups)), warnings


def _columns(table: pa.Table, manifest: Manifest) -> dict[str, str]:
    """The table's columns by the names of the forecast channels that it has."""
    names, targets = table.column_names, manifest.targets
    found = {name: name for name in targets if name in names}
    # As in forecasts, the one channel of a univariate model may also be called `y`.
    if not found and len(manifest.channels) == 1 and TARGET in names:
        found = {targets[0]: TARGET}
    missing = [name for name in targets if name not in found]
    for name in names[:1000]:
        if name in (ID, TIME, *found.values()) or name in manifest.channels:
            continue
        if missing and (meant := nearest(name, missing)):
            raise InvalidInputError(
                f"not a channel of the model; did you mean {meant!r}?", param=name[:60]
            )
    if not found:
        raise InvalidInputError(
            f"expected a column of at least one channel that is forecast ({listed(targets)}); the "
            f"table has {listed(names) or 'none'}",
            param=targets[0],
        )
    return found


class _Rows:
    """The rows of a table; `values` are `[rows, channels]`, sorted series by series."""

    def __init__(
        self,
        groups: Groups,
        times: Times,
        manifest: Manifest,
        channels: list[str],
        values: NDArray[np.float64],
    ) -> None:
        self._groups = groups
        self._clock = times.clock
        self._steps = groups.sort(times.steps)
        self._manifest = manifest
        self._channels = channels
        self._values = values
        self._starts: list[int] = groups.starts.tolist()
        self._names = list(map(str, groups.ids.to_pylist()))
        # Series with the same times share them.
        self._known: dict[bytes, Moments] = {}

    def read(self, index: int) -> Actual:
        """Read a series; raises a `ServiceError` if it is invalid."""
        start, end = self._starts[index : index + 2]
        name, values = self._names[index], self._values[start:end]
        check_storable(name, f"{ID}[{self._groups.row(start)}]")
        return Actual(name, self._channels, self._times(start, end), values)

    def _times(self, start: int, end: int) -> Moments:
        steps = self._steps[start:end]
        key = steps.tobytes()
        if key not in self._known:

            def path(row: int) -> str:
                return f"{TIME}[{self._groups.row(start + row)}]"

            check_known(steps, path)
            try:
                self._known[key] = moments_of(steps, self._clock, self._manifest.step, path)
            except TimestampError as error:
                raise InvalidInputError(str(error), param=path(0)) from None
        return self._known[key]
