"""Exogenous columns of NeuralForecast models, as covariates.

The library scales numbers by the scaler of windows and leaves static columns as they are. It reads
numbers in the order of its lists, and embeds categories behind them. Here the tables of categories
are multiplied into the weights that read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from foretell.bundle.covariates import Covariate, CovariateKind, Covariates
from foretell.importers.errors import ImporterError
from foretell.importers.neuralforecast_folder import CONFIGURATION, Member

LISTS: Mapping[CovariateKind, str] = {
    "future": "futr_exog_list",
    "past": "hist_exog_list",
    "static": "stat_exog_list",
}
_CATEGORIES = "cat_exog_list"
_PREFIXES = {"futr_exog_list": "futr_", "stat_exog_list": "stat_"}
_VOCABULARY = "categorical_vocab_"


Readers = Mapping[CovariateKind, Sequence[str]]


def read_covariates(found: Member, readers: Mapping[str, Readers]) -> Covariates:
    """The covariates of a model, numbers before categories.

    Args:
        found: The model.
        readers: Kinds of covariates that are served, by the class of the model, each with the keys
            of the weights that read categories.

    Raises:
        ImporterError: a column cannot be served; the message begins with its list.
    """
    for kind, name in LISTS.items():
        if (columns := found.arguments.get(name)) and kind not in readers[found.kind]:
            known = ", ".join(
                f"{model} ({', '.join(LISTS[one] for one in kinds)})"
                for model, kinds in readers.items()
                if kinds
            )
            raise ImporterError(
                f"{name} {_shown(columns)}: exogenous columns of {found.kind} are not served; "
                f"those of {known} are"
            )
    columns = {kind: _columns(found, name) for kind, name in LISTS.items()}
    names = [column for each in columns.values() for column in each]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ImporterError(f"{min(twice)}: is in two lists of columns; train with it in one")
    if names:
        _check_scalers(found.settings, static=bool(columns["static"]))
    served = readers[found.kind]
    kinds = {
        kind: tuple(_covariate(found, kind, column, served) for column in each)
        for kind, each in columns.items()
    }
    return Covariates(**kinds)


def of_series(covariates: Covariates, series: Sequence[str] | None) -> Covariates:
    """Covariates of series that are read together: one of each series, named after it.

    Args:
        covariates: Covariates of each series.
        series: Names of the series, if they are known.

    Raises:
        ImporterError: series have covariates and no names.
    """
    if covariates == Covariates() or (series is not None and len(series) == 1):
        return covariates
    if series is None:
        raise ImporterError(
            f"{CONFIGURATION}: has no ids of the series, which name their covariates; save the "
            "model with its data set"
        )

    def named(each: Covariate, one: str) -> Covariate:
        return each.model_copy(update={"name": f"{each.name} of {one}"})

    return Covariates(
        past=tuple(named(each, one) for each in covariates.past for one in series),
        static=tuple(named(each, one) for one in series for each in covariates.static),
    )


def _columns(found: Member, name: str) -> list[str]:
    """Columns of a list, numbers before categories, each in the order of its list."""
    columns = found.arguments.get(name) or []
    categories = found.arguments.get(_CATEGORIES) or []
    numbers = [column for column in columns if column not in categories]
    return [*map(str, numbers), *(str(column) for column in categories if column in columns)]


def _check_scalers(settings: Mapping[str, Any], *, static: bool) -> None:
    """Refuse scalers of columns that depend on the table of each prediction."""
    names = ["local_scaler_type", "local_static_scaler_type"][: 1 + static]
    for name in names:
        if settings.get(name) is not None:
            raise ImporterError(
                f"{name} {settings[name]}: it scales exogenous columns by each table that is "
                "predicted; train with scaler_type"
            )


def _covariate(found: Member, kind: CovariateKind, column: str, readers: Readers) -> Covariate:
    if column not in (found.arguments.get(_CATEGORIES) or []):
        return Covariate(name=column)
    if not readers[kind]:
        raise ImporterError(
            f"{_CATEGORIES} {column}: categories of {LISTS[kind]} are not served for {found.kind}; "
            "train with them as numbers"
        )
    return Covariate(name=column, type="category", categories=_categories(found.settings, column))


def _categories(settings: Mapping[str, Any], column: str) -> tuple[str, ...]:
    """Names of the categories of a column, in the order of their codes in the library."""
    vocabulary = settings.get(_VOCABULARY)
    codes = vocabulary.get(column) if isinstance(vocabulary, Mapping) else None
    if isinstance(codes, Mapping):
        # Keys that are not text are pairs in a list.
        codes = codes.get("items") if "__nf__" in codes else list(codes.items())
    try:
        found = sorted((int(code), str(name)) for name, code in codes or [])
    except (TypeError, ValueError):
        found = []
    if not found or [code for code, _ in found] != [*range(1, len(found) + 1)]:
        raise ImporterError(f"{CONFIGURATION}: {_VOCABULARY} of {column}: expected its categories")
    return tuple(name for _, name in found)


def with_categories(
    state: Mapping[str, Tensor],
    covariates: Covariates,
    readers: Readers,
) -> dict[str, Tensor]:
    """Weights that read one feature for each category, without the tables of categories.

    Args:
        state: Weights of the library, by key.
        covariates: Covariates of the model.
        readers: Keys of the weights whose last columns read the covariates of a kind.

    Raises:
        ImporterError: a table is missing or has another shape.
    """
    state = dict(state)
    for kind, name in LISTS.items():
        tables: list[Tensor] = []
        for covariate in getattr(covariates, kind):
            if covariate.type != "category":
                continue
            key = f"{_PREFIXES[name]}cat_embeddings.{len(tables)}.weight"
            table = state.pop(key, None)
            if table is None or table.ndim != 2 or len(table) <= len(covariate.categories):
                raise ImporterError(
                    f"{key}: expected a table of {len(covariate.categories) + 1} rows or more"
                )
            # The first row is of categories that training never saw.
            tables.append(table[1 : 1 + len(covariate.categories)])
        for key in readers.get(kind, ()) if tables else ():
            if key in state:
                state[key] = _multiplied(state[key], tables)
    return state


def _multiplied(weight: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """A weight whose last columns, which read rows of tables, read categories instead."""
    widths = [table.shape[1] for table in tables]
    if weight.ndim != 2 or sum(widths) > weight.shape[1]:
        # The size is wrong; `load_weights` refuses the key.
        return weight
    numbers, *parts = torch.split(weight, [weight.shape[1] - sum(widths), *widths], dim=1)
    products = [
        (part.double() @ table.double().T).to(weight.dtype)
        for part, table in zip(parts, tables, strict=True)
    ]
    return torch.cat([numbers, *products], dim=1)


def _shown(columns: object) -> str:
    return ", ".join(map(str, columns)) if isinstance(columns, list) else str(columns)
