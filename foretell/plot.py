"""A picture of history and forecast."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from foretell.client import Forecast

_HISTORY = "#5b6470"
_FORECAST = "#d1495b"


def draw(forecast: Forecast, path: Path) -> None:
    """Draw one panel a channel: the history, and the forecast that continues it."""
    history = forecast.history
    channels = history.channels
    columns = 1 if len(channels) < 4 else 2
    rows = -(-len(channels) // columns)
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(5.5 * columns, 1.7 * rows + 0.7), layout="constrained")
        axes = figure.subplots(rows, columns, sharex=True, squeeze=False)
        times = np.concatenate([history.timestamps[-1:], forecast.timestamps])
        for i, name in enumerate(channels):
            panel = axes[i // columns, i % columns]
            last = history.values[-1:, i]
            panel.plot(history.timestamps, history.values[:, i], color=_HISTORY, linewidth=1)
            panel.plot(
                times,
                np.concatenate([last, forecast.values[:, i]]),
                color=_FORECAST,
                linewidth=1.6,
            )
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
            f"{forecast.model}: {len(history)} steps of history, {len(forecast.timestamps)} ahead",
            x=0.01,
            ha="left",
        )
        figure.savefig(path, dpi=110)
