"""The covariates of a file's series, as fields of an input in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.covariates import NO_COVARIATES, besides
from foretell.bundle.covariates import Covariate as Column
from foretell.bundle.nearness import listed
from foretell.client.cards import Covariate, ModelCard
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.table import Table

Codes = NDArray[np.float64]


def channels_of(card: ModelCard) -> tuple[str, ...]:
    """The channels of a model that are columns.

    Past booleans and categories are read from a column of their name, and not from their channels.
    """
    return tuple(besides(card.channels, _by_name(card)))


def columns_of(card: ModelCard) -> dict[str, tuple[str, ...]]:
    """The reading options for the channels and covariates of a model."""
    known = card.covariates
    kinds = {"future": known.future, "past": known.past, "static": known.static}
    return {"channels": channels_of(card)} | {
        f"{kind}_covariates": tuple(each.name for each in covariates)
        for kind, covariates in kinds.items()
    }


def known_of(card: ModelCard) -> dict[str, Column]:
    """The booleans and categories of a model by name, as which columns are read."""
    own = card.covariates
    return {
        each.name: Column(
            name=each.name,
            type="category" if each.categories else "boolean",
            categories=each.categories,
        )
        for each in (*own.future, *own.past, *own.static)
        if each.categories or each.type == "boolean"
    }


def _by_name(card: ModelCard) -> list[Covariate]:
    return [each for each in card.covariates.past if each.type != "number"]


def fields_of(
    table: Table, rows: slice, steps: int, panel: Panel, card: ModelCard
) -> dict[str, Any]:
    """The fields of an input besides its series and its times.

    Args:
        table: The series.
        rows: Its rows that are sent.
        steps: Steps after them, for which the model reads future covariates.
        panel: The data of the file.
        card: Card of the model.

    Raises:
        DataError: future covariates are not known for all steps.
    """
    own, known = panel.covariates or NO_COVARIATES, card.covariates
    fields: dict[str, Any] = {}
    if known.future:
        codes = _future(table, rows, steps, card)
        fields["future_covariates"] = {
            name: _values(column, wanted, codes[:, at])
            for name, (at, column, wanted) in _matched(own.future, known.future).items()
        }
    if known.static and table.static is not None:
        fields["static_covariates"] = {
            name: _values(column, wanted, table.static[[at]])[0]
            for name, (at, column, wanted) in _matched(own.static, known.static).items()
        }
    if by_name := _by_name(card):
        values = table.history(rows.start, rows.stop)
        fields["channels"] = channels_of(card)
        fields["past_covariates"] = {
            name: _values(column, wanted, _codes(values, table.channels, column))
            for name, (_, column, wanted) in _matched(own.past, by_name).items()
        }
    return fields


def _matched(
    own: Sequence[Column], known: Sequence[Covariate]
) -> dict[str, tuple[int, Column, Covariate]]:
    """Place and column of each covariate in the data."""
    by_name = {each.name: each for each in known}
    return {
        each.name: (at, each, by_name[each.name])
        for at, each in enumerate(own)
        if each.name in by_name
    }


def _future(table: Table, rows: slice, steps: int, card: ModelCard) -> Codes:
    """Codes `[rows + steps, future]` from the first of the rows on."""
    assert table.covariates is not None  # noqa: S101 - the panel has them
    codes = table.covariates
    if table.ahead is not None:
        codes = np.concatenate([codes, table.ahead])
    found = len(codes) - rows.stop
    if found < steps:
        of = f" of series {table.series}" if table.series else ""
        names = listed([each.name for each in card.covariates.future])
        raise DataError(
            f"expected {steps} rows after {table.timestamps[rows.stop - 1].astype('M8[s]')}{of}, "
            f"with values of {names}, which {card.name} reads for whole horizons of "
            f"{card.horizon}; got {found}"
        )
    return codes[rows.start : rows.stop + steps]


def _codes(values: Codes, channels: Sequence[str], column: Column) -> Codes:
    """The codes `[rows]` of a past covariate, from its channels."""
    own = values[:, [channels.index(name) for name in column.channels]]
    if column.type != "category":
        return own[:, 0]
    codes: Codes = own.argmax(axis=1).astype(np.float64)
    return codes


def _values(column: Column, wanted: Covariate, codes: Codes) -> list[Any]:
    """Values of codes, of the model's type where the column's type means the same."""
    if column.type == "category":
        return [column.categories[int(code)] for code in codes]
    if column.type == "boolean" and wanted.type != "number":
        return [bool(code) for code in codes]
    return [*codes.tolist()]
