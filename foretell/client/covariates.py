"""The covariates of a series as fields of an input in JSON."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from foretell.bundle.covariates import by_name
from foretell.client.cards import ModelCard
from foretell.client.errors import InvalidInputError
from foretell.client.frames import check_column

# The place of a covariate in a request: number of the input, kind, name, and row.
PLACE = re.compile(r"inputs\[(\d+)\]\.(\w+)_covariates\.(.+?)(?:\[(\d+)\])?$", re.DOTALL)


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
    known = [
        any(_known(value) is not None for value in each) for each in zip(*columns, strict=True)
    ]
    return len(table) - known[::-1].index(True) if any(known) else len(table)


def fields(
    table: pa.Table, rows: pa.Array, count: int, card: ModelCard
) -> dict[str, dict[str, object]]:
    """The fields of covariates.

    Args:
        table: The whole frame.
        rows: Rows of one series, and of its future.
        count: Number of rows before the future.
        card: Card of the model.

    Raises:
        InvalidInputError: a column is missing or has a wrong type, or a static covariate
            misses a value or has several.
    """
    known = card.covariates
    past = by_name(known.past, table.column_names)
    found: dict[str, dict[str, object]] = {
        "past_covariates": {each.name: _values(table, rows[:count], each.name) for each in past},
        "future_covariates": {each.name: _values(table, rows, each.name) for each in known.future},
        "static_covariates": {each.name: _one(table, rows, each.name) for each in known.static},
    }
    return {name: values for name, values in found.items() if values}


def _values(table: pa.Table, rows: pa.Array, name: str) -> list[Any]:
    """Values of some rows; NaN is missing, as null is."""
    check_column(name, table.column_names)
    kind = table[name].type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_temporal(kind) or pa.types.is_nested(kind) or pa.types.is_decimal(kind):
        raise InvalidInputError(
            f"expected a column of numbers, booleans or names, got {kind}", place=name
        )
    return [_known(value) for value in table[name].take(rows).to_pylist()]


def _known(value: Any) -> Any:  # noqa: ANN401 - of any type
    # NaN differs from itself.
    return value if value == value else None


def _one(table: pa.Table, rows: pa.Array, name: str) -> object:
    values = _values(table, rows, name)
    for row, value in zip(rows.to_pylist(), values, strict=True):
        if value is None:
            raise InvalidInputError("a value is missing", place=f"{name}[{row}]")
        if value != values[0]:
            raise InvalidInputError(
                f"expected one value in all rows of a series, got {values[0]!r} and {value!r}",
                place=f"{name}[{row}]",
            )
    return values[0]
