"""Covariates: values besides the series, which a model reads for its context and its horizon."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from foretell.bundle.nearness import suggestion
from foretell.bundle.part import Part

CovariateType = Literal["number", "boolean", "category"]
CovariateKind = Literal["future", "past", "static"]
# Inputs of graphs, with the axes after the batch: steps of the context, steps of the horizon, none.
HISTORY_COVARIATES = "history_covariates"
FUTURE_COVARIATES = "future_covariates"
STATIC_COVARIATES = "static_covariates"


class Covariate(Part):
    """A covariate, and the numbers that stand for its values in a graph's input.

    A number is its own code, a boolean 0 or 1, a category its place in `categories`.

    Attributes:
        name: Its name, on the wire too.
        type: Type of its values.
        mean: Number that the graph subtracts from a number, its mean in the training rows; None if
            that is unknown and the graph subtracts nothing.
        std: Number that the graph divides the difference by.
        categories: Names of the categories, in the order of their codes.
        other: Whether `len(categories)` is the code of all other categories. Without it they are
            refused.
    """

    name: Annotated[str, Field(min_length=1)]
    type: CovariateType = "number"
    mean: float | None = None
    std: Annotated[float, Field(gt=0)] = 1.0
    categories: tuple[str, ...] = ()
    other: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.type == "category") != bool(self.categories):
            raise ValueError("categories: a category needs them, no other type has any")
        if len(set(self.categories)) != len(self.categories):
            raise ValueError("categories: names are not unique")
        if self.other and self.type != "category":
            raise ValueError("other: only a category has it")
        if self.type != "number" and (self.mean or 0.0, self.std) != (0.0, 1.0):
            raise ValueError("mean and std: only a number has them")
        return self

    @property
    def features(self) -> int:
        """Number of features that a network reads: one for each category, else one."""
        return max(len(self.categories), 1)

    @property
    def channels(self) -> tuple[str, ...]:
        """Channels of a past covariate: its name, or `name=category` for each category."""
        if self.type == "category":
            return tuple(f"{self.name}={category}" for category in self.categories)
        return (self.name,)

    def code(self, value: object) -> float:
        """The code of a value.

        Raises:
            ValueError: it has another type, is not finite, or is an unknown category; the message
                begins with "expected".
        """
        if self.type == "category":
            return self._code_of_category(value)
        if self.type == "boolean":
            if isinstance(value, bool) or (isinstance(value, int | float) and value in (0, 1)):
                return float(value)
            raise ValueError(f"expected true or false, got {_shown(value)}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"expected a number, got {_shown(value)}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not abs(number) <= _LARGEST:
            raise ValueError(f"expected a finite number of float32, got {_shown(value)}")
        return number

    def _code_of_category(self, value: object) -> float:
        if not isinstance(value, str):
            raise ValueError(f"expected the name of a category, got {_shown(value)}")
        if value in self.categories:
            return float(self.categories.index(value))
        if self.other:
            return float(len(self.categories))
        raise ValueError(
            f"expected a category of the training rows, got {_shown(value)}; "
            f"{suggestion(value, self.categories)}"
        )


class Covariates(Part):
    """The covariates of a model, by kind, in the order of the last axis of its inputs.

    Attributes:
        future: Known for context and horizon: `history_covariates` `[batch, context, future]` and
            `future_covariates` `[batch, horizon, future]`.
        past: Known for the context alone. They are channels of `history` that are not forecast,
            one for each of `Covariate.channels`.
        static: One value for each series: `static_covariates` `[batch, static]`.
    """

    future: tuple[Covariate, ...] = ()
    past: tuple[Covariate, ...] = ()
    static: tuple[Covariate, ...] = ()

    @model_validator(mode="after")
    def _unique(self) -> Self:
        names = [each.name for each in (*self.future, *self.past, *self.static)]
        if len(set(names)) != len(names):
            raise ValueError("names are not unique")
        return self

    def shapes(self, context: int, horizon: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs of a graph by name, in their order, without the batch axis."""
        shapes: dict[str, tuple[int, ...]] = {}
        if self.future:
            shapes[HISTORY_COVARIATES] = context, len(self.future)
            shapes[FUTURE_COVARIATES] = horizon, len(self.future)
        if self.static:
            shapes[STATIC_COVARIATES] = (len(self.static),)
        return shapes


# The covariates of models that read none.
NO_COVARIATES = Covariates()


class _Past(Protocol):
    """A past covariate, of a bundle or of a client's description of a model."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def channels(self) -> tuple[str, ...]: ...


_P = TypeVar("_P", bound=_Past)


def by_name(past: Iterable[_P], columns: Iterable[str]) -> list[_P]:
    """The past booleans and categories that a table has in a column of their name.

    A table may have a column for each channel of a category instead. If it has neither, the column
    of the covariate's name is the missing one.

    Args:
        past: Past covariates of a model.
        columns: Names of the table's columns.
    """
    there = {*columns}
    return [
        each
        for each in past
        if each.type != "number" and (each.name in there or there.isdisjoint(each.channels))
    ]


def besides(channels: Iterable[str], past: Iterable[_Past]) -> list[str]:
    """The channels that are not those of some past covariates."""
    named = {name for each in past for name in each.channels}
    return [name for name in channels if name not in named]


def channels_of(covariate: Covariate, codes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Codes `[rows]` of a past covariate as `[rows, channels]`: 0 or 1 for each category.

    A missing value (NaN) is missing in each channel.
    """
    if covariate.type != "category":
        return codes[:, None]
    is_each = codes[:, None] == np.arange(len(covariate.categories))
    return np.where(np.isnan(codes)[:, None], np.nan, is_each)


def features_of(covariates: Iterable[Covariate]) -> int:
    """Number of features that a network reads of some covariates."""
    return sum(each.features for each in covariates)


# Longest text of a value in a message, and the largest integer that is written out.
_SHOWN, _MOST_BITS = 40, 128
# The largest number of float32.
_LARGEST = 3.4028234663852886e38


def _shown(value: object) -> str:
    if isinstance(value, list | dict):
        # A list of lists may be too deep for `repr`, or have millions of items.
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return "an integer of many digits"
    text = repr(value[:_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"
