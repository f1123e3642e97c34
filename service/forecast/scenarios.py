"""Scenarios: one history with several futures, a window for each."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foretell.service.errors import InvalidInputError
from foretell.service.forecast.codes import NO_CODES
from foretell.service.forecast.origins import BacktestWindows
from foretell.service.forecast.requests import ScenarioInput
from foretell.service.forecast.series import Series, SeriesRows
from foretell.service.validation import shown


def count_windows(inputs: Iterable[Any]) -> int:
    """The number of windows of unvalidated inputs."""
    return sum(max(1, count) for count in _counts(inputs))


def count_forecasts(inputs: Iterable[Any], layers: int) -> int:
    """The number of forecasts in an answer to unvalidated inputs.

    Each window has `layers`: its forecast, and one of each quantile. A scenario also has its
    difference, and the first one is written twice.
    """
    return sum(count * (layers + 1) + layers for count in _counts(inputs))


def _counts(inputs: Iterable[Any]) -> Iterator[int]:
    """The number of scenarios of each input."""
    for entry in inputs:
        scenarios = entry.get("scenarios") if isinstance(entry, dict) else None
        yield len(scenarios) if isinstance(scenarios, list) else 0


def default_name(kind: str, index: int, given: Container[str]) -> str:
    """A name for an input or a scenario without one, which the request gives to no other."""
    name = f"{kind}-{index}"
    while name in given:
        name += f"-{index}"
    return name


def names_of(scenarios: Sequence[ScenarioInput], place: str) -> list[str]:
    """The names of an input's scenarios; InvalidInputError: one is empty, or names two."""
    given: set[str] = set()
    for index, scenario in enumerate(scenarios):
        name = scenario.name
        if name == "":
            raise InvalidInputError(
                "expected a name that is not empty; leave it out for the default",
                param=f"{place}[{index}].name",
            )
        if name in given:
            raise InvalidInputError(
                f"expected a name that no other scenario has, got {shown(name)}",
                param=f"{place}[{index}].name",
            )
        if name is not None:
            given.add(name)
    return [
        default_name("scenario", index, given) if each.name is None else each.name
        for index, each in enumerate(scenarios)
    ]


def expand(rows: SeriesRows) -> SeriesRows:
    """The rows with a window for each scenario; the row of a series is that of its first."""
    series = [entry for entry in rows.entries if isinstance(entry, Series)]
    if rows.covariates is None or not any(each.scenarios for each in series):
        return rows
    counts = [each.windows for each in series]
    windows = np.repeat(np.arange(len(series)), counts)
    covariates = rows.covariates[windows]
    row = 0
    for each in series:
        each.row = row
        for scenario in each.scenarios:
            covariates[row] = scenario.codes
            scenario.codes = NO_CODES
            row += 1
        row += not each.scenarios
    return SeriesRows(
        rows.entries,
        rows.history[windows],
        None if rows.calendar is None else rows.calendar[windows],
        None if rows.past is None else _expand_past(rows.past, windows.tolist()),
        covariates,
        None if rows.static is None else rows.static[windows],
    )


def _expand_past(past: BacktestWindows, windows: list[int]) -> BacktestWindows:
    """Every window of a series has its origins."""
    return replace(
        past,
        spans=[past.spans[index] for index in windows],
        origins=[past.origins[index] for index in windows],
    )
