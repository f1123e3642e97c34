"""Reads the covariates of an input: lists of values by name become arrays of codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foretell.bundle.covariates import Covariate
from foretell.bundle.manifest import Manifest
from foretell.bundle.nearness import listed, suggestion
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.forecast.codes import (
    NONE,
    Codes,
    SeriesCovariates,
    channels_of,
    fill,
    read_codes,
)
from foretell.service.forecast.options import Options
from foretell.service.forecast.requests import SeriesInput
from foretell.service.validation import shown

Given = Mapping[str, Any]
PAST, FUTURE, STATIC = (f"{kind}_covariates" for kind in ("past", "future", "static"))


class CovariateReader:
    """Reads the covariates of each input of a request."""

    def __init__(self, manifest: Manifest, options: Options) -> None:
        self._manifest = manifest
        self._missing = options.missing
        self._horizon = options.horizon
        # A backtest reads the values that came true, in the rows.
        self._ahead = 0 if options.is_backtest else options.passes * manifest.horizon
        self._is_backtest = options.is_backtest
        known = manifest.covariates or NONE
        self._future, self._static = known.future, known.static
        self._past = manifest.past_covariates
        self._known = {
            PAST: {each.name for each in (*self._past, *self._future)},
            FUTURE: {each.name for each in self._future},
            STATIC: {each.name for each in self._static},
        }

    def read(self, entry: SeriesInput, at: str) -> SeriesCovariates | None:
        """Read the covariates of an input at a path; InvalidInputError names the wrong place.

        None if the model needs none and none were sent.
        """
        given: dict[str, Given] = {name: getattr(entry, name) or {} for name in self._known}
        if not (self._future or self._static or any(given.values())):
            return None
        for place, values in given.items():
            self._check_names(values, place, at)
        rows = len(entry.series)
        read = SeriesCovariates(
            self._read_future(given, rows, at),
            self._read_static(given[STATIC], f"{at}.{STATIC}"),
            np.empty((rows, 0)),
        )
        if self._future:
            read.filled = self._fill_future(read.future, given, rows, at)
        past = [each for each in self._past if each.name in given[PAST]]
        if past:
            self._read_past(past, given[PAST], read, f"{at}.{PAST}")
        return read

    def _check_names(self, given: Given, place: str, at: str) -> None:
        known = self._known[place]
        for name in given:
            if name in known:
                continue
            if not any(self._known.values()):
                raise NotSupportedError(
                    f"{self._manifest.name} reads no covariates; leave them out",
                    param=f"{at}.{place}",
                )
            if other := next((key for key, names in self._known.items() if name in names), None):
                hint = f"it belongs in {other}"
            elif known:
                hint = suggestion(name, sorted(known))
            else:
                names = listed(sorted(set().union(*self._known.values())))
                hint = f"its covariates are {names}"
            raise InvalidInputError(
                f"{self._manifest.name} reads no such covariate here; {hint}",
                param=f"{at}.{place}.{name[:60]}",
            )

    def _read_static(self, given: Given, path: str) -> Codes:
        codes = np.empty(len(self._static))
        for column, covariate in enumerate(self._static):
            place = f"{path}.{covariate.name}"
            value = given.get(covariate.name)
            if value is None:
                raise InvalidInputError(
                    f"required, but missing: {self._manifest.name} reads it", param=place
                )
            try:
                codes[column] = covariate.code(value)
            except ValueError as error:
                raise InvalidInputError(str(error), param=place) from None
        return codes

    def _read_future(self, given: Mapping[str, Given], rows: int, at: str) -> Codes:
        codes = np.empty((rows + self._ahead, len(self._future)))
        for column, covariate in enumerate(self._future):
            first = 0
            for place, values in self._parts(covariate.name, given, rows, at):
                part = read_codes(covariate, values, place, self._missing)
                codes[first : first + len(part), column] = part
                first += len(part)
        return codes

    def _parts(
        self, name: str, given: Mapping[str, Given], rows: int, at: str
    ) -> list[tuple[str, Any]]:
        """The places and values of a future covariate: of rows and steps, or of each by itself."""
        place, of_rows = f"{at}.{FUTURE}.{name}", f"{at}.{PAST}.{name}"
        values = given[FUTURE].get(name)
        if values is None:
            raise InvalidInputError(
                f"required, but missing: {self._manifest.name} reads it; {self._lengths(rows)}",
                param=place,
            )
        count = _length(values, place)
        past = given[PAST].get(name)
        if past is None:
            if count != rows + self._ahead:
                raise InvalidInputError(f"{self._lengths(rows)}, got {count}", param=place)
            return [(place, values)]
        if self._is_backtest or count != self._ahead:
            hint = "leave it out there"
            if not self._is_backtest:
                hint += f", or send the {self._ahead} values of the steps after them alone"
            raise InvalidInputError(
                f"got {count} values, and those of the rows in {of_rows}, too; {hint}", param=place
            )
        _check_length(_length(past, of_rows), rows, of_rows)
        return [(of_rows, past), (place, values)]

    def _lengths(self, rows: int) -> str:
        if self._is_backtest:
            return f"expected {rows} values, those that came true in the rows of series"
        ahead, whole = self._ahead, ""
        if ahead != self._horizon:
            whole = f", which the model reads for a horizon of {self._horizon}"
        return (
            f"expected {rows + ahead} values, {rows} for the rows of series and {ahead} for the "
            f"steps after them{whole}, or these {ahead} with the {rows} in {PAST}"
        )

    def _fill_future(
        self, codes: Codes, given: Mapping[str, Given], rows: int, at: str
    ) -> dict[str, int]:
        """Fill the gaps of `[rows + steps, future]` in place; returns their number by name."""

        def path(row: int, column: int) -> str:
            name = self._future[column].name
            if name not in given[PAST]:
                return f"{at}.{FUTURE}.{name}[{row}]"
            if row < rows:
                return f"{at}.{PAST}.{name}[{row}]"
            return f"{at}.{FUTURE}.{name}[{row - rows}]"

        is_missing = np.isnan(codes)
        counts = {}
        # A backtest reads all rows, a forecast the latest.
        first = 0 if self._is_backtest else max(0, rows - self._manifest.context)
        for column in np.flatnonzero(is_missing.any(axis=0)).tolist():
            name, holes = self._future[column].name, is_missing[:, column]
            if self._missing == "mask":
                raise InvalidInputError(
                    "a value is missing, and options.missing 'mask' leaves out values of series "
                    "alone; send it, or set options.missing to 'interpolate' or 'ffill'",
                    param=path(int(holes.argmax()), column),
                )
            fill(self._future[column], codes[:, column], self._missing)
            left = np.isnan(codes[first:, column])
            # Origins before a first value are left out.
            if left.any() and not self._is_backtest:
                raise InvalidInputError(
                    f"no value of {name!r} comes before it to carry forward"
                    if self._missing == "ffill"
                    else f"{name!r} has no value",
                    param=path(first + int(left.argmax()), column),
                )
            if count := int((holes[first:] & ~left).sum()):
                counts[name] = count
        return counts

    def _read_past(
        self, past: Sequence[Covariate], given: Given, read: SeriesCovariates, path: str
    ) -> None:
        """Read past covariates that were sent by name, as channels."""
        rows, parts = len(read.past), []
        for covariate in past:
            place, values = f"{path}.{covariate.name}", given[covariate.name]
            _check_length(_length(values, place), rows, place)
            codes = read_codes(covariate, values, place, self._missing)
            holes = np.isnan(codes)
            if covariate.type != "number" and holes.any() and self._missing != "mask":
                # Numbers are filled with the other channels.
                fill(covariate, codes, self._missing)
                if count := int(holes[rows - self._manifest.context :].sum()):
                    read.filled[covariate.name] = count
            parts.append(channels_of(covariate, codes))
            read.columns += [self._manifest.channels.index(name) for name in covariate.channels]
            read.names += [covariate.name] * len(covariate.channels)
        read.past = np.concatenate(parts, axis=1)


def _length(values: object, path: str) -> int:
    if not isinstance(values, list | np.ndarray):
        raise InvalidInputError(f"expected a list of values, got {shown(values)}", param=path)
    return len(values)


def _check_length(count: int, rows: int, path: str) -> None:
    if count != rows:
        raise InvalidInputError(
            f"expected {rows} values, one for each row of series, got {count}", param=path
        )
