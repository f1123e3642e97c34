"""What requests may ask for, and how it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from foretell.service.api.forecast.inputs import Planner, plan
from foretell.service.api.forecast.schemas import (
    NAMES,
    Envelope,
    ForecastOptions,
    Query,
    TableOptions,
)
from foretell.service.validation import Names


@dataclass(frozen=True)
class Task:
    """What is asked for.

    Attributes:
        name: As paths end.
        description: For the OpenAPI document.
        envelope: A request in JSON.
        names: Those it may have.
        query: What the URL says to a table.
        options: The same as in JSON.
        plan: Reads the options.
    """

    name: str
    description: str
    envelope: type[Any]
    names: Names
    query: type[Query]
    options: type[BaseModel]
    plan: Planner


FORECASTING = Task(
    "forecast",
    "Forecast every series of the request.",
    Envelope,
    NAMES,
    TableOptions,
    ForecastOptions,
    plan,
)
