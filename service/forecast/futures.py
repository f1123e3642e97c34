"""Reads future covariates of an input: of its rows, and of the steps after them by scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from foretell.bundle.covariates import NO_COVARIATES, Covariate
from foretell.bundle.manifest import Manifest
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.forecast.codes import (
    NO_CODES,
    Before,
    Codes,
    Future,
    fill,
    known_before,
    read_codes,
)
from foretell.service.forecast.options import Options
from foretell.service.forecast.requests import ScenarioInput
from foretell.service.forecast.scenarios import names_of
from foretell.service.validation import shown
from foretell.timeaxis.gaps import Missing

Given = Mapping[str, Any]
PAST, FUTURE = "past_covariates", "future_covariates"


class Column(NamedTuple):
    """A future covariate of a series.

    Attributes:
        rows: `[rows]`, codes of the series' rows; NaN where a value is missing.
        steps: `[steps]`, of the steps after them.
        place: The place in the request of the value of a row or a step.
        has_steps: Whether the request has values for the steps.
    """

    rows: Codes
    steps: Codes
    place: Callable[[int], str]
    has_steps: bool = True


class Futures(NamedTuple):
    """The future covariates of a series.

    Attributes:
        scenarios: The future of each scenario, or the only one.
        rows: `[rows + steps, future]` of the first for rolling origins, NaN where a value is
            missing; no rows without them.
        gaps: Number of missing values that the model reads, each counted once.
    """

    scenarios: list[Future]
    rows: Codes
    gaps: int


class FutureReader:
    """Reads the future covariates of each input of a request.

    Attributes:
        steps: Steps after the rows of an input, whose covariates the model reads.
    """

    def __init__(self, manifest: Manifest, options: Options) -> None:
        self._manifest = manifest
        self._missing = options.missing
        self._horizon = options.horizon
        self._is_backtest = options.is_backtest
        self._is_rolling = options.rolling is not None
        # A backtest reads the values that came true, in the rows.
        self.steps = 0 if options.is_backtest else options.passes * manifest.horizon
        self._covariates = (manifest.covariates or NO_COVARIATES).future

    def read(
        self, given: Mapping[str, Given], scenarios: Sequence[ScenarioInput], rows: int, at: str
    ) -> Futures:
        """Read the future of each scenario, or the only one, of an input with a number of rows.

        `given` has covariates by field and name. InvalidInputError names the wrong place.
        """
        if scenarios:
            self._check_scenarios(f"{at}.scenarios")
        names = names_of(scenarios, f"{at}.scenarios")
        columns = [
            self._read_column(each, given, rows, at, needs_steps=not scenarios)
            for each in self._covariates
        ]
        if not scenarios:
            return self.fill([("", columns)])
        # One at a time: each needs memory only for what the model reads of it.
        return self.fill(
            (
                names[index],
                self._replaced(
                    columns,
                    scenario.future_covariates or {},
                    rows,
                    f"{at}.scenarios[{index}]",
                ),
            )
            for index, scenario in enumerate(scenarios)
        )

    def _check_scenarios(self, place: str) -> None:
        if self._is_backtest:
            raise InvalidInputError(
                "a backtest reads the covariates that came true; leave scenarios out", param=place
            )
        if not self._covariates:
            raise NotSupportedError(
                f"{self._manifest.name} reads no future covariates, in which scenarios differ",
                param=place,
            )

    def _read_column(
        self,
        covariate: Covariate,
        given: Mapping[str, Given],
        rows: int,
        at: str,
        *,
        needs_steps: bool,
    ) -> Column:
        name = covariate.name
        place, of_rows = f"{at}.{FUTURE}.{name}", f"{at}.{PAST}.{name}"
        values, past = given[FUTURE].get(name), given[PAST].get(name)
        if values is None and (needs_steps or past is None):
            raise InvalidInputError(
                f"required, but missing: {self._manifest.name} reads it; {self._lengths(rows)}",
                param=place,
            )
        if past is None:
            count = length_of(values, place)
            if count != rows + self.steps:
                raise InvalidInputError(f"{self._lengths(rows)}, got {count}", param=place)
            codes = read_codes(covariate, values, place, self._missing)
            return Column(codes[:rows], codes[rows:], items_of(place))
        check_length(past, rows, of_rows)
        codes = read_codes(covariate, past, of_rows, self._missing)
        if values is None:
            return Column(codes, np.empty(0), items_of(of_rows), has_steps=False)
        count = length_of(values, place)
        if self._is_backtest or count != self.steps:
            hint = "leave it out there"
            if not self._is_backtest:
                hint += f", or send the {self.steps} values of the steps after them alone"
            raise InvalidInputError(
                f"got {count} values, and those of the rows in {of_rows}, too; {hint}", param=place
            )
        steps = read_codes(covariate, values, place, self._missing)
        return Column(codes, steps, _continued(items_of(of_rows), rows, place))

    def _replaced(
        self, columns: Sequence[Column], changes: Given, rows: int, at: str
    ) -> list[Column]:
        """The columns with the steps of a scenario at a path."""
        own = []
        for covariate, column in zip(self._covariates, columns, strict=True):
            place = f"{at}.{FUTURE}.{covariate.name}"
            values = changes.get(covariate.name)
            if values is None:
                if not column.has_steps:
                    raise InvalidInputError(
                        f"required, but missing: the input has only its {rows} rows; send the "
                        f"{self.steps} values of the steps after them",
                        param=place,
                    )
                own.append(column)
                continue
            count = length_of(values, place)
            if count != self.steps:
                raise InvalidInputError(
                    f"expected {self.steps} values, for the steps after the rows of series"
                    f"{self.whole}; the rows' come once, in the input; got {count}",
                    param=place,
                )
            steps = read_codes(covariate, values, place, self._missing)
            own.append(Column(column.rows, steps, _continued(column.place, rows, place)))
        return own

    @property
    def whole(self) -> str:
        """The end of a message, if the model reads more steps than requested."""
        if self.steps == self._horizon:
            return ""
        return f", which the model reads for a horizon of {self._horizon}"

    def _lengths(self, rows: int) -> str:
        if self._is_backtest:
            return f"expected {rows} values, those that came true in the rows of series"
        steps = self.steps
        return (
            f"expected {rows + steps} values, {rows} for the rows of series and {steps} for the "
            f"steps after them{self.whole}, or these {steps} with the {rows} in {PAST}"
        )

    def fill(self, scenarios: Iterable[tuple[str, Sequence[Column]]]) -> Futures:
        """The futures of scenarios, each with its name and a column of each covariate.

        All have the same rows. InvalidInputError names the place of a gap that cannot be filled.
        """
        window = _Window(self._manifest.context, self._covariates, self._missing)
        rows, futures = None, []
        for name, columns in scenarios:
            if rows is None:
                rows = self._rows(columns)
            # A backtest reads `rows` alone.
            futures.append(
                Future(name, NO_CODES, {}) if self._is_backtest else window.fill(name, columns)
            )
        assert rows is not None  # noqa: S101 - there is a scenario
        return Futures(futures, rows, window.gaps)

    def _rows(self, columns: Sequence[Column]) -> Codes:
        """The codes of all rows and steps, if windows are cut out of them."""
        if not (self._is_rolling and columns):
            return np.empty((0, len(columns)))
        codes = np.stack([np.append(each.rows, each.steps) for each in columns], axis=1)
        if self._missing == "mask" and (gaps := np.isnan(codes)).any():
            row, column = np.argwhere(gaps)[0].tolist()
            raise _masked(columns[column].place(row))
        return codes


class _Window:
    """Fills what the model reads of a series' future covariates, scenario by scenario.

    Attributes:
        gaps: Number of missing values so far, each counted once: scenarios share those of the rows,
            and of the steps that they do not replace.
    """

    def __init__(self, context: int, covariates: Sequence[Covariate], missing: Missing) -> None:
        self._context = context
        self._covariates = covariates
        self._missing = missing
        # One for each column: all scenarios have the same rows.
        self._before: list[Before | None] = []
        # Arrays by their id, which is theirs while they are held.
        self._counted: dict[int, Codes] = {}
        self.gaps = 0

    def fill(self, name: str, columns: Sequence[Column]) -> Future:
        """The codes of the context and the steps, without gaps."""
        if not self._before:
            self._before = [known_before(each.rows, self._first(each)) for each in columns]
        parts, filled = [], dict[str, int]()
        for covariate, column, before in zip(self._covariates, columns, self._before, strict=True):
            codes = np.append(column.rows[self._first(column) :], column.steps)
            if count := int(np.isnan(codes).sum()):
                self._fill(covariate, column, codes, before)
                self._count(column)
                filled[covariate.name] = count
            parts.append(codes.astype(np.float32))
        return Future(name, np.stack(parts, axis=1) if parts else NO_CODES, filled)

    def _first(self, column: Column) -> int:
        return max(0, len(column.rows) - self._context)

    def _fill(
        self, covariate: Covariate, column: Column, codes: Codes, before: Before | None
    ) -> None:
        first = self._first(column)
        if self._missing == "mask":
            raise _masked(column.place(first + int(np.isnan(codes).argmax())))
        fill(covariate, codes, self._missing, before)
        if (left := np.isnan(codes)).any():
            raise InvalidInputError(
                f"no value of {covariate.name!r} comes before it to carry forward"
                if self._missing == "ffill"
                else f"{covariate.name!r} has no value",
                param=column.place(first + int(left.argmax())),
            )

    def _count(self, column: Column) -> None:
        for part, read in ((column.rows, column.rows[self._first(column) :]), (column.steps,) * 2):
            if id(part) not in self._counted:
                self._counted[id(part)] = part
                self.gaps += int(np.isnan(read).sum())


def _masked(place: str) -> InvalidInputError:
    return InvalidInputError(
        "a value is missing, and options.missing 'mask' leaves out values of series "
        "alone; send it, or set options.missing to 'interpolate' or 'ffill'",
        param=place,
    )


def items_of(path: str) -> Callable[[int], str]:
    """The places of the values of a list at a path."""
    return lambda row: f"{path}[{row}]"


def _continued(before: Callable[[int], str], rows: int, path: str) -> Callable[[int], str]:
    """The places of rows, and of the steps after them in a list at a path."""
    return lambda row: before(row) if row < rows else f"{path}[{row - rows}]"


def length_of(values: object, path: str) -> int:
    if not isinstance(values, list | np.ndarray):
        raise InvalidInputError(f"expected a list of values, got {shown(values)}", param=path)
    return len(values)


def check_length(values: object, rows: int, path: str) -> None:
    """Check that there is a value for each row of series."""
    if (count := length_of(values, path)) != rows:
        raise InvalidInputError(
            f"expected {rows} values, one for each row of series, got {count}", param=path
        )
