"""When the steps of a history and of its forecast are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from bundle import timestamps
from bundle.errors import FrequencyError, TimestampError
from bundle.frequency import Frequency
from bundle.timestamps import Timestamp, Timestamps
from service.errors import InvalidInputError

_IRREGULAR = {
    "gap": "steps are missing before it",
    "duplicate": "it repeats the one before it",
    "order": "it goes back in time",
    "misaligned": "it lies between two steps",
}
# What KServe's time-series API lets a caller say: a unit, and no multiple of it.
_KSERVE_NAMES = {*"STHDWMQY", "second", "minute", "hour", "day", "week", "month", "quarter", "year"}


@dataclass(frozen=True)
class Timeline:
    """The times of a history and what follows it.

    Attributes:
        frequency: The spacing of the steps.
        start: Wall-clock time of the first row of the history.
        utc_offset: The offset its timestamps were written with, if any.
        rows: Rows of the history; the first forecast step follows them.
    """

    frequency: Frequency
    start: np.datetime64
    utc_offset: timedelta | None
    rows: int

    def steps(self, first: int, count: int) -> Timestamps:
        """Wall-clock times `[count]` from step `first` on; step 0 is the first forecast one."""
        return self.frequency.steps_from(self.start, count, first=self.rows + first)

    def labels(self, first: int, count: int) -> list[str]:
        """The same as ISO 8601 texts.

        Raises:
            TimestampError: a time lies beyond the year 9999.
        """
        return timestamps.render(self.steps(first, count), self.utc_offset)


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


def read_timeline(
    start_timestamp: str | None,
    listed: Sequence[str] | None,
    frequency: Frequency,
    rows: int,
    place: str,
) -> Timeline | None:
    """Read the times of a history.

    Args:
        start_timestamp: Time of the first row.
        listed: Time of every row.
        frequency: The model's.
        rows: Rows of the history.
        place: Where the input stands in the request, for errors.

    Returns:
        None if the request gives no times.

    Raises:
        InvalidInputError: a timestamp is malformed or not where the frequency puts it.
    """
    start = None
    if start_timestamp is not None:
        start = _parse(start_timestamp, f"{place}.start_timestamp")
        _check_first(start, frequency, f"{place}.start_timestamp")
    if listed is not None:
        first = _read_list(listed, frequency, rows, f"{place}.timestamps")
        if start is not None and start != first:
            raise InvalidInputError(
                f"{start_timestamp!r} is not the first of timestamps, {listed[0]!r}",
                param=f"{place}.start_timestamp",
            )
        start = first
    if start is None:
        return None
    return Timeline(frequency, start.wall, start.utc_offset, rows)


def _read_list(listed: Sequence[str], frequency: Frequency, rows: int, place: str) -> Timestamp:
    if len(listed) != rows:
        raise InvalidInputError(
            f"expected {rows} timestamps, one for every row of series, got {len(listed)}",
            param=place,
        )
    parsed = [_parse(text, f"{place}[{index}]") for index, text in enumerate(listed)]
    first = parsed[0]
    for index, timestamp in enumerate(parsed):
        if timestamp.utc_offset != first.utc_offset:
            raise InvalidInputError(
                f"expected the UTC offset of the first timestamp, {listed[0]!r}, got "
                f"{listed[index]!r}; write all of them in UTC or all with one offset",
                param=f"{place}[{index}]",
            )
    _check_first(first, frequency, f"{place}[0]")
    wrong = frequency.first_irregularity(np.array([timestamp.wall for timestamp in parsed]))
    if wrong is not None:
        raise InvalidInputError(
            f"expected {_shown(wrong.expected)} (frequency {frequency}), "
            f"got {listed[wrong.index]!r}: {_IRREGULAR[wrong.kind]}",
            param=f"{place}[{wrong.index}]",
        )
    return first


def _check_first(first: Timestamp, frequency: Frequency, place: str) -> None:
    nearest = frequency.steps_from(first.wall, 1)[0]
    if nearest != first.wall:
        raise InvalidInputError(
            f"no step of frequency {frequency} falls on it; the next one is {_shown(nearest)}",
            param=place,
        )


def _parse(text: str, place: str) -> Timestamp:
    try:
        return timestamps.parse(text)
    except TimestampError as error:
        raise InvalidInputError(str(error), param=place) from None


def _shown(moment: np.datetime64) -> str:
    return str(moment.astype("M8[s]"))
