"""A picture of history and forecast, with bands, and what followed where that is known."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from foretell.forecast_file import Forecast

_HISTORY = "#5b6470"
_FORECAST = "#d1495b"
_ACTUAL = "#1d2733"
# Steps of history that are shown for each one ahead.
_SHOWN = 4


def draw(forecast: Forecast, path: Path) -> None:
    """Draw one panel a channel: the end of the history, and the forecast that continues it.

    Quantiles of levels that belong together, such as 0.1 and 0.9, are the ends of a band.
    """
    history = forecast.history
    shown = slice(-_SHOWN * len(forecast.timestamps), None)
    channels = forecast.targets
    bands = _bands(forecast.quantiles)
    columns = 1 if len(channels) < 4 else 2
    rows = -(-len(channels) // columns)
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(5.5 * columns, 1.7 * rows + 0.7), layout="constrained")
        axes = figure.subplots(rows, columns, sharex=True, squeeze=False)
        times = np.concatenate([history.timestamps[-1:], forecast.timestamps])
        for i, name in enumerate(channels):
            panel = axes[i // columns, i % columns]
            known = history.values[:, history.channels.index(name)]
            last = known[-1:]
            panel.plot(history.timestamps[shown], known[shown], color=_HISTORY, linewidth=1)
            for low, high in bands:
                panel.fill_between(
                    forecast.timestamps,
                    forecast.quantiles[low][:, i],
                    forecast.quantiles[high][:, i],
                    color=_FORECAST,
                    alpha=0.18,
                    linewidth=0,
                )
            panel.plot(
                times,
                np.concatenate([last, forecast.values[:, i]]),
                color=_FORECAST,
                linewidth=1.6,
            )
            if forecast.actual is not None:
                followed = np.concatenate([last, forecast.actual[:, i]])
                panel.plot(times[: len(followed)], followed, color=_ACTUAL, linewidth=1)
            panel.axvline(history.timestamps[-1], color=_HISTORY, linewidth=0.6, linestyle=":")
            panel.set_title(name, loc="left", fontsize=9, fontweight="bold")
            dates = AutoDateLocator(minticks=4, maxticks=8)  # type: ignore[no-untyped-call]
            panel.xaxis.set_major_locator(dates)
            panel.xaxis.set_major_formatter(ConciseDateFormatter(dates))  # type: ignore[no-untyped-call]
            panel.grid(alpha=0.25)
        for unused in range(len(channels), rows * columns):
            axes.flat[unused].set_axis_off()
            axes.flat[unused - columns].tick_params(labelbottom=True)
        figure.suptitle(
            _title(forecast, bands),
            x=0.01,
            ha="left",
        )
        figure.savefig(path, dpi=110)


def _bands(levels: Iterable[float]) -> list[tuple[float, float]]:
    """Pairs of levels that leave out as much below as above, the widest first."""
    known = sorted(levels)
    pairs = ((low, high) for low in known for high in known if low < 0.5 < high)
    return [(low, high) for low, high in pairs if math.isclose(low, 1 - high)]


def _title(forecast: Forecast, bands: list[tuple[float, float]]) -> str:
    text = f"{forecast.model}: {len(forecast.timestamps)} steps ahead"
    if bands:
        shares = " and ".join(f"{high - low:.0%}" for low, high in reversed(bands))
        text += f" (red), with intervals of {shares}"
    if forecast.actual is not None:
        text += "; what followed (black)"
    return text
