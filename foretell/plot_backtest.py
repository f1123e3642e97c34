"""A picture of a backtest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from foretell.backtest import MODEL, Backtest
from foretell.plot import FORECAST, style

# More panels than these are no picture: then it shows all channels together.
_MOST = 12
_COLOURS = {MODEL: FORECAST}
_OTHERS = ("#9aa3ad", "#5b6470", "#2e86ab")


def draw(found: Backtest, path: Path) -> None:
    """Draw the mean absolute error by step ahead, one panel a channel and a line a forecaster."""
    channels = found.channels
    together = len(channels) > _MOST
    panels = ("all channels",) if together else channels
    columns = 1 if len(panels) == 1 else 2 if len(panels) < 7 else 3
    rows = -(-len(panels) // columns)
    others = iter(_OTHERS)
    colours = {name: _COLOURS.get(name) or next(others) for name in found.scores}
    with style():
        figure = Figure(figsize=(max(4.2 * columns, 7.5), 2.1 * rows + 1.6), layout="constrained")
        axes = figure.subplots(rows, columns, sharex=True, squeeze=False)
        for place, name in enumerate(panels):
            panel = axes.flat[place]
            for forecaster, scores in found.scores.items():
                errors = scores.mae.mean(axis=1) if together else scores.mae[:, place]
                panel.plot(
                    np.arange(1, len(errors) + 1),
                    errors,
                    color=colours[forecaster],
                    linewidth=2 if forecaster == MODEL else 1.2,
                    marker="." if len(errors) == 1 else None,
                    label=found.name if forecaster == MODEL else forecaster,
                )
            panel.set_title(name, loc="left", fontsize=9, fontweight="bold")
            panel.set_ylim(bottom=0)
            panel.grid(alpha=0.25)
        for unused in range(len(panels), rows * columns):
            axes.flat[unused].set_axis_off()
        for panel in axes[-1]:
            panel.set_xlabel("steps ahead")
        figure.legend(
            *axes.flat[0].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=4,
            frameon=False,
        )
        title = f"{found.name}: mean absolute error of {found.origins:,} forecasts"
        figure.suptitle(f"{title}, in standard deviations", x=0.01, ha="left")
        figure.savefig(path, dpi=110)
