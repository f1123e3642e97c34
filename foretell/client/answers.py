"""Return values of the client: answers, notes and warnings."""

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
    """A warning of the server about an answer, with the server's message."""


class Part(BaseModel):
    """A part of an answer; fields that a later server adds are kept in `model_extra`."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)


class Notice(Part):
    """An error or a warning of the server.

    Attributes:
        kind: Its short name, such as `outside_training_range`.
        message: Its text.
        place: Place in the frame or the options, if there is one.
    """

    kind: str = Field(alias="type")
    message: str
    place: str | None = Field(default=None, alias="param")


class Output(Part, Generic[Content]):
    """The result of one series in JSON.

    Attributes:
        content: One result, or nothing if there is an error.
        error: Reason for the missing result.
    """

    content: Annotated[tuple[Content, ...], Field(max_length=1)]
    error: Notice | None = None


class JsonAnswer(Part, Generic[Content]):
    """An answer in JSON, with one output for each series.

    Attributes:
        model: Name of the model.
        model_version: Version of the model.
        model_digest: Digest of its manifest, `sha256:…`; empty from an earlier server.
        outputs: Outputs in the order of the series.
        warnings: Warnings of the server.
    """

    model: str
    model_version: str
    model_digest: str = ""
    outputs: tuple[Output[Content], ...]
    warnings: list[Notice] = []


class SeriesError(Notice):
    """The reason why a series has no forecast.

    Attributes:
        series: Name of the series; empty if the frame has no names.
    """

    series: str | int = Field(alias="unique_id")


class Notes(Part):
    """Information about forecasts besides their values.

    Attributes:
        model: Name of the model.
        model_version: Version of the model.
        model_digest: Digest of its manifest, `sha256:…`; empty from an earlier server.
        errors: Errors of series without a forecast.
        warnings: Warnings of the server.
        rolled_from: First step, from 0, that was forecast from forecasts, if any.
        filled: Numbers of missing values that were filled, by series and channel.
        masked: Numbers of missing values that were masked, by series and channel.
        ill_conditioned: Series for which rounding may decide what the model attends to.
    """

    model: str
    model_version: str
    model_digest: str = ""
    errors: list[SeriesError] = []
    warnings: list[Notice] = []
    rolled_from: int | None = None
    filled: dict[str, dict[str, int]] = {}
    masked: dict[str, dict[str, int]] = {}
    ill_conditioned: list[str] = []


def by_name(
    answer: JsonAnswer[Content], names: Iterable[str | int]
) -> tuple[dict[str | int, Content], Notes]:
    """The contents of an answer by the names of its series, and notes with the errors of others."""
    notes = Notes(
        model=answer.model,
        model_version=answer.model_version,
        model_digest=answer.model_digest,
        warnings=answer.warnings,
    )
    found: dict[str | int, Content] = {}
    for name, output in zip(names, answer.outputs, strict=True):
        if output.error is not None:
            notes.errors.append(SeriesError.model_validate({"series": name, **dict(output.error)}))
        if output.content:
            found[name] = output.content[0]
    return found, notes


def warn(notices: Iterable[Notice], stacklevel: int) -> None:
    """Issue Python warnings for notices of a server.

    Args:
        notices: The warnings.
        stacklevel: Stack level of the caller, as in `warnings.warn`.
    """
    for notice in notices:
        text = f"{notice.place}: {notice.message}" if notice.place else notice.message
        warnings.warn(text, ForetellWarning, stacklevel=stacklevel + 1)


def together(parts: Sequence[Notes]) -> Notes:
    """Merge the notes on all parts of a table; equal warnings appear once."""
    first, *others = parts
    for one in others:
        first.errors += one.errors
        first.warnings += [notice for notice in one.warnings if notice not in first.warnings]
        first.filled |= one.filled
        first.masked |= one.masked
        first.ill_conditioned += one.ill_conditioned
    return first


@dataclass(frozen=True)
class Answer(Generic[Frame]):
    """Forecasts with their notes.

    Attributes:
        frame: Forecasts, in the same kind of frame as the history.
        notes: Model, errors and warnings.
    """

    frame: Frame
    notes: Notes


class PartialForecastError(ForetellError):
    """Some of the series have no forecast; `answer` contains the forecasts of the others.

    Attributes:
        answer: Forecasts, with the errors in its notes.
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
