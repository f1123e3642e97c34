"""Regular series from rows in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from foretell.data.errors import DataError
from foretell.data.moments import Moments
from foretell.data.problems import Problems
from foretell.data.regular import remedy
from foretell.data.table import Table
from foretell.timeaxis.errors import FrequencyError, RowError, TimestampError
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.gaps import Filling, filled
from foretell.timeaxis.regularity import infer, origin
from foretell.timeaxis.timestamps import Offsets, Timestamps, shown
from foretell.timeaxis.zones import moments_of, offsets_at

_CLOCK_CHANGE = "; if a local clock changes, name its zone, such as --time-zone Europe/Berlin"
_NOT_THAT_CLOCK = "; correct it, or leave --time-zone out where the clock never changes"
# Share of missing values of a channel above which a note names it.
_MANY = 0.2
_HOUR = np.timedelta64(1, "h")
# Steps of a part without holes, its values, and whether each was missing (None if none was).
_Piece = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_] | None]


class Rows(NamedTuple):
    """The rows of a table, with their columns interpreted.

    Attributes:
        labels: `[rows]`, numbers of the rows in messages.
        moments: Times of the rows.
        series: `[rows]`, the number of each row's series.
        names: Names of the series.
        values: `[rows, channels]`, NaN where a value is missing or wrong.
        missing: `[rows, channels]`, whether a value is missing.
        channels: Names of the channels.
        time_column: Name of the column of times.
    """

    labels: NDArray[np.int64]
    moments: Moments
    series: NDArray[np.int64]
    names: list[str]
    values: NDArray[np.float64]
    missing: NDArray[np.bool_]
    channels: tuple[str, ...]
    time_column: str


@dataclass
class Clock:
    """The steps of the series and their clock.

    Attributes:
        frequency: Spacing of the steps.
        zone: Time zone of the clock, if it is known.
        in_utc: Whether steps are equal in UTC, while the local clock changes.
        offset: The UTC offset of all times, if they were written with one.
    """

    frequency: Frequency
    zone: ZoneInfo | None = None
    in_utc: bool = False
    offset: timedelta | None = None


@dataclass
class Assembly:
    """Makes regular tables from rows.

    Attributes:
        missing: Treatment of missing rows and values.
        max_gap: Most consecutive steps that are filled.
        problems: Collector of the problems.
        notes: Notes for the reader on how the data was read, to be extended.
    """

    missing: Filling
    max_gap: int
    problems: Problems
    notes: list[str]
    _done: Counter[str] = field(default_factory=Counter)
    # Rows between two steps that have no value.
    _passed_over: list[NDArray[np.intp]] = field(default_factory=list)

    def tables(self, rows: Rows, frequency: Frequency | None, zone: ZoneInfo | None) -> list[Table]:
        """Regular tables without holes, those of a series in the order of time.

        Args:
            rows: The rows.
            frequency: Spacing of the rows; the usual one of the longest series if not given.
            zone: Time zone of the clock, if it is known.

        Raises:
            DataError: the times have no frequency. Problems of rows are added to `problems`.
        """
        order = np.argsort(rows.series, kind="stable")
        starts = np.searchsorted(rows.series[order], np.arange(len(rows.names)))
        there = ~np.isnat(rows.moments.walls)
        if not there.any() or not rows.names:
            return []
        # The first part is empty, or rows without a series.
        parts = [part[there[part]] for part in np.split(order, starts)[1:]]
        parts = [self._ascending(rows.moments.walls, part) for part in parts]
        longest = max(parts, key=len)
        with_values = longest[~rows.missing[longest].all(axis=1)]
        clock = self._clock(rows, with_values, frequency, zone)
        tables = [
            table
            for name, part in zip(rows.names, parts, strict=True)
            if len(part)
            for table in self._series(rows, part, name, clock)
        ]
        self._report_missing(rows)
        self._add_notes()
        return tables

    def _ascending(self, walls: Timestamps, part: NDArray[np.intp]) -> NDArray[np.intp]:
        """The rows of a series; reversed if the newest comes first."""
        steps = np.diff(walls[part])
        backward = np.count_nonzero(steps < np.timedelta64(0))
        if backward > np.count_nonzero(steps > np.timedelta64(0)):
            self._done["turned"] += 1
            return part[::-1]
        return part

    def _clock(
        self,
        rows: Rows,
        longest: NDArray[np.intp],
        frequency: Frequency | None,
        zone: ZoneInfo | None,
    ) -> Clock:
        walls, offsets = rows.moments.walls, rows.moments.offsets
        try:
            if zone is None and offsets is not None:
                known = offsets[~np.isnat(walls)]
                if (known == known[:1]).all():
                    spacing = frequency or infer(np.unique(walls[longest]))
                    return Clock(spacing, offset=known[0].astype("m8[us]").item())
            if offsets is None:
                spacing = frequency or infer(np.unique(walls[longest]))
                return Clock(spacing, zone, zone is not None and spacing.sub_daily)
            moments = (walls - offsets)[longest]
            spacing = frequency or infer(np.unique(moments))
            if spacing.sub_daily:
                return Clock(spacing, zone, in_utc=True)
            local = walls[longest] if zone is None else moments + offsets_at(moments, zone)
            return Clock(frequency or infer(np.unique(local)), zone)
        except (FrequencyError, TimestampError) as error:
            hint = "" if frequency else "; --frequency sets the spacing"
            raise DataError(f"column {rows.time_column!r}: {error}{hint}") from None

    def _steps(self, rows: Rows, part: NDArray[np.intp], clock: Clock) -> Timestamps:
        walls, offsets = rows.moments.walls[part], rows.moments.offsets
        try:
            if offsets is None:
                if not clock.in_utc or clock.zone is None:
                    return walls
                step = np.diff(clock.frequency.steps_from(walls[0], 2))[0]
                return moments_of(walls, clock.zone, step)
            moments = walls - offsets[part]
            if clock.in_utc:
                return moments
            return walls if clock.zone is None else moments + offsets_at(moments, clock.zone)
        except RowError as error:
            self.problems.add(
                f"{error}{_NOT_THAT_CLOCK}", [rows.labels[part[error.row]]], rows.time_column
            )
        except TimestampError as error:
            self.problems.add(str(error), column=rows.time_column)
        return walls[:0]

    def _series(
        self, rows: Rows, part: NDArray[np.intp], name: str, clock: Clock
    ) -> Iterator[Table]:
        steps = self._steps(rows, part, clock)
        if not len(steps):
            return
        if (np.diff(steps) < np.timedelta64(0)).any():
            self._done["sorted"] += 1
            order = np.argsort(steps, kind="stable")
            part, steps = part[order], steps[order]
        part, steps = self._without_repeats(rows, part, steps, sub_daily=clock.frequency.sub_daily)
        has_values = ~rows.missing[part].all(axis=1)
        known = steps[has_values] if has_values.any() else steps
        start = known[origin(clock.frequency, known)]
        places, is_step = clock.frequency.steps_of(steps, start)
        if 2 * np.count_nonzero(is_step) < len(steps):
            # The first row may be wrong.
            other = clock.frequency.steps_of(steps, known[len(known) // 2])
            if np.count_nonzero(other[1]) > np.count_nonzero(is_step):
                start, (places, is_step) = known[len(known) // 2], other
        kept = is_step | has_values
        if not kept.all():
            self._passed_over.append(part[~kept])
            part, steps, places, is_step = part[kept], steps[kept], places[kept], is_step[kept]
        if not is_step.all():
            self._refuse_steps(rows, part[~is_step], steps[~is_step], clock)
            return
        if self.missing == "error":
            self._refuse_gaps(rows, part, steps, places, clock)
            pieces: list[_Piece] = [(places, rows.values[part], None)]
        else:
            pieces = list(self._pieces(places, rows.values[part]))
        for own, values, empty in pieces:
            self._done["values"] += values.size
            yield self._table(own, values, empty, start, name, rows, clock, part, places)

    def _without_repeats(
        self, rows: Rows, part: NDArray[np.intp], steps: Timestamps, *, sub_daily: bool
    ) -> tuple[NDArray[np.intp], Timestamps]:
        repeats = np.append(False, np.diff(steps) == np.timedelta64(0))
        if not repeats.any():
            return part, steps
        values = rows.values[part]
        again = np.flatnonzero(repeats)
        again = again[np.argsort(rows.labels[part[again]])]
        same = (
            (values[again] == values[again - 1])
            | (np.isnan(values[again]) & np.isnan(values[again - 1]))
        ).all(axis=1)
        self._done["repeated"] += int(same.sum())
        if not same.all():
            local = rows.moments.offsets is None and sub_daily
            self.problems.add(
                f"{shown(steps[again[~same][0]])} has another row, with other values; take one of "
                f"them out{_CLOCK_CHANGE if local else ''}",
                rows.labels[part[again[~same]]],
                rows.time_column,
            )
        return part[~repeats], steps[~repeats]

    def _refuse_steps(
        self, rows: Rows, part: NDArray[np.intp], steps: Timestamps, clock: Clock
    ) -> None:
        order = np.argsort(rows.labels[part])
        self.problems.add(
            f"{shown(steps[order[0]])}: no step of frequency {clock.frequency} falls on it; "
            f"{remedy(rows.moments, rows.series, clock.frequency, clock.zone, part)}",
            rows.labels[part[order]],
            rows.time_column,
        )

    def _refuse_gaps(
        self,
        rows: Rows,
        part: NDArray[np.intp],
        steps: Timestamps,
        places: NDArray[np.int64],
        clock: Clock,
    ) -> None:
        gaps = np.flatnonzero(np.diff(places) > 1) + 1
        gaps = gaps[np.argsort(rows.labels[part[gaps]])]
        if not len(gaps):
            return
        expected = np.array([clock.frequency.steps_from(steps[gap - 1], 2)[1] for gap in gaps])
        local = clock.zone is None and rows.moments.offsets is None
        may_be_clock = local and (steps[gaps] - expected == _HOUR).any()
        is_long = np.diff(places).max() > self.max_gap + 1
        split = f"; more than {self.max_gap} in a row (--max-gap) split the series"
        self.problems.add(
            f"{shown(steps[gaps[0]])}: rows are missing before it; at a frequency of "
            f"{clock.frequency} expected {shown(expected[0])}; --missing interpolate or --missing "
            f"ffill fills them{split if is_long else ''}{_CLOCK_CHANGE if may_be_clock else ''}",
            rows.labels[part[gaps]],
            rows.time_column,
        )

    def _pieces(self, places: NDArray[np.int64], values: NDArray[np.float64]) -> Iterator[_Piece]:
        """Parts without holes: steps, filled values, and whether each value was missing."""
        far = np.flatnonzero(np.diff(places) > self.max_gap + 1) + 1
        pieces = 0
        for own, rows in zip(np.split(places, far), np.split(values, far), strict=True):
            steps = np.arange(own[0], own[-1] + 1)
            full = np.full((len(steps), values.shape[1]), np.nan)
            full[own - own[0]] = rows
            self._done["lost"] += len(own)
            for start, first, end in self._stretches(np.isnan(full)):
                pieces += 1
                self._done["lost"] -= int(np.isin(own, steps[first:end]).sum())
                empty = np.isnan(full[first:end])
                self._done["filled"] += int(empty.sum())
                # Values of rows before the first are carried forward.
                whole = filled(full[start:end], self.missing)[first - start :]
                yield steps[first:end], whole, empty if empty.any() else None
        self._done["split"] += max(pieces - 1, 0)

    def _stretches(self, empty: NDArray[np.bool_]) -> Iterator[tuple[int, int, int]]:
        """Start, first complete row and end of the rows between holes."""
        hole = np.zeros(len(empty), np.bool_)
        for column in np.flatnonzero(empty.any(axis=0)):
            for start, end in _runs(empty[:, column]):
                if end - start > self.max_gap:
                    hole[start:end] = True
        for start, end in _runs(~hole):
            known = ~empty[start:end]
            first = start
            if self.missing == "ffill":
                # There is no value to carry forward before the first one.
                first += int(known.argmax(axis=0).max())
            if known.any(axis=0).all() and first < end:
                yield start, first, end

    def _table(
        self,
        own: NDArray[np.int64],
        values: NDArray[np.float64],
        empty: NDArray[np.bool_] | None,
        start: np.datetime64,
        name: str,
        rows: Rows,
        clock: Clock,
        part: NDArray[np.intp],
        places: NDArray[np.int64],
    ) -> Table:
        steps = clock.frequency.steps_from(start, len(own), first=int(own[0]))
        walls, offset = steps, clock.offset
        offsets: Offsets | timedelta | None = offset
        if clock.in_utc and clock.zone is not None:
            offsets = offsets_at(steps, clock.zone)
            walls = steps + offsets
        elif rows.moments.offsets is not None and offset is None and clock.zone is None:
            # A filled row has the offset of the row before it.
            before = np.searchsorted(places, own, side="right") - 1
            offsets = rows.moments.offsets[part[before]]
            walls = steps + offsets if clock.in_utc else steps
        if isinstance(offsets, np.ndarray) and (offsets == offsets[0]).all():
            offsets = offsets[0].astype("m8[us]").item()
        return Table(walls, values, rows.channels, clock.frequency, offsets, name, empty)

    def _report_missing(self, rows: Rows) -> None:
        """Report missing values as problems, or note channels that miss many."""
        missing = rows.missing.copy()
        for passed in self._passed_over:
            missing[passed] = False
            self._done["empty"] += len(passed)
        for channel, empty in zip(rows.channels, missing.T, strict=True):
            if self.missing == "error" and empty.any():
                self.problems.add(
                    "no value; --missing interpolate or --missing ffill fills it",
                    rows.labels[empty],
                    channel,
                )
            elif empty.mean() > _MANY:
                self.notes.append(
                    f"{channel} misses {empty.mean():.0%} of its values: --channels leaves it out"
                )

    def _add_notes(self) -> None:
        gaps = f"longer than {self.max_gap} steps (--max-gap)"
        if count := self._done["filled"]:
            total = self._done["values"]
            self.notes.append(
                f"filled in: {count:,} of {total:,} values ({count / total:.1%}), which histories "
                "read and errors leave out"
            )
        for key, one, several in (
            ("turned", "a series came newest first and was turned round", "{} series came newest "
             "first and were turned round"),
            ("sorted", "a series was not in the order of time and was sorted", "{} series were not "
             "in the order of time and were sorted"),
            ("repeated", "a row repeats another and is left out", "{} rows repeat another and are "
             "left out"),
            ("empty", "a row between two steps has no value and is left out", "{} rows between two "
             "steps have no value and are left out"),
            ("split", f"a hole {gaps} splits a series", f"{{}} holes {gaps} split series"),
            ("lost", "a row in such a hole, or before the first value, is left out", "{} rows in "
             "such holes, or before the first value, are left out"),
        ):  # fmt: skip
            if count := self._done[key]:
                self.notes.append(one if count == 1 else several.format(f"{count:,}"))


def _runs(flags: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Start and end of each run of set flags."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
