"""What calls return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from foretell.client.errors import ForetellError

Frame = TypeVar("Frame")
Floats = NDArray[np.float64]


class ForetellWarning(UserWarning):
    """An answer that may not be what was meant; the message is the server's."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True, populate_by_name=True)


class Notice(_Part):
    """Something that the server says.

    Attributes:
        kind: Its short name, such as `outside_training_range`.
        message: What was found, or expected.
        place: Where in the frame or the options, if it is in one place.
    """

    kind: str = Field(alias="type")
    message: str
    place: str | None = Field(default=None, alias="param")


class SeriesError(Notice):
    """Why a series has no forecast.

    Attributes:
        series: Its name; an empty text where the frame names none.
    """

    series: str | int = Field(alias="unique_id")


class Notes(_Part):
    """What there is to say about forecasts besides their values.

    Attributes:
        model: That made them.
        model_version: Of it.
        errors: Of series without a forecast.
        warnings: Of the server.
        rolled_from: The first step, from 0, that was forecast from forecasts, if any was.
        filled: How many missing values were filled, by series and channel.
        ill_conditioned: Series for which rounding may decide what the model looks at.
    """

    model: str
    model_version: str
    errors: list[SeriesError] = []
    warnings: list[Notice] = []
    rolled_from: int | None = None
    filled: dict[str, dict[str, int]] = {}
    ill_conditioned: list[str] = []


@dataclass(frozen=True)
class Answer(Generic[Frame]):
    """Forecasts, and what there is to say about them.

    Attributes:
        frame: The forecasts, in the kind of frame that was given.
        notes: The rest.
    """

    frame: Frame
    notes: Notes


class PartialForecastError(ForetellError):
    """Some of the series have no forecast; `answer` holds those of the others.

    Attributes:
        answer: With the errors in its notes.
    """

    def __init__(self, answer: Answer[Any]) -> None:
        first, *others = answer.notes.errors
        more = f"; {len(others):,} more series have none" if others else ""
        super().__init__(
            f"series {first.series!r} has no forecast: {first.message}{more}; the others are in "
            "this error's answer",
            place=first.place,
            kind=first.kind,
        )
        self.answer = answer
