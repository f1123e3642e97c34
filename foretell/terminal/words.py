"""Short texts for periods, numbers and shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from foretell.timeaxis.frequency import MICROSECONDS_IN, MONTHS_IN, Frequency, Unit

Floats = NDArray[np.floating]

_CLOCK = {"day": 86400, "hour": 3600, "minute": 60, "second": 1}
_WEEK = 604800
_PARTS = {name: length * 10**6 for name, length in _CLOCK.items()}
_PARTS |= {"millisecond": 1000, "microsecond": 1}
_CALENDAR = {"year": 12, "month": 1}
_BARS = "▁▂▃▄▅▆▇█"
# Significant digits of float32.
_MOST_DIGITS = 9


def period(steps: int, frequency: Frequency) -> str:
    """The duration of steps, such as `1 day`, `3 days 14 hours`, `2 weeks` or `3 months`."""
    count = steps * frequency.multiple
    if frequency.unit in MONTHS_IN:
        return _filled(count * MONTHS_IN[frequency.unit], _CALENDAR)
    if frequency.unit is Unit.SEMI_MONTH:
        return _counted(count, "half month") if count % 2 else _filled(count // 2, _CALENDAR)
    if frequency.unit not in MICROSECONDS_IN:
        return _counted(count, "business day")
    seconds, parts = divmod(count * MICROSECONDS_IN[frequency.unit], 10**6)
    if parts:
        return _filled(seconds * 10**6 + parts, _PARTS)
    # Weeks only if there is no remainder: 9 days are `9 days`.
    whole = seconds and seconds % _WEEK == 0
    return _filled(seconds, {"week": _WEEK} if whole else _CLOCK)


def _filled(total: int, lengths: Mapping[str, int]) -> str:
    """A total as counts of each length, the longest first; counts of 0 are left out."""
    parts: list[str] = []
    for name, length in lengths.items():
        count, total = divmod(total, length)
        if count or (length == 1 and not parts):
            parts.append(_counted(count, name))
    return " ".join(parts)


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def numbers(values: Floats, least: int = 4) -> list[str]:
    """Texts of numbers with the fewest equal decimals by which different neighbours differ.

    Args:
        values: Numbers `[numbers]`.
        least: Smallest number of significant digits of the largest one, without trailing zeros.
    """
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0))
    size = math.floor(math.log10(largest)) if largest else 0
    if not -5 <= size <= 12:
        return [f"{value:.{least}g}" for value in values]
    # NaN counts as equal to its neighbours.
    differ = np.flatnonzero(np.nan_to_num(np.diff(values)))
    for digits in range(least, _MOST_DIGITS + 1):
        decimals = max(digits - 1 - size, 0)
        texts = [f"{value:.{decimals}f}" for value in values]
        if all(texts[i] != texts[i + 1] for i in differ):
            break
    # Texts of NaN and infinity end with n and f, and have no decimals.
    while decimals and all(text.endswith(("0", "n", "f")) for text in texts):
        decimals -= 1
        texts = [f"{value:.{decimals}f}" for value in values]
    return texts


def sparkline(*parts: Floats, width: int = 16) -> list[str]:
    """A bar for each value, all on one scale; longer parts are averaged.

    Args:
        parts: Parts of the line, each `[values]`.
        width: Largest number of bars of a part.
    """
    means = [
        np.array([piece.mean() for piece in np.array_split(part, min(width, len(part)))])
        for part in parts
    ]
    together = np.concatenate(means)
    low, high = float(together.min()), float(together.max())
    if low == high:
        return [_BARS[len(_BARS) // 2] * len(part) for part in means]
    places = [np.rint((part - low) / (high - low) * (len(_BARS) - 1)).astype(int) for part in means]
    return ["".join(_BARS[place] for place in part) for part in places]
