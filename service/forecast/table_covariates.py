"""The covariates of tables: columns by name become the codes of each series."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from foretell.bundle.covariates import NO_COVARIATES, Covariate, besides, by_name
from foretell.bundle.manifest import Manifest
from foretell.bundle.nearness import listed
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.codes import Codes, PastColumn, SeriesCovariates
from foretell.service.forecast.columns import (
    ID,
    MISSING,
    Groups,
    find_column,
    is_text,
    read_numbers,
    read_values,
)
from foretell.service.forecast.covariates import places_of
from foretell.service.forecast.futures import Column, FutureReader
from foretell.service.forecast.options import Options

Floats = NDArray[np.float64]
# The code of a value that has none.
_WRONG = np.inf


@dataclass(frozen=True, slots=True)
class CodedColumn:
    """The column of a covariate.

    Attributes:
        codes: `[rows]`, series by series; NaN where a value is missing, infinite where it is wrong.
    """

    covariate: Covariate
    groups: Groups
    values: pa.ChunkedArray
    codes: Codes

    @classmethod
    def read(cls, table: pa.Table, covariate: Covariate, groups: Groups) -> CodedColumn:
        """Read a column; InvalidInputError: it is missing, or of another type."""
        name = covariate.name
        values = find_column(table, name)
        if covariate.type == "number":
            codes = read_numbers(table, name)
        else:
            read = _booleans if covariate.type == "boolean" else _categories
            codes = read(values, covariate)
        return cls(covariate, groups, values, groups.sort(codes))

    def place(self, position: int) -> str:
        """The place of a value, by its position in `codes`."""
        return f"{self.covariate.name}[{self.groups.row(position)}]"

    def check(self, start: int, end: int, *, gaps: bool) -> None:
        """Raise InvalidInputError if a value of some rows is wrong, or missing without `gaps`."""
        codes = self.codes[start:end]
        if (wrong := np.isinf(codes)).any():
            at = start + int(wrong.argmax())
            try:
                self.covariate.code(self.values[self.groups.row(at)].as_py())
            except ValueError as error:
                raise InvalidInputError(str(error), param=self.place(at)) from None
        if not gaps and (missing := np.isnan(codes)).any():
            at = start + int(missing.argmax())
            raise InvalidInputError(MISSING, param=self.place(at))


def check_columns(table: pa.Table, manifest: Manifest) -> None:
    """Check columns of a table without rows; errors as of `read_values` and `CodedColumn.read`."""
    known = manifest.covariates or NO_COVARIATES
    past = by_name(known.past, table.column_names)
    deque(read_values(table, besides(manifest.channels, past)), 0)
    groups = Groups(table[ID], None, np.zeros(1, np.int64))
    for each in (*known.future, *known.static, *past):
        CodedColumn.read(table, each, groups)


def _booleans(column: pa.ChunkedArray, covariate: Covariate) -> Codes:
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
        raise InvalidInputError(
            f"expected a column of booleans, or of the numbers 0 and 1, got {kind}",
            param=covariate.name,
        )
    codes: Codes = column.cast(pa.float64(), safe=False).to_numpy()
    is_known = np.isnan(codes) | (codes == 0) | (codes == 1)
    return np.where(is_known, codes, _WRONG)


def _categories(column: pa.ChunkedArray, covariate: Covariate) -> Codes:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if not is_text(kind):
        name = covariate.name
        raise InvalidInputError(
            f"expected a column of strings, the names of categories, got {kind}; convert the "
            f"column: df[{name!r}].astype(str), in polars df[{name!r}].cast(pl.String)",
            param=name,
        )
    parts = [np.empty(0)]
    codes, last = parts[0], None
    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type):
            # Record batches share a dictionary.
            if (memory := _memory_of(chunk.dictionary)) != last:
                last = memory
                # The last code is that of a missing value.
                codes = np.append(_codes_of(chunk.dictionary, covariate), np.nan)
            parts.append(codes[chunk.indices.cast(pa.int64()).fill_null(len(codes) - 1)])
        else:
            parts.append(_codes_of(chunk, covariate))
    return np.concatenate(parts)


def _memory_of(array: pa.Array) -> tuple[int, ...]:
    """Offset, length and addresses of an array, which are those of no other one."""
    addresses = (0 if each is None else each.address for each in array.buffers())
    return array.offset, len(array), *addresses


def _codes_of(texts: pa.Array, covariate: Covariate) -> Codes:
    """The codes of strings."""
    # Arrow does not search in views.
    texts = texts.cast(pa.large_string())
    known = pa.array(covariate.categories, pa.large_string())
    codes: Codes = pc.index_in(texts, known).cast(pa.float64()).to_numpy(zero_copy_only=False)
    other = len(covariate.categories) if covariate.other else _WRONG
    is_missing = texts.is_null().to_numpy(zero_copy_only=False)
    return np.where(is_missing, np.nan, np.where(np.isnan(codes), other, codes))


@dataclass(slots=True)
class TableCovariates:
    """Reads the covariates of each series of a table.

    Attributes:
        past: Past booleans and categories with a column of their name; numbers are channels.
        channels: The other channels, in the model's order.
    """

    table: pa.Table
    groups: Groups
    manifest: Manifest
    options: Options
    past: list[CodedColumn] = field(init=False)
    channels: list[str] = field(init=False)
    _future: list[CodedColumn] = field(init=False)
    _static: list[CodedColumn] = field(init=False)
    _futures: FutureReader = field(init=False)
    _has_gaps: bool = field(init=False)
    _places: dict[str, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        known, names = self.manifest.covariates or NO_COVARIATES, {*self.table.column_names}
        self._future = [CodedColumn.read(self.table, each, self.groups) for each in known.future]
        self._static = [CodedColumn.read(self.table, each, self.groups) for each in known.static]
        self.past = []
        for each in by_name(known.past, names):
            if by_channel := names.intersection(each.channels) - {each.name}:
                raise InvalidInputError(
                    f"it is in {listed(sorted(by_channel))}, too; leave out one of both",
                    param=each.name,
                )
            self.past.append(CodedColumn.read(self.table, each, self.groups))
        past = [each.covariate for each in self.past]
        self.channels = besides(self.manifest.channels, past)
        self._futures = FutureReader(self.manifest, self.options)
        self._has_gaps = self.options.missing != "error"
        self._places = places_of(self.manifest)

    @property
    def names(self) -> list[str]:
        """The columns that are read besides `channels`."""
        columns = (*self._future, *self._static, *self.past)
        return [each.covariate.name for each in columns]

    def rows_of(self, values: Floats, start: int) -> int:
        """The number of rows of a series before its future.

        `values` `[rows, columns]` are those of `channels`, from a position on. If the model
        reads future covariates, the rows after the last value of a target have those of the future.
        InvalidInputError: there are more or fewer than the model reads, or no value of a target.
        """
        steps = self._futures.steps
        if not (self._future and steps):
            return len(values)
        targets = {*self.manifest.targets}
        is_target = [name in targets for name in self.channels]
        known = ~np.isnan(values[:, is_target])
        at = np.flatnonzero(known.any(axis=1))
        names = listed(self.manifest.targets)
        if not len(at):
            raise InvalidInputError(
                f"expected a value of {names} in the rows of a series before its future, got none",
                param=f"{self.manifest.targets[0]}[{self.groups.row(start)}]",
            )
        rows = int(at[-1]) + 1
        if (after := len(values) - rows) != steps:
            raise InvalidInputError(
                f"expected {steps} rows after the last value of {names}, with the future "
                f"covariates of the steps after it{self._futures.whole}, got {after}",
                param=f"{ID}[{self.groups.row(start)}]",
            )
        end = start + len(values)
        parts = [*zip(self.channels, values[rows:].T, strict=True)]
        parts += [(each.covariate.name, each.codes[start + rows : end]) for each in self.past]
        for name, part in parts:
            if (wrong := ~np.isnan(part)).any():
                raise InvalidInputError(
                    f"expected null after the last value of {names}: only covariates of the future "
                    "are known there",
                    param=f"{name}[{self.groups.row(start + rows + int(wrong.argmax()))}]",
                )
        return rows

    def read(self, rows: int, start: int) -> SeriesCovariates | None:
        """Read the covariates of a series, from its position in the codes on.

        `rows` are those before the future. Returns None if the model needs none.
        InvalidInputError names the wrong place.
        """
        if not (self._future or self._static or self.past):
            return None
        middle = start + rows
        end = middle + (self._futures.steps if self._future else 0)
        past = [
            PastColumn(
                each.covariate,
                self._places[each.covariate.name],
                each.codes[start:middle],
                self._placed(each, start, middle),
            )
            for each in self.past
        ]
        columns = []
        for each in self._future:
            place = self._placed(each, start, end)
            columns.append(Column(each.codes[start:middle], each.codes[middle:end], place))
        futures = self._futures.fill([("", columns)])
        (future,) = futures.scenarios
        static = np.array([self._one(each, start, end) for each in self._static])
        return SeriesCovariates(
            future.codes, static, futures.rows, past, filled=future.filled, gaps=futures.gaps
        )

    def _placed(self, column: CodedColumn, start: int, end: int) -> Callable[[int], str]:
        """Check some rows of a column; the places of its values, by their rows from there."""
        column.check(start, end, gaps=self._has_gaps)
        return lambda row: column.place(start + row)

    def _one(self, column: CodedColumn, start: int, end: int) -> float:
        """The code of a static covariate, which is the same in all rows of a series."""
        column.check(start, end, gaps=True)
        codes = column.codes[start:end]
        if (missing := np.isnan(codes)).any():
            raise InvalidInputError(
                f"required, but missing: {self.manifest.name} reads it",
                param=column.place(start + int(missing.argmax())),
            )
        if (differs := codes != codes[0]).any():
            at = start + int(differs.argmax())
            one, other = (column.values[self.groups.row(each)].as_py() for each in (start, at))
            name = self.groups.ids[int(np.searchsorted(self.groups.starts, start))].as_py()
            raise InvalidInputError(
                f"expected one value in all rows of a series, got {one!r} and {other!r} in {name}",
                param=column.place(at),
            )
        return float(codes[0])
