"""Covariates of a model: categories and scale of the training rows, and codes in other rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.covariates import NO_COVARIATES, Covariate, Covariates
from foretell.data.categories import cells_of, meant
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.splits import Span

Codes = NDArray[np.float64]


def fit_covariates(panel: Panel, train: Iterable[Span], *, other: bool = False) -> Covariates:
    """The covariates of a panel with categories, means and deviations of the training rows.

    Past covariates are channels and have the scaler of channels.

    Args:
        panel: The data, with covariates.
        train: The training rows.
        other: Whether other categories are read as one; without it they are refused.
    """
    known = panel.covariates or NO_COVARIATES
    spans = list(train)
    tables = [panel.tables[span.table] for span in spans]
    future = _joined(
        None if table.covariates is None else table.covariates[span.start : span.end]
        for table, span in zip(tables, spans, strict=True)
    )
    # One value for each series, not for each row.
    by_series = {table.series: table.static for table in tables}
    static = _joined(None if own is None else own[None] for own in by_series.values())
    values = np.concatenate(
        [table.values[span.start : span.end] for table, span in zip(tables, spans, strict=True)]
    )
    past = []
    for each in known.past:
        at = [panel.channels.index(name) for name in each.channels]
        past.append(_chosen(each, np.flatnonzero(values[:, at].any(axis=0)), other=other))
    return Covariates(
        future=tuple(_fit(*pair, other=other) for pair in zip(known.future, future.T, strict=True)),
        past=tuple(past),
        static=tuple(_fit(*pair, other=other) for pair in zip(known.static, static.T, strict=True)),
    )


def _joined(parts: Iterable[Codes | None]) -> Codes:
    return np.concatenate([np.empty((1, 0)) if part is None else part for part in parts])


def _fit(covariate: Covariate, codes: Codes, *, other: bool) -> Covariate:
    if covariate.type != "number":
        return _chosen(covariate, np.unique(codes).astype(int), other=other)
    # Not `std == 0`: rounding gives a constant such as 0.1 a tiny deviation.
    std = 1.0 if codes.min() == codes.max() else float(codes.std())
    return covariate.model_copy(update={"mean": float(codes.mean()), "std": std})


def _chosen(covariate: Covariate, places: NDArray[np.intp], *, other: bool) -> Covariate:
    if covariate.type != "category":
        return covariate
    categories = tuple(covariate.categories[place] for place in places)
    return covariate.model_copy(update={"categories": categories, "other": other})


def recoded(panel: Panel, covariates: Covariates | None) -> Panel:
    """A panel with the covariates of a model, in its order, and with its codes.

    Args:
        panel: The data, with covariates of these names.
        covariates: Covariates of the model; without any, the panel is returned unchanged.

    Raises:
        DataError: the panel lacks a covariate, its type is another, or a category is refused. The
            message names the first row.
    """
    if covariates is None or panel.covariates == covariates:
        return panel
    known = panel.covariates or NO_COVARIATES
    panel = _with_channels(panel, known.past, covariates.past)
    rows = [table.covariates for table in panel.tables]
    series = [None if table.static is None else table.static[None] for table in panel.tables]
    future = _codes(panel, "future", covariates.future, known.future, rows)
    static = _codes(panel, "static", covariates.static, known.static, series)
    names = [each.name for each in known.future]
    places = [names.index(each.name) for each in covariates.future]
    tables = tuple(
        replace(
            table,
            covariates=own,
            covariates_filled=_columns(table.covariates_filled, places),
            static=None if one is None else one[0],
            ahead=None,
        )
        for table, own, one in zip(panel.tables, future, static, strict=True)
    )
    return replace(panel, tables=tables, covariates=covariates)


def _columns(flags: NDArray[np.bool_] | None, places: Sequence[int]) -> NDArray[np.bool_] | None:
    return flags[:, places] if flags is not None and flags[:, places].any() else None


def _codes(
    panel: Panel,
    kind: str,
    wanted: Sequence[Covariate],
    known: Sequence[Covariate],
    given: Sequence[Codes | None],
) -> Sequence[Codes | None]:
    """Codes of the model's covariates `[rows, covariates]`, for each table.

    Args:
        panel: The data.
        kind: Kind of the covariates, for messages.
        wanted: Covariates of the model.
        known: Covariates of the panel.
        given: Their codes, for each table; one row if they are static.
    """
    parts = [part for part in given if part is not None]
    if not wanted:
        return [None] * len(given)
    places = {each.name: place for place, each in enumerate(known)}
    for each in wanted:
        if each.name not in places:
            raise DataError(
                f"the data lacks the {kind} covariate {each.name!r}; --{kind}-covariates names its "
                "column"
            )
    joined = np.concatenate(parts)
    columns = [
        _column(panel, kind, each, known[places[each.name]], joined[:, places[each.name]])
        for each in wanted
    ]
    ends = np.cumsum([len(part) for part in parts])
    return np.split(np.column_stack(columns), ends[:-1])


def _column(panel: Panel, kind: str, covariate: Covariate, own: Covariate, codes: Codes) -> Codes:
    name = covariate.name
    if covariate.type == "boolean" and own.type == "number" and np.isin(codes, (0, 1)).all():
        return codes
    if covariate.type == "number" and own.type == "boolean":
        return codes
    if covariate.type == "category" and own.type != "category":
        own, codes = _by_name(kind, covariate, own, codes)
    if covariate.type != own.type:
        raise _other_type(kind, covariate, own)
    if covariate.type != "category":
        return codes
    of = {each: code for code, each in enumerate(covariate.categories)}
    names = _meant(kind, covariate, own.categories)
    new = np.array([of.get(each, len(of)) for each in names], np.float64)
    found: Codes = new[codes.astype(int)]
    if not covariate.other and (unknown := np.flatnonzero(found == len(of))).size:
        row = int(unknown[0])
        if kind == "future":
            where = f"first at {panel.time_of(row)}"
        else:
            where = f"of series {panel.tables[row].series!r}"
        raise DataError(_unseen(kind, name, names[int(codes[row])], where))
    return found


def _by_name(kind: str, wanted: Covariate, own: Covariate, codes: Codes) -> tuple[Covariate, Codes]:
    """A covariate of numbers or booleans as one of categories."""
    cells, places = cells_of(codes, is_boolean=own.type == "boolean")
    names = _meant(kind, wanted, cells)
    categories = tuple(dict.fromkeys(names))
    new = np.array([categories.index(each) for each in names], np.float64)
    return own.model_copy(update={"type": "category", "categories": categories}), new[places]


def _meant(kind: str, wanted: Covariate, cells: Sequence[str | float | bool]) -> list[str]:
    try:
        return meant(cells, wanted.categories)
    except DataError as error:
        raise DataError(f"{kind} covariate {wanted.name!r}: {error}") from None


def _other_type(kind: str, wanted: Covariate, own: Covariate) -> DataError:
    return DataError(
        f"{kind} covariate {wanted.name!r}: expected a {wanted.type}, and the column holds "
        f"{_PLURALS[own.type]}"
    )


def _with_channels(panel: Panel, given: Sequence[Covariate], wanted: Sequence[Covariate]) -> Panel:
    """The panel with the channels of the model's categories."""
    by_name = {each.name: each for each in given}
    left_out = {name for each in given for name in each.channels}
    for each in wanted:
        left_out -= {*each.channels}
        own = by_name.get(each.name)
        if own is None:
            continue
        if each.type == own.type == "category":
            if not each.other:
                _check_categories(panel, each, own)
        elif "category" in (each.type, own.type) or (
            each.type == "boolean" and not np.isin(_rows(panel, each.name), (0, 1)).all()
        ):
            raise _other_type("past", each, own)
    return panel.select([name for name in panel.channels if name not in left_out])


def _check_categories(panel: Panel, wanted: Covariate, own: Covariate) -> None:
    for category, name in zip(own.categories, own.channels, strict=True):
        if category not in wanted.categories and (rows := _rows(panel, name)).any():
            where = f"first at {panel.time_of(int(rows.argmax()))}"
            raise DataError(_unseen("past", wanted.name, category, where))


def _rows(panel: Panel, channel: str) -> Codes:
    column = panel.channels.index(channel)
    return np.concatenate([table.values[:, column] for table in panel.tables])


def _unseen(kind: str, name: str, category: str, where: str) -> str:
    return (
        f"{kind} covariate {name!r}: {category!r} is no category of the training rows, {where}; "
        "correct it, take such rows into the training split, or train with "
        "--set unseen_categories=other"
    )


_PLURALS = {"number": "numbers", "boolean": "true and false", "category": "categories"}
