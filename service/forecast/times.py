"""The times of a series: its frequency, its clock, and the time of each step.

A *step* of a series is a time on its clock. It is the wall-clock time, or the moment in UTC if the
clock may change between steps of equal duration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar
from zoneinfo import ZoneInfo

import numpy as np
import orjson
from numpy.typing import NDArray

from foretell.service.errors import InvalidInputError
from foretell.timeaxis import timestamps, zones
from foretell.timeaxis.errors import FrequencyError, RowError, TimestampError
from foretell.timeaxis.frequency import MONTHS_IN, Frequency
from foretell.timeaxis.regularity import first_irregularity, origin
from foretell.timeaxis.timestamps import Offsets, Timestamp, Timestamps, offset_suffix, render
from foretell.timeaxis.zones import moments_of, offsets_at, offsets_of

# Wall-clock times `[time]` and their UTC offset: one, one for each time, or None if unknown.
Reading = tuple[Timestamps, timedelta | Offsets | None]

# Names of units in KServe's time-series API, which has no multiples.
_KSERVE_NAMES = {*"STHDWMQY", "second", "minute", "hour", "day", "week", "month", "quarter", "year"}
IRREGULAR = {
    "gap": "steps are missing before it",
    "duplicate": "it repeats the one before it",
    "order": "it goes back in time",
    "misaligned": "it lies between two steps",
}


@dataclass(frozen=True)
class FixedClock:
    """A clock that never changes, with its UTC offset if known."""

    offset: timedelta | None
    varies: ClassVar = False

    def read(self, steps: Timestamps, first: int) -> Reading:  # noqa: ARG002 - as other clocks
        """Read the clock at steps `[time]`, from row `first` on."""
        return steps, self.offset


@dataclass(frozen=True, eq=False)
class ListedClock:
    """A clock with a known UTC offset for each row of the history; later rows have the last one."""

    # `[rows]`.
    offsets: Offsets
    # Whether steps are moments in UTC.
    in_utc: bool
    varies: ClassVar = True

    def read(self, steps: Timestamps, first: int) -> Reading:
        rows = np.arange(first, first + len(steps))
        offsets = self.offsets[np.clip(rows, 0, len(self.offsets) - 1)]
        return (steps + offsets if self.in_utc else steps), offsets


@dataclass(frozen=True)
class ZoneClock:
    """The clock of a time zone; with `in_utc` steps are moments in UTC."""

    zone: ZoneInfo
    in_utc: bool
    varies: ClassVar = True

    def read(self, steps: Timestamps, first: int) -> Reading:  # noqa: ARG002 - as other clocks
        if not self.in_utc:
            return steps, offsets_of(steps, self.zone)
        offsets = offsets_at(steps, self.zone)
        return steps + offsets, offsets


Clock = FixedClock | ListedClock | ZoneClock


@dataclass(frozen=True)
class Timeline:
    """The times of a history and of later steps.

    `start` is the step of row `row`; the first forecast step comes after `rows` rows.
    """

    frequency: Frequency
    start: np.datetime64
    row: int
    rows: int
    clock: Clock

    def read(self, first: int, count: int) -> Reading:
        """Wall-clock times `[count]` and their UTC offsets, from step `first` on.

        Step 0 is the first forecast step. TimestampError: a zone's clock is beyond the year 9999.
        """
        row = self.rows + first
        counts = np.arange(row - self.row, row - self.row + count, dtype=np.int64)
        return self.clock.read(self.frequency.at(self.start, counts), row)

    def moments(self, first: int, count: int) -> NDArray[np.int64]:
        """As `read`, in microseconds since 1970: in UTC if the offset is known."""
        return in_microseconds(*self.read(first, count))

    @property
    def spacing(self) -> tuple[int, int] | None:
        """The moment of the last row and the distance of all others; None if distances differ."""
        length = self.frequency.microseconds
        if length is None or not isinstance(self.clock, FixedClock):
            return None
        moment = int(self.start.astype("datetime64[us]").astype(np.int64))
        if self.clock.offset is not None:
            moment -= self.clock.offset // timedelta(microseconds=1)
        return moment + (self.rows - 1 - self.row) * length, length

    def labels(self, first: int, count: int) -> list[str]:
        """As `read`, in ISO 8601."""
        return render(*self.read(first, count))


def in_microseconds(walls: Timestamps, offsets: timedelta | Offsets | None) -> NDArray[np.int64]:
    """A reading of a clock in microseconds since 1970, in UTC if the offset is known."""
    moments = walls if offsets is None else walls - np.asarray(offsets, "timedelta64[us]")
    return moments.astype("datetime64[us]").view(np.int64)


def check_frequency(text: str, frequency: Frequency, path: str) -> None:
    """Check that a request names the model's frequency.

    A pandas alias must name all of it; KServe's letters and words only name its unit.
    """
    try:
        given = Frequency.parse(text)
    except FrequencyError as error:
        raise InvalidInputError(str(error), param=path) from None
    names_unit = text in _KSERVE_NAMES and given.kserve == frequency.kserve
    if not names_unit and not given.agrees_with(frequency):
        raise InvalidInputError(
            f"expected the model's frequency, {frequency}, got {text[:40]!r}", param=path
        )


def find_zone(name: str, path: str) -> ZoneInfo:
    """The time zone with a name in the IANA database, or InvalidInputError."""
    try:
        return zones.find_zone(name)
    except TimestampError as error:
        raise InvalidInputError(str(error), param=path) from None


def read_timeline(
    start: str | None,
    listed: Sequence[str] | None,
    zone: ZoneInfo | None,
    frequency: Frequency,
    rows: int,
    path: str,
) -> Timeline | None:
    """Read the times of an input: `start` of its first row, or `listed` of all; None without both.

    TimestampError: a time of the zone's clock is outside the years 1 to 9999.
    """
    if listed is None:
        if start is None:
            return None
        return timeline_from(start, zone, frequency, rows, f"{path}.start_timestamp")
    check_listed(start, listed, rows, path)
    path = f"{path}.timestamps"
    if zone is None:
        regular = timeline_from(listed[0], None, frequency, rows, f"{path}[0]")
        if _writes(regular, listed):
            return regular

    def path_of(row: int) -> str:
        return f"{path}[{row}]"

    steps, clock, _ = read_listed(listed, zone, frequency, path_of)
    return timeline_of(steps, clock, frequency, path_of, listed)


def check_listed(start: str | None, listed: Sequence[str], rows: int, path: str) -> None:
    """Check the number of `listed` times, and that `start`, if given, is the first one."""
    if start is not None:
        first = parse_timestamp(start, f"{path}.start_timestamp")
        if listed and first != parse_timestamp(listed[0], f"{path}.timestamps[0]"):
            raise InvalidInputError(
                f"{start!r} is not the first of timestamps, {listed[0]!r}",
                param=f"{path}.start_timestamp",
            )
    if len(listed) != rows:
        raise InvalidInputError(
            f"expected {rows} timestamps, one for every row of series, got {len(listed)}",
            param=f"{path}.timestamps",
        )


def read_listed(
    listed: Sequence[str],
    zone: ZoneInfo | None,
    frequency: Frequency,
    path: Callable[[int], str],
) -> tuple[Timestamps, Clock, Offsets | None]:
    """The steps `[rows]` of `listed` times, their clock, and their UTC offsets as written."""
    parsed = [parse_timestamp(text, path(row)) for row, text in enumerate(listed)]
    walls = np.array([stamp.wall for stamp in parsed])
    offsets = _offsets(parsed, listed, path)
    steps, clock = walls, _clock(offsets, parsed[0], zone, frequency)
    if isinstance(clock, ZoneClock):
        steps = steps_in_zone(walls, offsets, clock, frequency, path)
    elif isinstance(clock, ListedClock) and clock.in_utc:
        steps = walls - clock.offsets
    return steps, clock, offsets


def _writes(timeline: Timeline, listed: Sequence[str]) -> bool:
    """Whether the texts are exactly the labels of a timeline, and need no parsing."""
    try:
        labels = timeline.labels(-timeline.rows, timeline.rows)
    except TimestampError:
        return False
    if listed[0].endswith("Z"):
        labels = [label.removesuffix("+00:00") + "Z" for label in labels]
    return labels == listed


def _offsets(
    parsed: list[Timestamp], listed: Sequence[str], path: Callable[[int], str]
) -> Offsets | None:
    first = parsed[0].utc_offset
    for row, stamp in enumerate(parsed):
        if (stamp.utc_offset is None) != (first is None):
            raise InvalidInputError(
                "expected a UTC offset at every timestamp or at none, got "
                f"{listed[0]!r} and {listed[row]!r}",
                param=path(row),
            )
    return None if first is None else np.array([stamp.utc_offset for stamp in parsed], "m8[us]")


def _clock(
    offsets: Offsets | None, first: Timestamp, zone: ZoneInfo | None, frequency: Frequency
) -> Clock:
    if zone is not None:
        return ZoneClock(zone, in_utc=frequency.sub_daily)
    if offsets is None or (offsets == offsets[0]).all():
        return FixedClock(first.utc_offset)
    return ListedClock(offsets, in_utc=frequency.sub_daily)


def timeline_from(
    text: str, zone: ZoneInfo | None, frequency: Frequency, rows: int, path: str
) -> Timeline:
    """The times of a history, from `text`, the time of its first row.

    InvalidInputError: the text is not a timestamp, or no step falls on it. TimestampError: the
    zone's clock is outside the years 1 to 9999.
    """
    stamp = parse_timestamp(text, path)
    clock: Clock
    if zone is None:
        clock, step = FixedClock(stamp.utc_offset), stamp.wall
    else:
        clock = ZoneClock(zone, in_utc=frequency.sub_daily)
        offsets = None if stamp.utc_offset is None else np.array([stamp.utc_offset], "m8[us]")
        step = steps_in_zone(np.array([stamp.wall]), offsets, clock, frequency, lambda _: path)[0]
    check_first(step, clock, frequency, path)
    return Timeline(frequency, step, 0, rows, clock)


def timeline_of(
    steps: Timestamps,
    clock: Clock,
    frequency: Frequency,
    path: Callable[[int], str],
    listed: Sequence[str] | None = None,
) -> Timeline:
    """The times of a history, from its steps `[rows]`; `listed` has their texts, if any."""
    check_first(steps[0], clock, frequency, path(0))
    if (wrong := first_irregularity(frequency, steps)) is not None:
        step, hint = steps[wrong.index], ""
        given = repr(listed[wrong.index]) if listed else shown_step(step, clock, wrong.index)
        is_hour_off = abs(step - wrong.expected) == np.timedelta64(1, "h")
        if listed and is_hour_off and clock == FixedClock(None):
            hint = "; where a local clock changes, times need their UTC offsets, or `time_zone`"
        raise InvalidInputError(
            f"expected {shown_step(wrong.expected, clock, wrong.index)} (frequency {frequency}), "
            f"got {given}: {IRREGULAR[wrong.kind]}{hint}",
            param=path(wrong.index),
        )
    row = origin(frequency, steps)
    return Timeline(frequency, steps[row], row, len(steps), clock)


def steps_in_zone(
    walls: Timestamps,
    offsets: Offsets | None,
    clock: ZoneClock,
    frequency: Frequency,
    path: Callable[[int], str],
) -> Timestamps:
    """Steps `[time]` of timestamps on the clock of a time zone.

    `offsets` are the UTC offsets that the `walls` were written with, if any. Without them a time is
    on the zone's clock, which must show it exactly once. TimestampError: as `read_timeline`.
    """
    if offsets is None:
        if not clock.in_utc:
            return walls
        step = np.diff(frequency.steps_from(walls[0], 2))[0]
        try:
            return moments_of(walls, clock.zone, step)
        except RowError as error:
            raise InvalidInputError(str(error), param=path(error.row)) from None
    moments = walls - offsets
    return moments if clock.in_utc else moments + offsets_at(moments, clock.zone)


def check_first(step: np.datetime64, clock: Clock, frequency: Frequency, path: str) -> None:
    """Check that a history may begin at a step, given the frequency's edge, anchor or weekdays."""
    if frequency.sub_daily:
        return
    nearest = frequency.steps_from(step, 1)[0]
    if nearest != step:
        hint = ""
        if frequency.edge is not None and frequency.unit in MONTHS_IN:
            same = shown_step(_same_period(step, frequency), clock, 0)
            unit = frequency.unit.name.lower()
            hint = f"; send the {frequency.day_words} of each {unit}, here {same}"
        raise InvalidInputError(
            f"no step of frequency {frequency} falls on it; the next one is "
            f"{shown_step(nearest, clock, 0)}{hint}",
            param=path,
        )


def _same_period(step: np.datetime64, frequency: Frequency) -> np.datetime64:
    """The step in the month, quarter or year of a time."""
    starts, size = frequency.edge == "start", MONTHS_IN[frequency.unit]
    month, day = step.astype("M8[M]"), step.astype("M8[D]")
    ahead = ((frequency.anchor or (1 if starts else 12)) - 1 - int(month.astype(np.int64))) % size
    month = month + np.timedelta64(ahead - size if starts and ahead else ahead, "M")
    (edge,) = frequency.edge_days(np.array([month]))
    moment: np.datetime64 = edge + (step - day)
    return moment


def parse_timestamp(text: str, path: str) -> Timestamp:
    try:
        return timestamps.parse(text)
    except TimestampError as error:
        raise InvalidInputError(str(error), param=path) from None


def shown_step(step: np.datetime64, clock: Clock, row: int) -> str:
    walls, offset = clock.read(np.array([step]), row)
    if isinstance(offset, np.ndarray):
        offset = timedelta(microseconds=int(offset.astype("m8[us]")[0].astype(np.int64)))
    return timestamps.shown(walls[0]) + ("" if offset is None else offset_suffix(offset))


def write_labels(timeline: Timeline, steps: int) -> bytes:
    """`Timeline.labels(0, steps)` as a JSON list."""
    walls, offset = timeline.read(0, steps)
    if isinstance(offset, np.ndarray):
        return orjson.dumps(render(walls, offset))
    try:
        # This takes a quarter of the time, as it makes no Python objects.
        labels = orjson.dumps(walls, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:
        # orjson refuses the last day of the year 9999.
        return orjson.dumps(render(walls, offset))
    if offset is None:
        return labels
    end = offset_suffix(offset).encode() + b'"'
    return labels[:-1].replace(b'",', end + b",")[:-1] + end + b"]"
