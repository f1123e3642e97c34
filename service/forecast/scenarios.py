"""Scenarios: one history with several futures, a window for each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from foretell.service.forecast.origins import BacktestWindows
from foretell.service.forecast.series import Series, SeriesRows

# Codes that are no longer needed.
_NONE = np.empty((0, 0), np.float32)


def count_windows(inputs: Iterable[Any]) -> int:
    """The number of windows of unvalidated inputs."""
    count = 0
    for entry in inputs:
        scenarios = entry.get("scenarios") if isinstance(entry, dict) else None
        count += max(1, len(scenarios)) if isinstance(scenarios, list) else 1
    return count


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
            scenario.codes = _NONE
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
