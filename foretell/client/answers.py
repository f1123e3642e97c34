"""What calls return."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator

from foretell.client.errors import ForetellError

Frame = TypeVar("Frame")
Content = TypeVar("Content")


def _floats(value: Any) -> NDArray[np.float64]:  # noqa: ANN401 - whatever JSON has
    return np.asarray(value, np.float64)


def _integers(value: Any) -> NDArray[np.int64]:  # noqa: ANN401
    return np.asarray(value, np.int64)


_as_lists = PlainSerializer(np.ndarray.tolist)
# Nested lists of JSON; null becomes NaN.
Floats = Annotated[NDArray[np.float64], PlainValidator(_floats), _as_lists]
Integers = Annotated[NDArray[np.int64], PlainValidator(_integers), _as_lists]


class ForetellWarning(UserWarning):
    """An answer that may not be what was meant; the message is the server's."""


class Part(BaseModel):
    """A part of an answer; what a later server adds to it is kept (`model_extra`)."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)


class Notice(Part):
    """Something that the server says.

    Attributes:
        kind: Its short name, such as `outside_training_range`.
        message: What was found, or expected.
        place: Where in the frame or the options, if it is in one place.
    """

    kind: str = Field(alias="type")
    message: str
    place: str | None = Field(default=None, alias="param")


class Output(Part, Generic[Content]):
    """The result of one series in JSON.

    Attributes:
        content: One result, or none where there is an error.
        error: Why there is none.
    """

    content: Annotated[tuple[Content, ...], Field(max_length=1)]
    error: Notice | None = None


class JsonAnswer(Part, Generic[Content]):
    """An answer in JSON, with one output for each series.

    Attributes:
        model: That made it.
        model_version: Of it.
        outputs: In the order of the series.
        warnings: Of the server.
    """

    model: str
    model_version: str
    outputs: tuple[Output[Content], ...]
    warnings: list[Notice] = []


class SeriesError(Notice):
    """Why a series has no forecast.

    Attributes:
        series: Its name; an empty text where the frame names none.
    """

    series: str | int = Field(alias="unique_id")


class Notes(Part):
    """What there is to say about forecasts besides their values.

    Attributes:
        model: That made them.
        model_version: Of it.
        errors: Of series without a forecast.
        warnings: Of the server.
        rolled_from: The first step, from 0, that was forecast from forecasts, if any was.
        filled: How many missing values were filled, by series and channel.
        masked: How many were left out, likewise.
        ill_conditioned: Series for which rounding may decide what the model looks at.
    """

    model: str
    model_version: str
    errors: list[SeriesError] = []
    warnings: list[Notice] = []
    rolled_from: int | None = None
    filled: dict[str, dict[str, int]] = {}
    masked: dict[str, dict[str, int]] = {}
    ill_conditioned: list[str] = []


def warn(notices: Iterable[Notice], stacklevel: int) -> None:
    """Make Python's warnings of a server's.

    Args:
        notices: Any.
        stacklevel: Of the caller, as `warnings.warn` counts.
    """
    for notice in notices:
        text = f"{notice.place}: {notice.message}" if notice.place else notice.message
        warnings.warn(text, ForetellWarning, stacklevel=stacklevel + 1)


def together(parts: Sequence[Notes]) -> Notes:
    """Of all parts of a table; what several say alike is said once."""
    first, *others = parts
    for one in others:
        first.errors += one.errors
        first.warnings += [told for told in one.warnings if told not in first.warnings]
        first.filled |= one.filled
        first.masked |= one.masked
        first.ill_conditioned += one.ill_conditioned
    return first


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
