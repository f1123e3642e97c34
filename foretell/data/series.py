"""Regular series from rows in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from foretell.data.errors import DataError
from foretell.data.pieces import Filler, Piece
from foretell.data.problems import Problems
from foretell.data.regular import remedy
from foretell.data.rows import Rows
from foretell.data.table import Table
from foretell.timeaxis.errors import FrequencyError, RowError, TimestampError
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.gaps import Missing
from foretell.timeaxis.regularity import infer, origin
from foretell.timeaxis.timestamps import Offsets, Timestamps, shown
from foretell.timeaxis.zones import moments_of, offsets_at

_CLOCK_CHANGE = "; if a local clock changes, name its zone, such as --time-zone Europe/Berlin"
_NOT_THAT_CLOCK = "; correct it, or leave --time-zone out where the clock never changes"
# Share of missing values of a channel above which a note names it.
_MANY = 0.2
_HOUR = np.timedelta64(1, "h")


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
        missing: Treatment of missing rows and values. With `mask` they stay missing: tables mark
            them as filled, and have a gap of no more than `max_gap` steps.
        max_gap: Most consecutive steps that are filled.
        problems: Collector of the problems.
        notes: Notes for the reader on how the data was read, to be extended.
    """

    missing: Missing
    max_gap: int
    problems: Problems
    notes: list[str]
    _done: Counter[str] = field(default_factory=Counter)
    # Rows between two steps that have no value, and rows of covariates after the last values.
    _passed_over: list[NDArray[np.intp]] = field(default_factory=list)
    _ahead: list[NDArray[np.intp]] = field(default_factory=list)

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
        with_values = longest[rows.have_values(longest)]
        clock = self._clock(rows, with_values, frequency, zone)
        tables = [
            table
            for place, part in enumerate(parts)
            if len(part)
            for table in self._series(rows, part, place, clock)
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
        self, rows: Rows, part: NDArray[np.intp], series: int, clock: Clock
    ) -> Iterator[Table]:
        steps = self._steps(rows, part, clock)
        if not len(steps):
            return
        if (np.diff(steps) < np.timedelta64(0)).any():
            self._done["sorted"] += 1
            order = np.argsort(steps, kind="stable")
            part, steps = part[order], steps[order]
        part, steps = self._without_repeats(rows, part, steps, sub_daily=clock.frequency.sub_daily)
        has_values = rows.have_values(part)
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
        end = self._end(rows, part)
        values = rows.columns.values[part]
        filler = self._filler(rows)
        if self.missing == "error":
            self._refuse_gaps(rows, part, steps, places, clock)
            pieces = [Piece(places[:end], values[:end])]
        else:
            pieces = list(filler.pieces(places[:end], values[:end]))
            self._count(pieces, places[:end], len(rows.columns.channels))
        own = None if rows.static is None else rows.static[series]
        for piece in pieces:
            table = self._table(piece, start, rows, clock, part, places)
            ahead = None
            if end < len(part) and piece.steps[-1] == places[end - 1]:
                ahead = filler.ahead(piece, places[end:], values[end:, filler.channels :])
            yield replace(table, series=rows.names[series], static=own, ahead=ahead)

    def _filler(self, rows: Rows) -> Filler:
        columns = rows.columns
        return Filler(self.missing, self.max_gap, columns.held, len(columns.channels))

    def _end(self, rows: Rows, part: NDArray[np.intp]) -> int:
        """The number of rows up to the last one with a value to forecast.

        Later rows, if there are future covariates, have no values yet.
        """
        known = np.flatnonzero(rows.have_values(part, rows.columns.targets))
        if not rows.columns.covariates.future or not len(known):
            return len(part)
        end = int(known[-1]) + 1
        if end < len(part):
            self._ahead.append(part[end:])
        return end

    def _count(self, pieces: Sequence[Piece], places: NDArray[np.int64], channels: int) -> None:
        if self.missing == "mask":
            return
        self._done["lost"] += len(places)
        for steps, values, empty in pieces:
            self._done["lost"] -= int(np.isin(places, steps).sum())
            self._done["values"] += values[:, :channels].size
            self._done["codes"] += values[:, channels:].size
            if empty is not None:
                self._done["filled"] += int(empty[:, :channels].sum())
                self._done["held"] += int(empty[:, channels:].sum())
        self._done["split"] += max(len(pieces) - 1, 0)

    def _without_repeats(
        self, rows: Rows, part: NDArray[np.intp], steps: Timestamps, *, sub_daily: bool
    ) -> tuple[NDArray[np.intp], Timestamps]:
        repeats = np.append(False, np.diff(steps) == np.timedelta64(0))
        if not repeats.any():
            return part, steps
        values = rows.columns.values[part]
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

    def _table(
        self,
        piece: Piece,
        start: np.datetime64,
        rows: Rows,
        clock: Clock,
        part: NDArray[np.intp],
        places: NDArray[np.int64],
    ) -> Table:
        own = piece.steps
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
        channels = rows.columns.channels
        values, codes = np.split(piece.values, [len(channels)], axis=1)
        empty: list[NDArray[np.bool_] | None] = [None, None]
        if piece.empty is not None:
            parts = np.split(piece.empty, [len(channels)], axis=1)
            empty = [part if part.any() else None for part in parts]
        table = Table(walls, values, channels, clock.frequency, offsets, filled=empty[0])
        if not codes.shape[1]:
            return table
        return replace(table, covariates=codes, covariates_filled=empty[1])

    def _report_missing(self, rows: Rows) -> None:
        """Report missing values as problems, or note channels that miss many."""
        columns = rows.columns
        missing = columns.missing.copy()
        for passed in self._passed_over:
            missing[passed] = False
            self._done["empty"] += len(passed)
        for ahead in self._ahead:
            missing[ahead, : len(columns.channels)] = False
            self._done["ahead"] += len(ahead)
        # The channels of a category have one column.
        by_source = dict(zip(columns.sources, missing.T, strict=True))
        for name, empty in by_source.items():
            if self.missing == "error" and empty.any():
                walls, remedy = (
                    rows.moments.walls,
                    "--missing interpolate or --missing ffill fills it",
                )
                if not empty.all() and walls[empty].min() > walls[~empty].max():
                    remedy += "; --future-covariates names columns that are known for longer"
                self.problems.add(f"no value; {remedy}", rows.labels[empty], name)
            elif self.missing != "mask" and empty.mean() > _MANY:
                remedy = "--channels leaves it out" if name in columns.channels else "leave it out"
                self.notes.append(f"{name} misses {empty.mean():.0%} of its values: {remedy}")

    def _add_notes(self) -> None:
        gaps = f"longer than {self.max_gap} steps (--max-gap)"
        if count := self._done["filled"]:
            total = self._done["values"]
            self.notes.append(
                f"filled in: {count:,} of {total:,} values ({count / total:.1%}), which histories "
                "read and errors leave out"
            )
        if count := self._done["held"]:
            total = self._done["codes"]
            self.notes.append(f"filled in: {count:,} of {total:,} covariates ({count / total:.1%})")
        for key, one, several in (
            ("ahead", "the last row has covariates alone: it is of the future", "{} rows after the "
             "last values have covariates alone: they are of the future"),
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
