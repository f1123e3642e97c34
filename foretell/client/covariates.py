"""The covariates of a series as fields of an input in JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from foretell.client.cards import Covariate, ModelCard
from foretell.client.errors import InvalidInputError


def by_name(table: pa.Table, card: ModelCard) -> list[Covariate]:
    """The past covariates that are no numbers and have a column of their name."""
    past = card.covariates.past
    return [each for each in past if each.type != "number" and each.name in table.column_names]


def rows_before_future(table: pa.Table, targets: list[str], card: ModelCard) -> int:
    """The number of rows up to the last value of a target, if the model knows the rows after it.

    Args:
        table: Rows of one series.
        targets: Columns of the targets.
        card: Card of the model.
    """
    columns = [table[name].to_pylist() for name in targets if name in table.column_names]
    if not (card.covariates.future and columns):
        return len(table)
    missing = (None,) * len(columns)
    rows = [row for row, each in enumerate(zip(*columns, strict=True)) if _known(each) != missing]
    return rows[-1] + 1 if rows else len(table)


def _known(values: tuple[Any, ...]) -> tuple[Any, ...]:
    # NaN differs from itself.
    return tuple(value if value == value else None for value in values)


def fields(table: pa.Table, rows: int, card: ModelCard) -> dict[str, dict[str, object]]:
    """The fields of covariates that the table has columns of.

    Args:
        table: Rows of one series, and of its future.
        rows: Number of rows before the future.
        card: Card of the model.

    Raises:
        InvalidInputError: a static covariate has several values, or a column has a wrong type.
    """
    there = set(table.column_names)
    found: dict[str, dict[str, object]] = {
        "past_covariates": {
            each.name: _values(table, each.name)[:rows] for each in by_name(table, card)
        },
        "future_covariates": {
            each.name: _values(table, each.name)
            for each in card.covariates.future
            if each.name in there
        },
        "static_covariates": {
            each.name: _one(table, each.name)
            for each in card.covariates.static
            if each.name in there
        },
    }
    return {name: values for name, values in found.items() if values}


def _values(table: pa.Table, name: str) -> list[Any]:
    kind = table[name].type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_temporal(kind) or pa.types.is_nested(kind) or pa.types.is_decimal(kind):
        raise InvalidInputError(
            f"expected a column of numbers, booleans or names, got {kind}", place=name
        )
    values: list[Any] = table[name].to_pylist()
    return values


def _one(table: pa.Table, name: str) -> object:
    values = _values(table, name)
    others = [value for value in values if value != values[0]]
    if others and not all(isinstance(each, float) and np.isnan(each) for each in values):
        raise InvalidInputError(
            f"expected one value in all rows of a series, got {values[0]!r} and {others[0]!r}",
            place=f"{name}[{values.index(others[0])}]",
        )
    return values[0]
