"""Reads the inputs of a JSON request with actual values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from foretell.bundle.manifest import Manifest
from foretell.bundle.nearness import listed
from foretell.service.errors import InvalidInputError, ServiceError
from foretell.service.forecast.actuals_types import ACTUALS, ActualInput
from foretell.service.forecast.inputs import check_channels, check_step, check_type, claim_name
from foretell.service.forecast.moments import Moments, read_moments
from foretell.service.forecast.series import read_each
from foretell.service.forecast.times import find_zone
from foretell.service.forecast.values import is_multivariate, read_values, width_of
from foretell.service.forecast.warnings import AnswerWarning, unknown_fields, warning
from foretell.service.validation import UnknownFields, check_texts, refusal
from foretell.timeaxis.errors import TimestampError


class Actual(NamedTuple):
    """Actual values of a series.

    Attributes:
        name: Name of the series.
        channels: Names of forecast channels.
        times: `[rows]`, increasing, in microseconds since 1970, as `Timeline.moments`.
        values: `[rows, channels]`, NaN where unknown.
    """

    name: str
    channels: list[str]
    times: Moments
    values: NDArray[np.float64]


Entries = list[Actual | ServiceError]


def read_all(read_one: Callable[[int], Actual], count: int) -> Entries:
    """As `read_each`; if all series have an error, raise the first."""
    entries = read_each(read_one, count)
    failures = [entry for entry in entries if isinstance(entry, ServiceError)]
    if len(failures) == count:
        raise failures[0]
    return entries


def read_actuals(
    inputs: list[Any], manifest: Manifest, unknown: UnknownFields
) -> tuple[Entries, list[AnswerWarning]]:
    """Read the unvalidated inputs of a request, and collect warnings."""
    reading = _Inputs(inputs, manifest, unknown)
    entries = read_all(reading.read, len(inputs))
    warnings = unknown_fields(unknown.values())
    if reading.left_out:
        names = [name for name in manifest.channels if name in reading.left_out]
        text = f"channels that are not forecast, and not kept: {listed(names)}"
        warnings.append(warning("ignored_field", text, next(iter(reading.left_out.values()))))
    return entries, warnings


@dataclass(slots=True, eq=False)
class _Inputs:
    """The inputs of a request; `left_out` has the place of each channel that is not kept."""

    inputs: list[Any]
    manifest: Manifest
    unknown: UnknownFields
    names: set[str] = field(default_factory=set)
    left_out: dict[str, str] = field(default_factory=dict)

    def read(self, index: int) -> Actual:
        """Read an input; raises a `ServiceError` if it is invalid."""
        at = f"inputs[{index}]"
        entry = self._validate(self.inputs[index], at)
        claim_name(entry.name, self.names, index)
        check_step(entry.frequency, entry.frequency_multiple, self.manifest.step, at)
        if not len(entry.series):
            raise InvalidInputError("expected at least one row", param=f"{at}.series")
        if entry.type is not None:
            check_type(entry.type, f"{at}.type", nested=is_multivariate(entry.series))
        channels = self._channels(entry, at)
        values = read_values(entry.series, channels, f"{at}.series", gaps=True)
        times = self._read_times(entry, at)
        targets = self.manifest.targets
        own = [place for place, name in enumerate(channels) if name in targets]
        place = f"{at}.series" if entry.channels is None else f"{at}.channels"
        for name in channels:
            if name not in targets:
                self.left_out.setdefault(name, place)
        if not own:
            raise InvalidInputError(
                f"expected at least one channel that is forecast ({listed(targets)})", param=place
            )
        if len(own) < len(channels):
            values = values[:, own]
        return Actual(entry.name, [channels[place] for place in own], times, values)

    def _validate(self, raw: Any, at: str) -> ActualInput:  # noqa: ANN401 - any JSON
        level = "inputs[]"
        if isinstance(raw, dict) and not raw.keys() <= ACTUALS.names.levels[level].keys():
            ACTUALS.names.check(level, raw, at, self.unknown)
        try:
            entry = ActualInput.model_validate(raw)
        except ValidationError as error:
            raise refusal(error, at) from None
        if entry.timestamps:
            check_texts(entry.timestamps, f"{at}.timestamps")
        return entry

    def _channels(self, entry: ActualInput, at: str) -> Sequence[str]:
        known, targets = self.manifest.channels, self.manifest.targets
        if entry.channels is not None:
            check_channels(entry.channels, known, f"{at}.channels")
            return entry.channels
        width = width_of(entry.series)
        if width not in (len(known), len(targets)):
            raise InvalidInputError(
                f"expected {len(known)} values at every time ({listed(known)}), got {width}; name "
                f"the columns in {at}.channels to send some of them",
                param=f"{at}.series[0]",
            )
        return known if width == len(known) else targets

    def _read_times(self, entry: ActualInput, at: str) -> Moments:
        zone = None
        if entry.time_zone is not None:
            zone = find_zone(entry.time_zone, f"{at}.time_zone")
        start, stamps, rows = entry.start_timestamp, entry.timestamps, len(entry.series)
        try:
            return read_moments(start, stamps, zone, self.manifest.step, rows, at)
        except TimestampError as error:
            field = "start_timestamp" if stamps is None else "timestamps"
            raise InvalidInputError(str(error), param=f"{at}.{field}") from None
