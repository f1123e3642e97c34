"""Whether a request means the model's frequency."""

from __future__ import annotations

from foretell.bundle.errors import FrequencyError
from foretell.bundle.frequency import Frequency
from foretell.service.errors import InvalidInputError

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
