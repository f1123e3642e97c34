"""A picture of histories, forecasts with bands, and actual values if known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from foretell.predict.forecasts import Forecast

HISTORY, FORECAST, INK = "#5b6470", "#d1495b", "#1d2733"
# Shown steps of history for each step ahead.
_SHOWN = 4
# Largest number of panels; a picture of more would be too tall.
_MOST = 40


def style() -> AbstractContextManager[None]:
    """The style of all pictures, as a context."""
    return mpl.rc_context(
        {
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            # A dollar sign in a name is not mathematics.
            "text.parse_math": False,
        }
    )


def draw(forecasts: Sequence[Forecast], path: Path) -> None:
    """Draw one panel per series and channel: the end of the history, and the forecast.

    Quantiles of a pair of levels, such as 0.1 and 0.9, are the ends of a band. After a dashed line,
    steps are forecast from forecasts.
    """
    with style():
        figure_of(forecasts, _title(forecasts[0])).savefig(path, dpi=110)


def figure_of(forecasts: Sequence[Forecast], title: str) -> Figure:
    """The picture; of the first panels if there are many."""
    panels = [(one, place) for one in forecasts for place in range(len(one.targets))]
    shown = panels[:_MOST]
    columns = 1 if len(shown) < 4 else 2
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(5.5 * columns, 1.7 * rows + 0.7), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=len(forecasts) == 1, squeeze=False)
    for panel, (forecast, place) in zip(axes.flat, shown, strict=False):
        _draw(panel, forecast, place)
    for unused in range(len(shown), rows * columns):
        axes.flat[unused].set_axis_off()
        axes.flat[unused - columns].tick_params(labelbottom=True)
    if len(panels) > _MOST:
        title += f"; the first {_MOST} of {len(panels):,}"
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def _draw(panel: Any, forecast: Forecast, place: int) -> None:  # noqa: ANN401 - matplotlib's axes
    history, timestamps = forecast.history, forecast.timestamps
    shown = slice(-_SHOWN * len(timestamps), None)
    name = forecast.targets[place]
    known = history.values[:, history.channels.index(name)]
    times = np.concatenate([history.timestamps[-1:], timestamps])
    panel.plot(history.timestamps[shown], known[shown], color=HISTORY, linewidth=1)
    for low, high in bands(forecast.quantiles):
        ends = (forecast.quantiles[level][:, place] for level in (low, high))
        panel.fill_between(timestamps, *ends, color=FORECAST, alpha=0.18, linewidth=0)
    for values, colour, width in (
        (forecast.values, FORECAST, 1.6),
        (forecast.actual, INK, 1),
    ):
        if len(values):
            line = np.concatenate([known[-1:], values[:, place]])
            panel.plot(times[: len(line)], line, color=colour, linewidth=width)
    panel.axvline(history.timestamps[-1], color=HISTORY, linewidth=0.6, linestyle=":")
    if forecast.rolled_from is not None:
        rolled = timestamps[forecast.rolled_from - 1]
        panel.axvline(rolled, color=FORECAST, linewidth=0.8, linestyle="--")
    title = f"{forecast.series}: {name}" if forecast.series else name
    panel.set_title(title, loc="left", fontsize=9, fontweight="bold")
    dates = AutoDateLocator(minticks=4, maxticks=8)  # type: ignore[no-untyped-call]
    panel.xaxis.set_major_locator(dates)
    panel.xaxis.set_major_formatter(ConciseDateFormatter(dates))  # type: ignore[no-untyped-call]
    panel.grid(alpha=0.25)


def bands(levels: Iterable[float]) -> list[tuple[float, float]]:
    """Symmetric pairs of levels, such as 0.1 and 0.9; the widest first."""
    known = sorted(levels)
    pairs = ((low, high) for low in known for high in known if low < 0.5 < high)
    return [(low, high) for low, high in pairs if math.isclose(low, 1 - high)]


def _title(forecast: Forecast) -> str:
    text = f"{forecast.model}: {len(forecast.times)} steps ahead"
    pairs = bands(forecast.quantiles)
    if pairs:
        shares = " and ".join(f"{high - low:.0%}" for low, high in reversed(pairs))
        text += f" (red), with intervals of {shares}"
    if forecast.rolled_from is not None:
        text += "; from forecasts after the dashed line"
    if len(forecast.actual):
        text += "; what followed (black)"
    return text
