"""Reads the inputs of a JSON request: each parsed object becomes values and times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import ValidationError

from foretell.bundle.manifest import Manifest
from foretell.bundle.nearness import listed, nearest
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.codes import SeriesCovariates
from foretell.service.forecast.covariates import CovariateReader
from foretell.service.forecast.futures import PAST
from foretell.service.forecast.options import Options
from foretell.service.forecast.requests import SCENARIOS, SeriesInput
from foretell.service.forecast.scenarios import default_name
from foretell.service.forecast.series import Series, SeriesReader, SeriesRows
from foretell.service.forecast.times import Timeline, check_frequency, find_zone, read_timeline
from foretell.service.forecast.values import is_multivariate, read_values, width_of
from foretell.service.validation import KnownFields, UnknownFields, check_texts, refusal, shown
from foretell.timeaxis.errors import TimestampError
from foretell.timeaxis.frequency import Frequency


def read_inputs(
    inputs: list[Any],
    manifest: Manifest,
    options: Options,
    known: KnownFields,
    unknown: UnknownFields,
) -> SeriesRows:
    """Read the unvalidated inputs of a request; unknown fields are added to `unknown`."""
    given: set[str] = set()
    if len(inputs) > 1:
        names = [raw.get("name") for raw in inputs if isinstance(raw, dict)]
        given = {name for name in names if isinstance(name, str)}
    reader = SeriesReader(manifest, options, len(inputs))
    covariates = CovariateReader(manifest, options)
    has_gaps = options.missing != "error"
    reading = _Inputs(inputs, manifest, has_gaps, known, unknown, given, reader, covariates)
    return reader.read(reading.read)


@dataclass(slots=True, eq=False)
class _Inputs:
    """The inputs of a request; `given` has the names in the request, if it has several inputs."""

    inputs: list[Any]
    manifest: Manifest
    has_gaps: bool
    known: KnownFields
    unknown: UnknownFields
    given: set[str]
    reader: SeriesReader
    covariates: CovariateReader
    names: set[str] = field(default_factory=set)

    def read(self, index: int) -> Series:
        """Read an input; raises a `ServiceError` if it is invalid."""
        at = f"inputs[{index}]"
        entry = self._validate(self.inputs[index], at)
        name = self._claim_name(entry.name, index)
        check_step(entry.frequency, entry.frequency_multiple, self.manifest.step, at)
        covariates = self.covariates.read(entry, at)
        by_name = [] if covariates is None else covariates.names
        channels: Sequence[str] = self.manifest.channels
        columns = None
        if by_name or entry.channels is not None:
            channels, columns = self._columns(entry, covariates, at)
        nested = is_multivariate(entry.series)
        if entry.type is not None and len(entry.series):
            check_type(entry.type, f"{at}.type", nested=nested)
        at_series = f"{at}.series"

        def path(row: int | None = None, column: int = 0) -> str:
            if row is None:
                return at_series
            if column >= len(channels):
                return f"{at}.{PAST}.{by_name[column - len(channels)]}[{row}]"
            return f"{at_series}[{row}]" + (f"[{column}]" if nested else "")

        values = read_values(entry.series, channels, at_series, gaps=self.has_gaps)
        if len(values) < self.manifest.context:
            raise self.reader.too_short(len(values), path)
        if covariates is not None and covariates.numbers:
            values = np.column_stack([values, *covariates.numbers])
        try:
            series = self.reader.add(
                name,
                values,
                self._read_timeline(entry, at),
                path,
                covariates=covariates,
                columns=columns,
                univariate=not nested,
                gaps=self.has_gaps,
            )
        except TimestampError as error:
            field = "start_timestamp" if entry.timestamps is None else "timestamps"
            raise InvalidInputError(str(error), param=f"{at}.{field}") from None
        series.is_named = entry.name is not None
        return series

    def _validate(self, raw: Any, at: str) -> SeriesInput:  # noqa: ANN401 - any JSON
        self._check_fields("inputs[]", raw, at)
        if isinstance(raw, dict) and isinstance(scenarios := raw.get("scenarios"), list):
            for index, scenario in enumerate(scenarios):
                self._check_fields(SCENARIOS, scenario, f"{at}.scenarios[{index}]")
        try:
            entry = SeriesInput.model_validate(raw)
        except ValidationError as error:
            raise refusal(error, at) from None
        if entry.timestamps:
            check_texts(entry.timestamps, f"{at}.timestamps")
        return entry

    def _check_fields(self, level: str, raw: object, at: str) -> None:
        if isinstance(raw, dict) and not raw.keys() <= self.known.levels[level].keys():
            self.known.check(level, raw, at, self.unknown)

    def _claim_name(self, given: str | None, index: int) -> str:
        name = default_name("series", index, self.given) if given is None else given
        claim_name(name, self.names, index)
        return name

    def _columns(
        self, entry: SeriesInput, covariates: SeriesCovariates | None, at: str
    ) -> tuple[Sequence[str], list[int] | None]:
        """The channels of the columns of `series`, and the model's channel of each value.

        Past covariates that were sent by name have the last values.
        """
        known, path = self.manifest.channels, f"{at}.channels"
        by_name: dict[str, str] = {}
        if covariates is not None:
            columns = [known[column] for column in covariates.columns]
            by_name = dict(zip(columns, covariates.names, strict=True))
        names = entry.channels
        if names is None:
            names = [name for name in known if name not in by_name]
            self._check_targets(names, entry, [*by_name.values()], at)
        check_channels(names, known, path)
        for index, name in enumerate(names):
            if name in by_name:
                raise InvalidInputError(
                    f"it is in {at}.{PAST}.{by_name[name]}, too; leave out one of both",
                    param=f"{path}[{index}]",
                )
        if missing := [name for name in known if name not in names and name not in by_name]:
            raise InvalidInputError(
                f"the model needs every channel; missing: {listed(missing)}", param=path
            )
        places = {name: place for place, name in enumerate(known)}
        order = [places[name] for name in (*names, *by_name)]
        return names, None if order == [*range(len(known))] else order

    def _check_targets(
        self, names: list[str], entry: SeriesInput, by_name: list[str], at: str
    ) -> None:
        """Check that past covariates by name are all of them, and that `series` has none."""
        place = f"{at}.{PAST}"
        for each in self.manifest.past_covariates:
            if each.name not in by_name:
                raise InvalidInputError(
                    "required, but missing: send all past covariates by name, or as columns of "
                    f"{at}.series",
                    param=f"{place}.{each.name}",
                )
        if width_of(entry.series) == len(self.manifest.channels):
            raise InvalidInputError(
                f"it is a column of {at}.series, too; leave it out here, or send only "
                f"{listed(names)} there",
                param=f"{place}.{by_name[0]}",
            )

    def _read_timeline(self, entry: SeriesInput, at: str) -> Timeline | None:
        zone = None
        if entry.time_zone is not None:
            zone = find_zone(entry.time_zone, f"{at}.time_zone")
        start, stamps, rows = entry.start_timestamp, entry.timestamps, len(entry.series)
        timeline = read_timeline(start, stamps, zone, self.manifest.step, rows, at)
        if timeline is None and self.manifest.calendar is not None:
            raise InvalidInputError(
                f"required: {self.manifest.name} uses calendar features",
                param=f"{at}.start_timestamp",
            )
        return timeline


def claim_name(name: str, names: set[str], index: int) -> None:
    """Check that no other input has a name, and add it to those of the inputs."""
    if name in names:
        raise InvalidInputError(
            f"expected a name that no other input has, got {shown(name)}",
            param=f"inputs[{index}].name",
        )
    names.add(name)


def check_step(alias: str | None, multiple: int | None, frequency: Frequency, at: str) -> None:
    """Check that the frequency of an input, if it has one, is the model's."""
    if alias is not None:
        check_frequency(alias, frequency, f"{at}.frequency")
    if multiple not in (None, frequency.multiple):
        raise InvalidInputError(
            f"expected the model's, {frequency.multiple} (frequency {frequency}), "
            f"got {shown(multiple)}",
            param=f"{at}.frequency_multiple",
        )


def check_channels(names: Sequence[str], known: Sequence[str], path: str) -> None:
    """Check that the columns of an input are different channels of the model."""
    for index, name in enumerate(names):
        if name not in known:
            meant = nearest(name, known)
            hint = f"; did you mean {meant!r}?" if meant else ""
            raise InvalidInputError(
                f"expected a channel of the model ({listed(known)}), got {shown(name)}{hint}",
                param=f"{path}[{index}]",
            )
        if name in names[:index]:
            raise InvalidInputError(f"{name!r} is named twice", param=f"{path}[{index}]")


def check_type(given: str, path: str, *, nested: bool) -> None:
    """Check that a KServe type has the shape of the series."""
    shapes = {False: "[time]", True: "[time][channel]"}
    if given != f"{'multivariate' if nested else 'univariate'}_time_series":
        raise InvalidInputError(
            f"expected series {shapes[not nested]} for {given}, got {shapes[nested]}", param=path
        )
