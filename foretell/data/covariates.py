"""Columns of a table that hold covariates, as codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.bundle.covariates import Covariate
from foretell.bundle.nearness import suggestion
from foretell.data.categories import cells_of, check_count, meant
from foretell.data.cells import Cells
from foretell.data.errors import DataError
from foretell.data.missing import NO_CATEGORY
from foretell.data.numbers import Numbers, is_text, read_numbers

_WORDS = frozenset(("true", "false"))


class Kinds(NamedTuple):
    """Names of the columns of covariates, by kind.

    Attributes:
        known: Covariates of a model by name: their columns are read as booleans or categories as
            theirs are.
    """

    future: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    known: Mapping[str, Covariate] = MappingProxyType({})

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all kinds."""
        return self.future + self.past + self.static

    def is_channel(self, name: str) -> bool:
        """Whether a name is that of a past covariate's channel, which may be no column."""
        return any(name == past or name.startswith(f"{past}=") for past in self.past)


class Column(NamedTuple):
    """A column of covariates.

    Attributes:
        covariate: Its name, type and categories, not scaled.
        codes: `[rows]`, NaN where a value is missing or wrong.
        missing: `[rows]`, whether a value is missing.
    """

    covariate: Covariate
    codes: NDArray[np.float64]
    missing: NDArray[np.bool_]


def read_column(cells: Cells, name: str, known: Covariate | None = None) -> Column:
    """Read a column of numbers, of true and false, or of categories.

    Args:
        cells: The table; problems of rows are added to its problems.
        name: Name of the column.
        known: Covariate of a model. For a category the column holds categories: its own come
            first, the others follow, sorted. For a boolean 0 and 1 are false and true.

    Raises:
        DataError: the column does not exist, holds times, has no values or too many categories.
    """
    if name not in cells.frame:
        there = [str(each) for each in cells.frame.columns]
        raise DataError(f"no column {name!r} for a covariate; {suggestion(name, there)}")
    column = cells.frame[name]
    if pd.api.types.is_datetime64_any_dtype(column) or isinstance(column.dtype, pd.PeriodDtype):
        raise DataError(f"column {name!r} holds times and no covariate; write numbers or names")
    if not column.notna().any():
        raise DataError(f"column {name!r} has no values; leave it out of the covariates")
    numbers = read_numbers(column, cells.decimal)
    categories = known.categories if known is not None else ()
    if not is_text(column):
        is_boolean = pd.api.types.is_bool_dtype(column)
        if categories:
            return _of_values(name, numbers, categories, is_boolean=is_boolean)
        covariate = Covariate(name=name, type="boolean" if is_boolean else "number")
    else:
        texts = column.map(str, na_action="ignore").astype(object).str.strip()
        named = texts[texts.notna() & ~texts.isin(NO_CATEGORY)]
        if categories:
            return _of_texts(name, texts, named, categories)
        if len(named) and {*named.str.lower().unique()} <= _WORDS:
            covariate = Covariate(name=name, type="boolean")
        elif isinstance(column.dtype, pd.CategoricalDtype) or not (
            numbers.mostly and np.isfinite(numbers.values).any()
        ):
            return _of_texts(name, texts, named, ())
        else:
            covariate = Covariate(name=name)
    cells.report_wrong(name, numbers)
    values = numbers.values[~(numbers.missing | numbers.wrong)]
    if known is not None and known.type == "boolean" and np.isin(values, (0, 1)).all():
        covariate = Covariate(name=name, type="boolean")
    return Column(covariate, numbers.values, numbers.missing)


def _of_texts(name: str, texts: pd.Series, there: pd.Series, known: Sequence[str]) -> Column:
    if not len(there):
        raise DataError(f"column {name!r} has no values; leave it out of the covariates")
    missing = ~texts.index.isin(there.index)
    places, cells = pd.factorize(there)
    return _coded(name, [*cells], places, missing, known)


def _of_values(name: str, numbers: Numbers, known: Sequence[str], *, is_boolean: bool) -> Column:
    missing = numbers.missing | numbers.wrong
    cells, places = cells_of(numbers.values[~missing], is_boolean=is_boolean)
    return _coded(name, cells, places, missing, known)


def _coded(
    name: str,
    cells: Sequence[str | float | bool],
    places: NDArray[np.intp],
    missing: NDArray[np.bool_],
    known: Sequence[str],
) -> Column:
    """A column of categories from its different cells, and their places in the rows with one."""
    try:
        names = meant(cells, known)
    except DataError as error:
        raise DataError(f"column {name!r}: {error}") from None
    others = sorted({*names} - {*known})
    check_count(name, len(others))
    categories = (*known, *others)
    of = {each: code for code, each in enumerate(categories)}
    codes = np.full(len(missing), np.nan)
    codes[~missing] = np.array([of[each] for each in names], np.float64)[places]
    return Column(Covariate(name=name, type="category", categories=categories), codes, missing)


def read_past(
    cells: Cells, name: str, channels: Sequence[str] | None, known: Covariate | None = None
) -> Column:
    """Read a past covariate, known or with the categories of the wanted channels first.

    Raises:
        DataError: as `read_column`.
    """
    prefix = f"{name}="
    wanted = [each.removeprefix(prefix) for each in channels or () if each.startswith(prefix)]
    if wanted and known is None:
        known = Covariate(name=name, type="category", categories=tuple(wanted))
    return read_column(cells, name, known)


def read_static(
    cells: Cells,
    name: str,
    series: NDArray[np.int64],
    names: Sequence[str],
    known: Covariate | None = None,
) -> tuple[Covariate, NDArray[np.float64]]:
    """A static covariate, and its code `[series]`; NaN after a problem.

    Args:
        cells: The table; a series without a value, or with two, is added to its problems.
        name: Name of the column.
        series: `[rows]`, the number of each row's series.
        names: Names of the series.
        known: Covariate of a model, as for `read_column`.

    Raises:
        DataError: as `read_column`.
    """
    covariate, codes, missing = read_column(cells, name, known)
    labels = cells.frame.index.to_numpy(np.int64)
    found = np.full(len(names), np.nan)
    for place, own in _rows_of(series, len(names)):
        there = own[~np.isnan(codes[own])]
        of = f" of series {names[place]!r}" if names[place] else ""
        if not len(there):
            # The reader names wrong cells.
            if missing[own].all():
                cells.problems.add(f"no value{of}; write one", labels[own], name)
            continue
        found[place] = codes[there[0]]
        others = there[codes[there] != found[place]]
        if len(others):
            first, other = (str(cells.frame[name].iloc[row]) for row in (there[0], others[0]))
            cells.problems.add(
                f"{other!r} besides {first!r}{of}; a static covariate has one value for each "
                "series: correct it, or read it with --future-covariates or --past-covariates",
                labels[others],
                name,
            )
    return covariate, found


def _rows_of(series: NDArray[np.int64], count: int) -> Iterable[tuple[int, NDArray[np.intp]]]:
    """Number and rows of each series."""
    order = np.argsort(series, kind="stable")
    starts = np.searchsorted(series[order], np.arange(count + 1))
    for place in range(count):
        yield place, order[starts[place] : starts[place + 1]]
