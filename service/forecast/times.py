"""Whether a request means the model's frequency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from zoneinfo import ZoneInfo

import numpy as np
import orjson

from foretell.bundle import timestamps
from foretell.bundle.errors import FrequencyError, RowError, TimestampError
from foretell.bundle.frequency import MONTHS_IN, Frequency
from foretell.bundle.regularity import first_irregularity, origin
from foretell.bundle.timestamps import Offsets, Timestamp, Timestamps, offset_suffix, render
from foretell.bundle.zones import moments_of, offsets_at
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.clocks import (
    Clock,
    FixedClock,
    ListedClock,
    Reading,
    ZoneClock,
)

# What KServe's time-series API lets a caller say: a unit, and no multiple of it.
_KSERVE_NAMES = {*"STHDWMQY", "second", "minute", "hour", "day", "week", "month", "quarter", "year"}


def check_frequency(text: str, frequency: Frequency, place: str) -> None:
    """Make sure that a request means the model's frequency.

    A pandas alias must say all of it; KServe's letters and words only name the model's unit.

    Raises:
        InvalidInputError: the text names no frequency, or another one.
    """
    try:
        given = Frequency.parse(text)
    except FrequencyError as error:
        raise InvalidInputError(str(error), param=place) from None
    names_unit = text in _KSERVE_NAMES and given.kserve == frequency.kserve
    if not names_unit and not given.agrees_with(frequency):
        raise InvalidInputError(
            f"expected the model's frequency, {frequency}, got {text[:40]!r}", param=place
        )


_IRREGULAR = {
    "gap": "steps are missing before it",
    "duplicate": "it repeats the one before it",
    "order": "it goes back in time",
    "misaligned": "it lies between two steps",
}


def read_timeline(
    start_timestamp: str | None,
    listed: Sequence[str] | None,
    zone: ZoneInfo | None,
    frequency: Frequency,
    rows: int,
    place: str,
) -> Timeline | None:
    """Read the times of a history.

    Args:
        start_timestamp: Time of the first row.
        listed: Time of every row.
        zone: Whose clock they are about, if the request says so.
        frequency: The model's.
        rows: Rows of the history.
        place: Where the input stands in the request, for errors.

    Returns:
        None if the request gives no times.

    Raises:
        InvalidInputError: a timestamp is malformed or not where the frequency puts it.
    """
    field = f"{place}.{'start_timestamp' if listed is None else 'timestamps'}"
    try:
        if listed is None:
            if start_timestamp is None:
                return None
            return timeline_from(start_timestamp, zone, frequency, rows, field)
        if start_timestamp is not None:
            _check_start(start_timestamp, listed, place)
        return _from_list(listed, zone, frequency, rows, field)
    except TimestampError as error:
        raise InvalidInputError(str(error), param=field) from None


def _check_start(start_timestamp: str, listed: Sequence[str], place: str) -> None:
    start = parse_timestamp(start_timestamp, f"{place}.start_timestamp")
    if listed and start != parse_timestamp(listed[0], f"{place}.timestamps[0]"):
        raise InvalidInputError(
            f"{start_timestamp!r} is not the first of timestamps, {listed[0]!r}",
            param=f"{place}.start_timestamp",
        )


def _from_list(
    listed: Sequence[str], zone: ZoneInfo | None, frequency: Frequency, rows: int, place: str
) -> Timeline:
    if len(listed) != rows:
        raise InvalidInputError(
            f"expected {rows} timestamps, one for every row of series, got {len(listed)}",
            param=place,
        )
    if zone is None:
        plain = timeline_from(listed[0], None, frequency, rows, f"{place}[0]")
        if _is_written_by(plain, listed):
            return plain
    parsed = [parse_timestamp(text, f"{place}[{row}]") for row, text in enumerate(listed)]
    walls = np.array([stamp.wall for stamp in parsed])
    offsets = _offsets(parsed, listed, place)
    steps, clock = walls, _clock(offsets, parsed[0], zone, frequency)
    if isinstance(clock, ZoneClock):
        steps = steps_in_zone(walls, offsets, clock, frequency, lambda row: f"{place}[{row}]")
    elif isinstance(clock, ListedClock) and clock.in_utc:
        steps = walls - clock.offsets
    return timeline_of(steps, clock, frequency, lambda row: f"{place}[{row}]", listed)


def _is_written_by(timeline: Timeline, listed: Sequence[str]) -> bool:
    """Whether the texts are those of a regular series, letter by letter: no need to read them."""
    try:
        labels = timeline.labels(-timeline.rows, timeline.rows)
    except TimestampError:
        return False
    if listed[0].endswith("Z"):
        labels = [label.removesuffix("+00:00") + "Z" for label in labels]
    return labels == listed


def _offsets(parsed: list[Timestamp], listed: Sequence[str], place: str) -> Offsets | None:
    """UTC offsets `[rows]`, if the timestamps have them."""
    first = parsed[0].utc_offset
    for row, stamp in enumerate(parsed):
        if (stamp.utc_offset is None) != (first is None):
            raise InvalidInputError(
                "expected a UTC offset at every timestamp or at none, got "
                f"{listed[0]!r} and {listed[row]!r}",
                param=f"{place}[{row}]",
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


@dataclass(frozen=True)
class Timeline:
    """The times of a history and what follows it.

    Attributes:
        frequency: The spacing of the steps.
        start: The step of one row of the history, as the clock takes it.
        row: That row.
        rows: Rows of the history; the first forecast step follows them.
        clock: Tells the wall-clock times of steps.
    """

    frequency: Frequency
    start: np.datetime64
    row: int
    rows: int
    clock: Clock

    def read(self, first: int, count: int) -> Reading:
        """Wall-clock times `[count]` from step `first` on, and their UTC offsets (see `Clock`).

        Step 0 is the first forecast one.

        Raises:
            TimestampError: a time lies beyond the year 9999 (of a time zone's clock alone).
        """
        row = self.rows + first
        steps = self.frequency.steps_from(self.start, count, first=row - self.row)
        return self.clock.read(steps, row)

    @property
    def varies(self) -> bool:
        """Whether its UTC offset may change."""
        return not isinstance(self.clock, FixedClock)

    def labels(self, first: int, count: int) -> list[str]:
        """The same as ISO 8601 texts.

        Raises:
            TimestampError: a time lies beyond the year 9999.
        """
        return timestamps.render(*self.read(first, count))


def timeline_from(
    text: str, zone: ZoneInfo | None, frequency: Frequency, rows: int, place: str
) -> Timeline:
    """The times of a history, from that of its first row.

    Args:
        text: The time.
        zone: Whose clock it is about, if the request says so.
        frequency: The model's.
        rows: Rows of the history.
        place: Where the text stands in the request.

    Raises:
        InvalidInputError: the text is no timestamp, or no step falls on it.
        TimestampError: the zone's clock lies outside the years 1 to 9999.
    """
    stamp = parse_timestamp(text, place)
    if zone is None:
        clock: Clock = FixedClock(stamp.utc_offset)
        step = stamp.wall
    else:
        clock = ZoneClock(zone, in_utc=frequency.sub_daily)
        walls = np.array([stamp.wall])
        offsets = None if stamp.utc_offset is None else np.array([stamp.utc_offset], "m8[us]")
        step = steps_in_zone(walls, offsets, clock, frequency, lambda _: place)[0]
    check_first(step, clock, frequency, place)
    return Timeline(frequency, step, 0, rows, clock)


def timeline_of(
    steps: Timestamps,
    clock: Clock,
    frequency: Frequency,
    place: Callable[[int], str],
    listed: Sequence[str] | None = None,
) -> Timeline:
    """The times of a history, from those of all its rows.

    Args:
        steps: `[rows]`, as the clock takes them.
        clock: Tells their wall-clock times.
        frequency: The model's.
        place: Where each stands in the request.
        listed: The texts that they came as, if they did.

    Raises:
        InvalidInputError: one is not where the frequency puts it.
    """
    check_first(steps[0], clock, frequency, place(0))
    if (wrong := first_irregularity(frequency, steps)) is not None:
        step, hint = steps[wrong.index], ""
        found = repr(listed[wrong.index]) if listed else shown_step(step, clock, wrong.index)
        is_hour_off = abs(step - wrong.expected) == np.timedelta64(1, "h")
        if listed and is_hour_off and clock == FixedClock(None):
            hint = "; where a local clock changes, times need their UTC offsets, or `time_zone`"
        raise InvalidInputError(
            f"expected {shown_step(wrong.expected, clock, wrong.index)} (frequency {frequency}), "
            f"got {found}: {_IRREGULAR[wrong.kind]}{hint}",
            param=place(wrong.index),
        )
    row = origin(frequency, steps)
    return Timeline(frequency, steps[row], row, len(steps), clock)


def steps_in_zone(
    walls: Timestamps,
    offsets: Offsets | None,
    clock: ZoneClock,
    frequency: Frequency,
    place: Callable[[int], str],
) -> Timestamps:
    """Steps `[time]`, as the clock takes them, of timestamps in any form.

    Args:
        walls: `[time]`, as they were written.
        offsets: `[time]`, the UTC offsets they were written with; without any, they are what the
            zone's clock shows.
        clock: The clock of their zone.
        frequency: The spacing that they should have.
        place: Where each stands in the request.

    Raises:
        InvalidInputError: the clock never shows a time, or twice.
        TimestampError: a time lies outside the years 1 to 9999.
    """
    if offsets is None:
        if not clock.in_utc:
            return walls
        step = np.diff(frequency.steps_from(walls[0], 2))[0]
        try:
            return moments_of(walls, clock.zone, step)
        except RowError as error:
            raise InvalidInputError(str(error), param=place(error.row)) from None
    moments = walls - offsets
    return moments if clock.in_utc else moments + offsets_at(moments, clock.zone)


def check_first(step: np.datetime64, clock: Clock, frequency: Frequency, place: str) -> None:
    """Make sure that a history may begin there.

    Raises:
        InvalidInputError: the frequency's edge or anchor, or a weekend, forbids it.
    """
    if frequency.sub_daily:
        return
    nearest = frequency.steps_from(step, 1)[0]
    if nearest != step:
        told = ""
        if frequency.edge is not None and frequency.unit in MONTHS_IN:
            own = shown_step(_same_period(step, frequency), clock, 0)
            unit = frequency.unit.name.lower()
            told = f"; send the {frequency.day_words} of each {unit}, here {own}"
        raise InvalidInputError(
            f"no step of frequency {frequency} falls on it; the next one is "
            f"{shown_step(nearest, clock, 0)}{told}",
            param=place,
        )


def _same_period(step: np.datetime64, frequency: Frequency) -> np.datetime64:
    """The step of the month, quarter or year that a time lies in."""
    starts, size = frequency.edge == "start", MONTHS_IN[frequency.unit]
    month, day = step.astype("M8[M]"), step.astype("M8[D]")
    ahead = ((frequency.anchor or (1 if starts else 12)) - 1 - int(month.astype(np.int64))) % size
    month = month + np.timedelta64(ahead - size if starts and ahead else ahead, "M")
    (own,) = frequency.edge_days(np.array([month]))
    moment: np.datetime64 = own + (step - day)
    return moment


def parse_timestamp(text: str, place: str) -> Timestamp:
    """Read a timestamp.

    Raises:
        InvalidInputError: the text is none.
    """
    try:
        return timestamps.parse(text)
    except TimestampError as error:
        raise InvalidInputError(str(error), param=place) from None


def shown_step(step: np.datetime64, clock: Clock, row: int) -> str:
    """A step in an error message."""
    walls, offset = clock.read(np.array([step]), row)
    if isinstance(offset, np.ndarray):
        offset = timedelta(microseconds=int(offset.astype("m8[us]")[0].astype(np.int64)))
    return timestamps.shown(walls[0]) + ("" if offset is None else offset_suffix(offset))


def write_labels(timeline: Timeline, steps: int) -> bytes:
    """A JSON list of the first forecast steps' times, `Timeline.labels(0, steps)`."""
    walls, offset = timeline.read(0, steps)
    if isinstance(offset, np.ndarray):
        return orjson.dumps(render(walls, offset))
    try:
        # Without a Python object a step, in a quarter of the time.
        labels = orjson.dumps(walls, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:
        # On the last day of the year 9999.
        return orjson.dumps(render(walls, offset))
    if offset is None:
        return labels
    end = offset_suffix(offset).encode() + b'"'
    return labels[:-1].replace(b'",', end + b",")[:-1] + end + b"]"
