"""Reads the covariates of an input: lists of values by name become arrays of codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foretell.bundle.covariates import NO_COVARIATES, Covariate
from foretell.bundle.example import Example
from foretell.bundle.manifest import Manifest
from foretell.bundle.nearness import listed, suggestion
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.forecast.codes import (
    Codes,
    PastColumn,
    SeriesCovariates,
    read_codes,
    value_of,
)
from foretell.service.forecast.futures import (
    FUTURE,
    PAST,
    FutureReader,
    Given,
    check_length,
    items_of,
)
from foretell.service.forecast.options import Options
from foretell.service.forecast.requests import SeriesInput

STATIC = "static_covariates"


class CovariateReader:
    """Reads the covariates of each input of a request."""

    def __init__(self, manifest: Manifest, options: Options) -> None:
        self._manifest = manifest
        self._missing = options.missing
        self._futures = FutureReader(manifest, options)
        known = manifest.covariates or NO_COVARIATES
        self._future, self._static = known.future, known.static
        # Numbers first: they are read with the series.
        self._past = sorted(manifest.past_covariates, key=lambda each: each.type != "number")
        self._places = places_of(manifest)
        # A hint names the first field with a name: past values of the future's may be apart.
        self._known = {
            FUTURE: {each.name for each in self._future},
            STATIC: {each.name for each in self._static},
            PAST: {each.name for each in (*self._past, *self._future)},
        }

    def read(self, entry: SeriesInput, at: str) -> SeriesCovariates | None:
        """Read the covariates of an input at a path; InvalidInputError names the wrong place.

        None if the model needs none and none were sent.
        """
        given: dict[str, Given] = {name: getattr(entry, name) or {} for name in self._known}
        if not (self._future or self._static or any(given.values()) or entry.scenarios):
            return None
        for place, values in given.items():
            self._check_names(values, place, at)
        scenarios = entry.scenarios or ()
        for index, scenario in enumerate(scenarios):
            changes = scenario.future_covariates or {}
            self._check_names(changes, FUTURE, f"{at}.scenarios[{index}]", of=at)
        rows = len(entry.series)
        futures = self._futures.read(given, scenarios, rows, at)
        first = futures.scenarios[0]
        read = SeriesCovariates(
            first.codes,
            self._read_static(given[STATIC], f"{at}.{STATIC}"),
            futures.rows,
            filled={} if scenarios else first.filled,
            gaps=futures.gaps,
            scenarios=futures.scenarios if scenarios else [],
        )
        past = [each for each in self._past if each.name in given[PAST]]
        if past:
            self._read_past(past, given[PAST], read, rows, f"{at}.{PAST}")
        return read

    def _check_names(self, given: Given, place: str, at: str, of: str | None = None) -> None:
        """Refuse unknown names in a field at a path; `of` is the input of a scenario."""
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
                if of is not None:
                    hint = f"it belongs in {of}.{other}, which all scenarios read"
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

    def _read_past(
        self,
        past: Sequence[Covariate],
        given: Given,
        read: SeriesCovariates,
        rows: int,
        path: str,
    ) -> None:
        """Read past covariates that were sent by name, for a number of rows."""
        for covariate in past:
            place, values = f"{path}.{covariate.name}", given[covariate.name]
            check_length(values, rows, place)
            codes = read_codes(covariate, values, place, self._missing)
            places = self._places[covariate.name]
            if covariate.type == "number":
                read.numbers.append(codes)
            else:
                read.past.append(PastColumn(covariate, places, codes, items_of(place)))
            read.columns += places
            read.names += [covariate.name] * len(places)


def places_of(manifest: Manifest) -> dict[str, list[int]]:
    """The places of a past covariate's channels among the model's, by its name."""
    places = {name: place for place, name in enumerate(manifest.channels)}
    return {
        each.name: [places[name] for name in each.channels] for each in manifest.past_covariates
    }


def example_covariates(example: Example, manifest: Manifest) -> dict[str, Any]:
    """The covariates of an example, as a client sends them."""
    known = manifest.covariates or NO_COVARIATES
    found: dict[str, Any] = {}
    future, static = example.future_covariates, example.static_covariates
    if future is not None and known.future:
        found[FUTURE] = {
            each.name: [value_of(each, code) for code in codes]
            for each, codes in zip(known.future, future.T.tolist(), strict=True)
        }
    if static is not None and known.static:
        found[STATIC] = {
            each.name: value_of(each, code)
            for each, code in zip(known.static, static.tolist(), strict=True)
        }
    return found
