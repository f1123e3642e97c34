"""What goes into a run of a model and comes out of it, and the names that graphs have for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


HISTORY = "history"
HISTORY_CALENDAR = "history_calendar"
FUTURE_CALENDAR = "future_calendar"
FORECAST = "forecast"
MARGIN = "margin"
DISTRIBUTION = "distribution"


def asked_for(outputs: Arrays, attention: Sequence[str]) -> Arrays:
    """What of a run's outputs is sent to who asked: all but attention that was not named."""
    if not attention:
        return outputs
    names = (FORECAST, MARGIN, DISTRIBUTION, *attention)
    return {name: outputs[name] for name in names if name in outputs}
