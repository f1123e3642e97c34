"""The timestamps of a request: of its first row, or of every row."""

from __future__ import annotations

from collections.abc import Sequence
from zoneinfo import ZoneInfo

import numpy as np

from foretell.bundle.errors import TimestampError
from foretell.bundle.frequency import Frequency
from foretell.bundle.regularity import Irregularity, first_irregularity, origin
from foretell.bundle.timestamps import Offsets, Timestamp
from foretell.service.errors import InvalidInputError
from foretell.service.times.clocks import Clock, FixedClock, ListedClock, ZoneClock
from foretell.service.times.timeline import (
    Timeline,
    check_first,
    parse_timestamp,
    shown_step,
    steps_in_zone,
    timeline_from,
)

IRREGULAR = {
    "gap": "steps are missing before it",
    "duplicate": "it repeats the one before it",
    "order": "it goes back in time",
    "misaligned": "it lies between two steps",
}
_CLOCK_CHANGE = "; where a local clock changes, times need their UTC offsets, or `time_zone`"


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
    check_first(steps[0], clock, frequency, f"{place}[0]")
    wrong = first_irregularity(frequency, steps)
    if wrong is not None:
        raise InvalidInputError(
            f"expected {shown_step(wrong.expected, clock, wrong.index)} (frequency {frequency}), "
            f"got {listed[wrong.index]!r}: {IRREGULAR[wrong.kind]}"
            + (_CLOCK_CHANGE if _may_be_clock_change(steps[wrong.index], wrong, clock) else ""),
            param=f"{place}[{wrong.index}]",
        )
    row = origin(frequency, steps)
    return Timeline(frequency, steps[row], row, rows, clock)


def _may_be_clock_change(step: np.datetime64, wrong: Irregularity, clock: Clock) -> bool:
    local = clock == FixedClock(None)
    return local and abs(step - wrong.expected) == np.timedelta64(1, "h")


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
