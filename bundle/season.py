"""The season of a frequency: the cycle whose repetition is a forecast without a model."""

from __future__ import annotations

from foretell.bundle.frequency import Frequency, Unit

# Steps of one unit in the cycle that people and nature keep most strictly.
_CYCLE = {
    Unit.SECOND: 60,
    Unit.MINUTE: 1440,
    Unit.HOUR: 24,
    Unit.DAY: 7,
    Unit.BUSINESS_DAY: 5,
    Unit.WEEK: 52,
    Unit.MONTH: 12,
    Unit.QUARTER: 4,
}


def season_of(frequency: Frequency, context: int) -> int | None:
    """Steps in a season: a day of hours or minutes, a week of days, a year of months, …

    Args:
        frequency: Spacing of the steps.
        context: Steps of history there are.

    Returns:
        None when the frequency has no such season or the context does not hold one.
    """
    season, rest = divmod(_CYCLE.get(frequency.unit, 1), frequency.multiple)
    return season if not rest and 1 < season <= context else None
