"""Calendar features that the training rows cover."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import numpy as np

from foretell.data.panel import Panel
from foretell.data.splits import Span
from foretell.timeaxis.calendar import Calendar, Feature

# Time that rows must cover. A feature with few cycles in training only identifies the training
# row and does not generalise. So the day of the month needs nearly a year of months, the day of the
# year two years and the day of the week four weeks.
_NEEDED: dict[Feature, timedelta] = {
    "second": timedelta(minutes=2),
    "minute": timedelta(hours=2),
    "quarter_hour": timedelta(hours=2),
    "hour": timedelta(days=2),
    "day_of_week": timedelta(weeks=4),
    "day_of_month": timedelta(days=350),
    "day_of_year": timedelta(days=700),
    "week": timedelta(days=700),
    "month": timedelta(days=700),
}


def covered(panel: Panel, spans: Iterable[Span]) -> timedelta:
    """The time that rows of a panel cover; overlaps of series count once."""
    times = [panel.tables[span.table].timestamps[[span.start, span.end - 1]] for span in spans]
    starts, ends = np.array(sorted(times, key=lambda pair: pair[0])).T
    # Latest end of the spans that began earlier, so that no time counts twice.
    reached = np.concatenate([starts[:1], np.maximum.accumulate(ends)[:-1]])
    fresh = ends - np.maximum(starts, reached)
    total: timedelta = np.maximum(fresh, np.timedelta64(0)).sum().astype("m8[us]").item()
    return total


def learnable(calendar: Calendar, time: timedelta) -> Calendar | None:
    """The features that rows covering `time` can teach a model; None without any."""
    features = tuple(name for name in calendar.features if time >= _NEEDED[name])
    return replace(calendar, features=features) if features else None
