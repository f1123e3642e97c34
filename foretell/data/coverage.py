"""Which calendar features training rows have seen enough of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import numpy as np

from foretell.data.panel import Panel
from foretell.data.splits import Span
from foretell.timeaxis.calendar import Calendar, Feature

# Time that rows have to cover. A feature of which a training saw few cycles tells it where among
# its rows a window lies, and says nothing of later ones: the day of the month needs (nearly) a
# year of months, that of the year two years, the day of the week four weeks.
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
    """Time that the rows of a panel cover; what several series cover counts once."""
    times = [panel.tables[span.table].timestamps[[span.start, span.end - 1]] for span in spans]
    starts, ends = np.array(sorted(times, key=lambda pair: pair[0])).T
    # Of what began earlier; so nothing counts twice.
    reached = np.concatenate([starts[:1], np.maximum.accumulate(ends)[:-1]])
    fresh = ends - np.maximum(starts, reached)
    total: timedelta = np.maximum(fresh, np.timedelta64(0)).sum().astype("m8[us]").item()
    return total


def learnable(calendar: Calendar, time: timedelta) -> Calendar | None:
    """The features that rows covering so much time teach a model; None if there are none."""
    features = tuple(name for name in calendar.features if time >= _NEEDED[name])
    return replace(calendar, features=features) if features else None
