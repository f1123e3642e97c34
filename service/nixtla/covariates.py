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


def check_steps(h: int, manifest: Manifest) -> None:
    """Refuse `h` unless it is a multiple of the model's horizon, if it reads future covariates."""
    known, horizon = manifest.covariates or NO_COVARIATES, manifest.horizon
    if known.future and h % horizon:
        whole = -(-h // horizon) * horizon
        raise InvalidInputError(
            f"{manifest.name} reads the future of {_names(known.future)} for {whole} steps; pass "
            f"h={whole}, with {whole} rows of each series in X_df, and use the first {h} forecasts",
            param="h",
        )


def fields_of(series: Series, steps: int, manifest: Manifest) -> list[dict[str, Any]]:
    """The fields of covariates of each series.

    `steps` are those after the rows, without any in a cross-validation. InvalidInputError: the
    columns are not those of the model. NotSupportedError: it reads no columns.
    """
    given = series.X, series.X_future, series.categorical_exog
    known, name = manifest.covariates or NO_COVARIATES, manifest.name
    if not (known.future or known.static):
        if any(value is not None for value in given):
            raise NotSupportedError(
                f"{name} reads no covariates; send only the id, the time and the target",
                param="series.X",
            )
        return [{} for _ in series.sizes]
    if series.X is None:
        names = _names([*known.future, *known.static])
        raise InvalidInputError(
            f"required: {name} reads the columns {names}; send them with the target",
            param="series.X",
        )
    rows = _columns(series.X, "series.X", sum(series.sizes))
    order = _in_order([*known.future, *known.static], rows, series.categorical_exog or [])
    later = _later(series, steps, known.future, name)
    found = []
    for index, end in enumerate(accumulate(series.sizes)):
        start, first = end - series.sizes[index], index * steps
        future_values = {
            each.name: rows[order[each.name]][start:end]
            + later.get(each.name, [])[first : first + steps]
            for each in known.future
        }
        static = {each.name: _one(rows, order[each.name], start, end) for each in known.static}
        found.append({"future_covariates": future_values, "static_covariates": static})
    return found


def _later(
    series: Series, steps: int, known: Sequence[Covariate], name: str
) -> dict[str, list[Any]]:
    """The columns of the steps after the rows, by name."""
    place, given = "series.X_future", series.X_future
    if not (known and steps):
        if given is not None:
            raise InvalidInputError(
                f"leave it out: {name} reads the columns of the rows alone here", param=place
            )
        return {}
    if given is None:
        raise InvalidInputError(
            f"required: {name} reads the future of {_names(known)}; pass X_df with {steps} rows of "
            "each series",
            param=place,
        )
    after = _columns(given, place, steps * len(series.sizes))
    future = sorted(known, key=lambda each: each.type == "category")
    _check_count(after, future, place)
    return {each.name: column for each, column in zip(future, after, strict=True)}


def _names(known: Sequence[Covariate]) -> str:
    return listed([each.name for each in known])


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
            f"expected {len(named)} columns of categories ({_names(named)})"
            f", got {len(categories)}; pass categorical_exog_list",
            param="series.categorical_exog",
        )
    order = zip([*wanted, *named], [*numbers, *categories], strict=True)
    return {each.name: number for each, number in order}


def _check_count(columns: _Columns, known: Sequence[Covariate], place: str) -> None:
    if len(columns) != len(known):
        raise InvalidInputError(
            f"expected {len(known)} columns, which have no names, in the order {_names(known)}; "
            f"got {len(columns)}",
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
