"""Exogenous columns of the nixtla client, which have no names, as covariates of inputs.

The client sends numbers and categories apart, columns with a future before the others. So each
column is the covariate at its place: future ones, then static ones, in the model's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from foretell.bundle.covariates import NO_COVARIATES, Covariate
from foretell.bundle.manifest import Manifest
from foretell.bundle.nearness import listed
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.nixtla.requests import Series
from foretell.service.validation import shown

_Columns = list[list[Any]]


def fields_of(series: Series, h: int, manifest: Manifest) -> list[dict[str, Any]]:
    """The fields of covariates of each series.

    InvalidInputError: the columns are not those of the model. NotSupportedError: it reads none.
    """
    given = series.X, series.X_future, series.categorical_exog
    if all(value is None for value in given):
        return [{} for _ in series.sizes]
    known = manifest.covariates or NO_COVARIATES
    if not (known.future or known.static):
        raise NotSupportedError(
            "models here read no other columns: send only the id, the time and the target",
            param="series.X",
        )
    rows = _columns(series.X, "series.X", sum(series.sizes))
    order = _in_order([*known.future, *known.static], rows, series.categorical_exog or [])
    steps: dict[str, list[Any]] = {}
    if series.X_future is not None:
        after = _columns(series.X_future, "series.X_future", h * len(series.sizes))
        future = sorted(known.future, key=lambda each: each.type == "category")
        _check_count(after, future, "series.X_future")
        steps = {each.name: column for each, column in zip(future, after, strict=True)}
    found = []
    for index, end in enumerate(accumulate(series.sizes)):
        start, first = end - series.sizes[index], index * h
        future_values = {
            each.name: rows[order[each.name]][start:end]
            + steps.get(each.name, [])[first : first + h]
            for each in known.future
        }
        static = {each.name: _one(rows, order[each.name], start, end) for each in known.static}
        found.append({"future_covariates": future_values, "static_covariates": static})
    return found


def _columns(given: object, place: str, count: int) -> _Columns:
    if not isinstance(given, list):
        raise InvalidInputError(f"expected a list of columns, got {shown(given)}", param=place)
    for number, column in enumerate(given):
        if not isinstance(column, list) or len(column) != count:
            what = len(column) if isinstance(column, list) else shown(column)
            raise InvalidInputError(
                f"expected a list of {count} values, got {what}", param=f"{place}[{number}]"
            )
    return given


def _in_order(known: Sequence[Covariate], rows: _Columns, categories: object) -> dict[str, int]:
    """The number of the column of each covariate."""
    if not isinstance(categories, list) or not all(
        type(each) is int and 0 <= each < len(rows) for each in categories
    ):
        raise InvalidInputError(
            f"expected numbers of columns, got {shown(categories)}", param="series.categorical_exog"
        )
    chosen = set(categories)
    if len(chosen) < len(categories):
        raise InvalidInputError("expected each column once", param="series.categorical_exog")
    numbers = [number for number in range(len(rows)) if number not in chosen]
    wanted = [each for each in known if each.type != "category"]
    named = [each for each in known if each.type == "category"]
    _check_count(rows, [*wanted, *named], "series.X")
    if len(categories) != len(named):
        raise InvalidInputError(
            f"expected {len(named)} columns of categories ({listed([each.name for each in named])})"
            f", got {len(categories)}; pass categorical_exog_list",
            param="series.categorical_exog",
        )
    order = zip([*wanted, *named], [*numbers, *categories], strict=True)
    return {each.name: number for each, number in order}


def _check_count(columns: _Columns, known: Sequence[Covariate], place: str) -> None:
    if len(columns) != len(known):
        names = listed([each.name for each in known])
        raise InvalidInputError(
            f"expected {len(known)} columns, which have no names, in the order {names}; got "
            f"{len(columns)}",
            param=place,
        )


def _one(rows: _Columns, number: int, start: int, end: int) -> object:
    """The value of a static covariate, the same in all rows of a series."""
    values = rows[number][start:end]
    other = next((row for row, value in enumerate(values) if value != values[0]), None)
    if other is not None:
        raise InvalidInputError(
            f"expected one value in all rows of a series, got {shown(values[0])} and "
            f"{shown(values[other])}",
            param=f"series.X[{number}][{start + other}]",
        )
    return values[0]
