"""The codes of a covariate's values (`foretell.bundle.covariates`), from parsed JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.covariates import Covariate
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.values import is_multivariate, read_values
from foretell.service.validation import shown
from foretell.timeaxis.gaps import Filling, Missing, filled

Codes = NDArray[np.float64]


@dataclass(slots=True)
class Future:
    """Future covariates of a series, in one scenario.

    Attributes:
        name: Name of the scenario.
        codes: `[rows + steps, future]`, of rows of the series and the steps after them.
        filled: Number of filled missing values that the model reads, by covariate.
    """

    name: str
    codes: Codes
    filled: dict[str, int]


@dataclass(slots=True)
class SeriesCovariates:
    """The covariates of a series, without gaps unless a past one is masked.

    Attributes:
        future: `[rows + steps, future]`, of the rows of the series and the steps after them.
        static: `[static]`.
        past: `[rows, columns]`, past covariates that were sent by name, as channels.
        columns: The model's channels of these columns.
        names: The covariate of each of these columns.
        filled: Number of filled missing values that the model reads, by covariate.
        scenarios: The futures of all scenarios, if any; the first is `future`.
    """

    future: Codes
    static: Codes
    past: Codes
    columns: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    filled: dict[str, int] = field(default_factory=dict)
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


def fill(covariate: Covariate, codes: Codes, missing: Filling) -> None:
    """Fill the gaps of `[time]` in place; what cannot be filled stays NaN.

    A boolean or a category takes the value before a gap, or the one after it without any.
    """
    is_number = covariate.type == "number"
    method: Filling = missing if is_number else "ffill"
    codes[:] = filled(codes[:, None], method)[:, 0]
    if not is_number and (known := ~np.isnan(codes)).any():
        codes[: known.argmax()] = codes[known.argmax()]


def fill_past(covariate: Covariate, codes: Codes, missing: Missing, context: int) -> int:
    """Fill the gaps of a past covariate in place; the number of them in the last `context` rows.

    Gaps of numbers, and masked gaps, stay: the reader of series treats them.
    """
    holes = np.isnan(codes)
    if covariate.type == "number" or missing == "mask" or not holes.any():
        return 0
    fill(covariate, codes, missing)
    return int(holes[-context:].sum())


def value_of(covariate: Covariate, code: float) -> float | bool | str:
    """The value of a code, as a client would send it."""
    if covariate.type == "number":
        return code
    if covariate.type == "boolean":
        return bool(code)
    return [*covariate.categories, "other"][int(code)]
