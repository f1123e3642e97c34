"""What is to be forecast: the histories of a request's inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.errors import TimestampError
from foretell.bundle.gaps import Missing
from foretell.bundle.gaps import fill as fill_gaps
from foretell.bundle.manifest import Manifest
from foretell.bundle.nearness import listed
from foretell.bundle.timestamps import check_years
from foretell.service.errors import InvalidInputError, ServiceError, kept
from foretell.service.forecast.clocks import find_zone
from foretell.service.forecast.options import Plan
from foretell.service.forecast.origins import Origins, Past
from foretell.service.forecast.requests import SeriesInput
from foretell.service.forecast.series import is_multivariate, read_values
from foretell.service.forecast.times import Timeline, check_frequency, read_timeline
from foretell.service.gil import assign
from foretell.service.validation import Names, UnknownFields, check_texts, shown, validate

Filled = dict[str, int]


def fill(
    values: NDArray[np.float64],
    method: Missing,
    window: int,
    channels: Sequence[str],
    place: Callable[[int, int], str],
    needed: int | None = None,
) -> Filled:
    """Fill the gaps of a history's window, its last rows, in place (see `foretell.bundle.gaps`).

    Rows before the window may help, and stay as they are. With `mask` the gaps are what the model
    reads, and stay too.

    Args:
        values: `[time, channels]`, NaN where a value is missing.
        method: How; `error` is for histories without gaps.
        window: Rows that are read.
        channels: Names of the columns.
        place: Where the value of a row and column stands in the request.
        needed: Rows at the end in which each channel needs a value; the window's if not given.

    Returns:
        How many values of the window were missing, by channel, where there were any.

    Raises:
        InvalidInputError: a channel has no value where it needs one, or nothing comes before a gap
            that `ffill` is to fill.
    """
    missing = np.isnan(values)
    first, needed = len(values) - window, needed or window
    filled: Filled = {}
    for column in np.flatnonzero(missing[first:].any(axis=0)).tolist():
        name = channels[column]
        holes = first + np.flatnonzero(missing[first:, column])
        if missing[-needed:, column].all():
            what = "the model's context" if needed == window else "by which the model scales it"
            raise InvalidInputError(
                f"{name!r} has no value in the last {needed} rows, {what}",
                param=place(len(values) - needed, column),
            )
        if method == "ffill" and missing[: holes[0], column].all():
            raise InvalidInputError(
                f"no value of {name!r} comes before it to be carried on",
                param=place(int(holes[0]), column),
            )
        if method != "mask":
            fill_gaps(values[:, column], holes, method)
        filled[name] = len(holes)
    return filled


@dataclass(slots=True)
class Series:
    """One input that will be forecast.

    Attributes:
        name: As the request has it.
        row: Its window in the batch arrays.
        univariate: Whether it came, and is answered, as `[time]`.
        columns: The model's channel of each of its columns, if not in the model's order.
        timeline: When its steps are, if it said so.
        filled: How many missing values were filled in its window, or left out of it, by channel.
    """

    name: str
    row: int
    univariate: bool
    columns: list[int] | None
    timeline: Timeline | None
    filled: Filled


class Inputs:
    """Reads inputs into the rows of arrays.

    Args:
        manifest: The model's.
        plan: What the request asks for.
        count: Inputs of the request.
        ignored: Takes the names that nobody reads.
        names: Those that a request may have.
    """

    def __init__(
        self, manifest: Manifest, plan: Plan, count: int, ignored: UnknownFields, names: Names
    ) -> None:
        self._known = names
        self._manifest = manifest
        self._plan = plan
        self._ignored = ignored
        self._frequency = manifest.step
        self._given: set[str] = set()
        self._names: set[str] = set()
        self._history = np.empty((count, manifest.context, len(manifest.channels)), np.float32)
        self._steps = manifest.context + plan.passes * manifest.horizon
        self._calendar: NDArray[np.float32] | None = None
        if manifest.calendar is not None:
            features = len(manifest.calendar.features)
            self._calendar = np.empty((count, self._steps, features), np.float32)
        self._origins: Origins | None = None
        if plan.rolling is not None:
            self._origins = Origins(manifest, plan.horizon, self._steps, plan.rolling, plan.missing)

    def read(
        self, inputs: list[Any]
    ) -> tuple[list[Series | ServiceError], NDArray[np.float32], NDArray[np.float32] | None]:
        """Read them all; a bad one does not sink the others.

        Returns:
            Every input or why it could not be read; and of the windows of those that were, the
            history `[windows, context, channels]` and the calendar features of the history and of
            all steps that follow `[windows, context + passes * horizon, features]`, if the model
            reads them.
        """
        if len(inputs) > 1:
            names = [raw.get("name") for raw in inputs if isinstance(raw, dict)]
            self._given = {name for name in names if isinstance(name, str)}
        entries: list[Series | ServiceError] = []
        windows = 0
        for index, raw in enumerate(inputs):
            try:
                entries.append(self._read(raw, index, windows))
                windows += 1
            except ServiceError as error:
                entries.append(kept(error))
        calendar = None if self._calendar is None else self._calendar[:windows]
        return entries, self._history[:windows], calendar

    def past(self) -> Past:
        """What of those that were read, one at least, is forecast again."""
        assert self._origins is not None  # noqa: S101 - the plan has some
        return self._origins.past()

    def _read(self, raw: object, index: int, row: int) -> Series:
        place = f"inputs[{index}]"
        if isinstance(raw, dict) and not raw.keys() <= self._known.levels["inputs[]"].keys():
            self._known.sift("inputs[]", raw, place, self._ignored)
        entry = validate(SeriesInput, raw, place)
        check_texts(entry.timestamps or [], f"{place}.timestamps")
        name = self._claim_name(entry.name, index)
        if entry.frequency is not None:
            check_frequency(entry.frequency, self._frequency, f"{place}.frequency")
        if entry.frequency_multiple not in (None, self._frequency.multiple):
            raise InvalidInputError(
                f"expected the model's, {self._frequency.multiple} (frequency {self._frequency}), "
                f"got {shown(entry.frequency_multiple)}",
                param=f"{place}.frequency_multiple",
            )
        columns = self._columns(entry.channels, f"{place}.channels")
        values, filled = self._read_history(entry, columns, row, place)
        timeline = self._read_times(entry, row, place)
        if self._origins is not None:
            self._origins.add(values, timeline, f"{place}.series")
        return Series(name, row, not is_multivariate(entry.series), columns, timeline, filled)

    def _claim_name(self, given: str | None, index: int) -> str:
        name = given
        if name is None:
            name = f"series-{index}"
            while name in self._given:
                name += f"-{index}"
        if name in self._names:
            raise InvalidInputError(
                f"expected a name that no other input has, got {shown(name)}",
                param=f"inputs[{index}].name",
            )
        self._names.add(name)
        return name

    def _columns(self, names: list[str] | None, place: str) -> list[int] | None:
        channels = self._manifest.channels
        if names is None or tuple(names) == channels:
            return None
        for index, name in enumerate(names):
            if name not in channels:
                raise InvalidInputError(
                    f"expected a channel of the model ({listed(channels)}), got {shown(name)}",
                    param=f"{place}[{index}]",
                )
            if name in names[:index]:
                raise InvalidInputError(f"{name!r} is named twice", param=f"{place}[{index}]")
        if missing := [name for name in channels if name not in names]:
            raise InvalidInputError(
                f"the model needs every channel; missing: {listed(missing)}", param=place
            )
        return [channels.index(name) for name in names]

    def _read_history(
        self, entry: SeriesInput, columns: list[int] | None, row: int, place: str
    ) -> tuple[NDArray[np.float64], Filled]:
        """Its values, and how many were missing; its window goes into the arrays.

        The values are in the model's order, with their gaps, where others than the window's are
        needed.
        """
        context = self._manifest.context
        if entry.type is not None and len(entry.series):
            _check_type(entry, place)
        names = self._manifest.channels if columns is None else entry.channels or ()
        place = f"{place}.series"
        gaps = self._plan.missing != "error"
        values = read_values(entry.series, names, place, gaps=gaps)
        if len(values) < context:
            raise InvalidInputError(
                f"expected at least {context} rows, the model's context, got {len(values)}",
                param=place,
            )
        filled: Filled = {}
        given = values
        if self._origins is not None:
            given = values.copy() if columns is None else values[:, np.argsort(columns)]
        if gaps:
            nested = is_multivariate(entry.series)
            filled = fill(
                values,
                self._plan.missing,
                context,
                names,
                lambda at, column: f"{place}[{at}]" + (f"[{column}]" if nested else ""),
                self._manifest.needed_steps(self._plan.missing),
            )
        window = self._history[row]
        if columns is None:
            assign(window, values[-context:])
        else:
            window[:, columns] = values[-context:]
        return given, filled

    def _read_times(self, entry: SeriesInput, row: int, place: str) -> Timeline | None:
        """When its steps are; their calendar features go into the arrays."""
        manifest = self._manifest
        zone = None
        if entry.time_zone is not None:
            zone = find_zone(entry.time_zone, f"{place}.time_zone")
        timeline = read_timeline(
            entry.start_timestamp,
            entry.timestamps,
            zone,
            self._frequency,
            len(entry.series),
            place,
        )
        if timeline is None:
            if manifest.calendar is not None:
                raise InvalidInputError(
                    f"required: {manifest.name} uses calendar features",
                    param=f"{place}.start_timestamp",
                )
            return None
        try:
            if manifest.calendar is None and zone is None:
                # Times follow each other: the last one tells whether all can be written.
                check_years(timeline.read(max(self._plan.horizon, manifest.horizon) - 1, 1)[0])
                return timeline
            walls, _ = timeline.read(-manifest.context, self._steps)
            check_years(walls)
        except TimestampError as error:
            field = "start_timestamp" if entry.timestamps is None else "timestamps"
            raise InvalidInputError(str(error), param=f"{place}.{field}") from None
        if manifest.calendar is not None and self._calendar is not None:
            self._calendar[row] = manifest.calendar.encode(walls)
        return timeline


def _check_type(entry: SeriesInput, place: str) -> None:
    found = "multivariate" if is_multivariate(entry.series) else "univariate"
    if entry.type != f"{found}_time_series":
        form = "[time][channel]" if found == "univariate" else "[time]"
        raise InvalidInputError(
            f"series is {'[time]' if found == 'univariate' else '[time][channel]'}, and "
            f"{entry.type} is {form}",
            param=f"{place}.type",
        )
