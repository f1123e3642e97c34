"""The codes of a covariate's values (`foretell.bundle.covariates`), from parsed JSON."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.covariates import Covariate, channels_of
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.values import is_multivariate, read_values
from foretell.service.validation import shown
from foretell.timeaxis.gaps import Missing

Codes = NDArray[np.float64]
# A known value before some rows: its distance from the first of them, below 0, and its code.
Before = tuple[int, float]
# The codes of series without future covariates, or those that are no longer needed.
NO_CODES = np.empty((0, 0), np.float32)


@dataclass(slots=True)
class Future:
    """Future covariates that the model reads of a series, in one scenario.

    Attributes:
        name: Name of the scenario.
        codes: `[context + steps, future]`, without gaps.
        filled: Number of filled missing values, by covariate.
    """

    name: str
    codes: NDArray[np.float32]
    filled: dict[str, int]


class PastColumn(NamedTuple):
    """A past boolean or category of a series, sent by name.

    Attributes:
        channels: Places of its channels among the model's.
        codes: `[rows]`, NaN where a value is missing.
        place: The place in the request of the value of a row.
    """

    covariate: Covariate
    channels: list[int]
    codes: Codes
    place: Callable[[int], str]

    def read(self, codes: NDArray[np.floating]) -> NDArray[np.float64]:
        """Codes `[..., rows]` of it as `[..., rows, channels]`."""
        flat = codes.ravel().astype(np.float64)
        return channels_of(self.covariate, flat).reshape(*codes.shape, -1)


@dataclass(slots=True)
class SeriesCovariates:
    """The covariates of a series.

    Attributes:
        future: `[context + steps, future]`, what the model reads for a forecast.
        static: `[static]`.
        rows: `[rows + steps, future]` for rolling origins, NaN where a value is missing.
        past: Past booleans and categories that were sent by name.
        numbers: Past numbers that were sent by name, each `[rows]`; NaN where a value is missing.
        columns: The model's channels of `numbers`, then of `past`.
        names: The covariate of each of these channels.
        filled: Number of filled missing values of `future`, by covariate.
        gaps: Number of missing values of all scenarios that the model reads, each counted once.
        scenarios: The futures of all scenarios, if any; the first is `future`.
    """

    future: NDArray[np.float32]
    static: Codes
    rows: Codes
    past: list[PastColumn] = field(default_factory=list)
    numbers: list[Codes] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    filled: dict[str, int] = field(default_factory=dict)
    gaps: int = 0
    scenarios: list[Future] = field(default_factory=list)


def read_codes(covariate: Covariate, values: Any, path: str, missing: Missing) -> Codes:  # noqa: ANN401 - any JSON
    """The codes `[time]` of a list of values, or of an array of numbers; gaps are NaN.

    InvalidInputError: a value has another type, is unknown, or is missing with `error`.
    """
    gaps = missing != "error"
    if covariate.type == "number" and not is_multivariate(values):
        return read_values(values, (covariate.name,), path, gaps=gaps)[:, 0].copy()
    items = values.tolist() if isinstance(values, np.ndarray) else values
    # Lists and objects have no hash, and many integers may have the same one.
    is_category = covariate.type == "category"
    first = next(
        (
            index
            for index, each in enumerate(items)
            if isinstance(each, list | dict)
            or (type(each) is int and (is_category or each not in (0, 1)))
        ),
        len(items),
    )
    # Most lists have few different values.
    table: dict[Any, float] = {}
    for value in dict.fromkeys(items[:first]):
        is_missing = value is None or (isinstance(value, float) and math.isnan(value))
        # Arrays do not distinguish 1 and 1.0.
        is_whole = isinstance(value, float) and value.is_integer()
        try:
            if not is_missing:
                table[value] = covariate.code(int(value) if is_whole else value)
            elif gaps:
                table[value] = math.nan
            else:
                raise ValueError(
                    f"a value is missing ({shown(value)}), and options.missing is 'error'"
                )
        except ValueError as error:
            raise InvalidInputError(str(error), param=f"{path}[{items.index(value)}]") from None
    if first < len(items):
        wrong, place = items[first], f"{path}[{first}]"
        if isinstance(wrong, list | dict):
            raise InvalidInputError(f"expected a value, got {shown(wrong)}", param=place)
        try:
            covariate.code(wrong)
        except ValueError as error:
            raise InvalidInputError(str(error), param=place) from None
    return np.array([*map(table.__getitem__, items)])


def known_before(codes: Codes, first: int) -> Before | None:
    """The latest known value before a row, if that row has none."""
    if first <= 0 or not math.isnan(codes[first]):
        return None
    known = np.flatnonzero(~np.isnan(codes[:first]))
    return (int(known[-1]) - first, float(codes[known[-1]])) if len(known) else None


def fill(covariate: Covariate, codes: Codes, missing: Missing, before: Before | None) -> None:
    """Fill the gaps of `[time]` in place; what cannot be filled stays NaN.

    A boolean or a category takes the value before a gap, or the one after it without any.
    """
    is_gap = np.isnan(codes)
    gaps, known = np.flatnonzero(is_gap), np.flatnonzero(~is_gap)
    values = codes[known]
    if before is not None:
        known, values = np.append(before[0], known), np.append(before[1], values)
    if not len(known):
        return
    is_number = covariate.type == "number"
    if is_number and missing == "interpolate":
        codes[gaps] = np.interp(gaps, known, values)
        return
    latest = np.searchsorted(known, gaps) - 1
    if is_number:
        gaps, latest = gaps[latest >= 0], latest[latest >= 0]
    codes[gaps] = values[latest.clip(0)]


def value_of(covariate: Covariate, code: float) -> float | bool | str:
    """The value of a code, as a client would send it."""
    if covariate.type == "number":
        return code
    if covariate.type == "boolean":
        return bool(code)
    return [*covariate.categories, "other"][int(code)]
