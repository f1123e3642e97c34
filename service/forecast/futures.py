"""Reads future covariates of an input: of its rows, and of the steps after them by scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from foretell.bundle.covariates import NO_COVARIATES, Covariate
from foretell.bundle.manifest import Manifest
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.forecast.codes import Codes, Future, fill, read_codes
from foretell.service.forecast.options import Options
from foretell.service.forecast.requests import ScenarioInput
from foretell.service.validation import shown
from foretell.timeaxis.gaps import latest

Given = Mapping[str, Any]
PAST, FUTURE = "past_covariates", "future_covariates"


class Column(NamedTuple):
    """A future covariate of a series.

    Attributes:
        codes: `[rows + steps]`, NaN where a value is missing.
        place: The place in the request of the value of a row or a step.
        has_steps: Whether the request has values for the steps.
    """

    codes: Codes
    place: Callable[[int], str]
    has_steps: bool = True


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
        # A backtest reads the values that came true, in the rows.
        self.steps = 0 if options.is_backtest else options.passes * manifest.horizon
        self._covariates = (manifest.covariates or NO_COVARIATES).future

    def read(
        self, given: Mapping[str, Given], scenarios: Sequence[ScenarioInput], rows: int, at: str
    ) -> list[Future]:
        """Read the future of each scenario, or the only one, of an input with a number of rows.

        The first one has all rows, the others the model's context. `given` has covariates by field
        and name. InvalidInputError names the wrong place.
        """
        if scenarios:
            self._check_scenarios(scenarios, f"{at}.scenarios")
        columns = [
            self._read_column(each, given, rows, at, needs_steps=not scenarios)
            for each in self._covariates
        ]
        if not scenarios:
            return [self.fill("", columns, rows, 0)]
        start, futures = 0, []
        for index, scenario in enumerate(scenarios):
            place = f"{at}.scenarios[{index}]"
            own = self._replaced(columns, scenario.future_covariates or {}, rows, place)
            futures.append(self.fill(scenario.name or f"scenario-{index}", own, rows, start))
            if not index:
                start = self._start(columns, rows)
        return futures

    def _check_scenarios(self, scenarios: Sequence[ScenarioInput], place: str) -> None:
        if self._is_backtest:
            raise InvalidInputError(
                "a backtest reads the covariates that came true; leave scenarios out", param=place
            )
        if not self._covariates:
            raise NotSupportedError(
                f"{self._manifest.name} reads no future covariates, in which scenarios differ",
                param=place,
            )
        names = [each.name or f"scenario-{index}" for index, each in enumerate(scenarios)]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise InvalidInputError(
                    f"expected a name that no other scenario has, got {shown(name)}",
                    param=f"{place}[{index}].name",
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
            return Column(read_codes(covariate, values, place, self._missing), _items(place))
        check_length(past, rows, of_rows)
        codes = read_codes(covariate, past, of_rows, self._missing)
        if values is None:
            codes = np.append(codes, np.full(self.steps, np.nan))
            return Column(codes, _items(of_rows), has_steps=False)
        count = length_of(values, place)
        if self._is_backtest or count != self.steps:
            hint = "leave it out there"
            if not self._is_backtest:
                hint += f", or send the {self.steps} values of the steps after them alone"
            raise InvalidInputError(
                f"got {count} values, and those of the rows in {of_rows}, too; {hint}", param=place
            )
        steps = read_codes(covariate, values, place, self._missing)
        return Column(np.append(codes, steps), _continued(_items(of_rows), rows, place))

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
            codes = np.append(column.codes[:rows], steps)
            own.append(Column(codes, _continued(column.place, rows, place)))
        return own

    def _start(self, columns: Sequence[Column], rows: int) -> int:
        """The first row that the context, or a gap in it, is read from."""
        first = max(0, rows - self._manifest.context)
        is_known = ~np.isnan(np.stack([each.codes[: first + 1] for each in columns], axis=1))
        return int(latest(is_known)[-1].clip(0).min())

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

    def fill(self, name: str, columns: Sequence[Column], rows: int, start: int) -> Future:
        """The future of columns, from a row on, without gaps.

        InvalidInputError names the place of a gap that cannot be filled.
        """
        codes = np.empty((rows + self.steps - start, len(columns)))
        filled: dict[str, int] = {}
        # A backtest reads all rows, a forecast the latest.
        first = 0 if self._is_backtest else max(0, rows - self._manifest.context) - start
        for index, (covariate, column) in enumerate(zip(self._covariates, columns, strict=True)):
            codes[:, index] = column.codes[start:]
            holes = np.isnan(codes[:, index])
            if not holes.any():
                continue
            if self._missing == "mask":
                raise InvalidInputError(
                    "a value is missing, and options.missing 'mask' leaves out values of series "
                    "alone; send it, or set options.missing to 'interpolate' or 'ffill'",
                    param=column.place(start + int(holes.argmax())),
                )
            fill(covariate, codes[:, index], self._missing)
            left = np.isnan(codes[first:, index])
            # Origins before a first value are left out.
            if left.any() and not self._is_backtest:
                raise InvalidInputError(
                    f"no value of {covariate.name!r} comes before it to carry forward"
                    if self._missing == "ffill"
                    else f"{covariate.name!r} has no value",
                    param=column.place(start + first + int(left.argmax())),
                )
            if count := int((holes[first:] & ~left).sum()):
                filled[covariate.name] = count
        return Future(name, codes, filled)


def _items(path: str) -> Callable[[int], str]:
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
