"""Forecasts on the terminal: their shape, and their numbers if there are not too many."""

from __future__ import annotations

from collections.abc import Sequence

import click
import numpy as np
from rich.table import Table
from rich.text import Text

from foretell.predict.forecasts import Forecast
from foretell.terminal.tables import show, width, width_of
from foretell.terminal.words import numbers, sparkline
from foretell.timeaxis.timestamps import shown

# Rows that a reader can take in; `--out` writes more.
_MOST_ROWS = 100
_MOST_SHAPES = 40
_WIDE, _SPARKS, _NAME = 100, (8, 16), 6
# Shown steps of history for each step ahead.
_SHOWN = 4


def print_forecasts(forecasts: Sequence[Forecast], file: str) -> None:
    """Print a line for each channel; for one series, print every step, too."""
    first = forecasts[0]
    steps = len(first.times)
    _print_shapes(forecasts, f"{first.model} on {file}: {_counted(steps, first)}")
    if len(forecasts) == 1:
        table = _by_level(first) if first.quantiles else _by_step(first)
        if table.row_count <= _MOST_ROWS and width_of(table) <= width():
            show(table)
            return
    count = sum(one.values.size for one in forecasts)
    click.echo(f"--out FILE writes all {count:,} values")


def _counted(steps: int, forecast: Forecast) -> str:
    if forecast.rolled_from is None:
        return f"{steps} steps"
    return f"{steps} steps, from {forecast.rolled_from + 1} on from forecasts"


def _print_shapes(forecasts: Sequence[Forecast], title: str) -> None:
    """Print a line for each channel: history and forecast as bars, and numbers of the forecast."""
    bars = _SPARKS[width() >= _WIDE]
    table = Table(title=title)
    named = any(one.series for one in forecasts)
    if named:
        table.add_column("series", min_width=_NAME)
    table.add_column("channel", min_width=_NAME)
    table.add_column("known|forecast", no_wrap=True)
    for title in ("last", "first", "least", "largest"):
        table.add_column(title, justify="right", no_wrap=True)
    shapes = [(one, place) for one in forecasts for place in range(len(one.targets))]
    for one, place in shapes[:_MOST_SHAPES]:
        name = one.targets[place]
        history = one.history.values[:, one.history.channels.index(name)]
        ahead = one.values[:, place]
        known, expected = sparkline(history[-_SHOWN * len(ahead) :], ahead, width=bars)
        shape = Text.assemble((known, "dim"), "|", (expected, "bold"))
        ends = np.array([history[-1], ahead[0], ahead.min(), ahead.max()])
        # Names are shortened if the line is too long.
        names = [Text(each, no_wrap=True, overflow="ellipsis") for each in (one.series, name)]
        table.add_row(*names[not named :], shape, *numbers(ends))
    show(table)
    if (more := len(shapes) - _MOST_SHAPES) > 0:
        click.echo(f"and {more:,} lines more")


def _by_step(forecast: Forecast) -> Table:
    """A row for each step, and a column for each channel."""
    table = Table()
    table.add_column("time")
    for name in forecast.targets:
        table.add_column(name, justify="right")
    columns = [numbers(column) for column in forecast.values.T]
    for step, time in enumerate(_times(forecast)):
        if step == forecast.rolled_from:
            table.add_section()
        table.add_row(time, *(column[step] for column in columns))
    return table


def _by_level(forecast: Forecast) -> Table:
    """A row for each step and channel, and a column for each level."""
    table = Table()
    for title in ("time", "channel"):
        table.add_column(title)
    for title in ("forecast", *(f"{level:g}" for level in forecast.quantiles)):
        table.add_column(title, justify="right")
    layers = np.stack([forecast.values, *forecast.quantiles.values()])
    # All numbers of a channel have the same number of decimals.
    texts = [numbers(layers[:, :, place].ravel()) for place in range(len(forecast.targets))]
    steps = len(forecast.times)
    for step, time in enumerate(_times(forecast)):
        if step == forecast.rolled_from:
            table.add_section()
        for name, column in zip(forecast.targets, texts, strict=True):
            table.add_row(time, name, *column[step::steps])
    return table


def _times(forecast: Forecast) -> list[str]:
    return [shown(time) for time in forecast.timestamps]
