"""The season of a frequency: the cycle that the seasonal naive forecast repeats."""

from __future__ import annotations

from foretell.timeaxis.frequency import Frequency, Unit

# The usual cycle of each unit: its name, and its length in units.
_CYCLE = {
    Unit.MICROSECOND: ("second", 10**6),
    Unit.MILLISECOND: ("second", 1000),
    Unit.SECOND: ("minute", 60),
    Unit.MINUTE: ("day", 1440),
    Unit.HOUR: ("day", 24),
    Unit.DAY: ("week", 7),
    Unit.BUSINESS_DAY: ("week", 5),
    Unit.WEEK: ("year", 52),
    Unit.SEMI_MONTH: ("year", 24),
    Unit.MONTH: ("year", 12),
    Unit.QUARTER: ("year", 4),
}


def season_of(frequency: Frequency, context: int) -> int | None:
    """Number of steps in a season: a day of hours or minutes, a week of days, a year of months, …

    Args:
        frequency: Spacing of the steps.
        context: Number of steps of history.

    Returns:
        None if the frequency has no season or the context is shorter than one.
    """
    _, length = _CYCLE.get(frequency.unit, ("", 1))
    season, rest = divmod(length, frequency.multiple)
    return season if not rest and 1 < season <= context else None


def season_name(frequency: Frequency) -> str:
    """The name of a season of this frequency, such as `day`."""
    name, _ = _CYCLE.get(frequency.unit, ("season", 1))
    return name
