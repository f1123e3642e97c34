"""A picture of errors by step ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from foretell.plots.forecasts import FORECAST, HISTORY, style

# With more channels, one panel shows the mean of all channels.
_MOST = 12
# Colours and dashes of the model and the baselines.
_LOOKS = ((FORECAST, "-"), (HISTORY, "--"), (HISTORY, ":"), ("#2e86ab", "-."))

Lines = Mapping[str, NDArray[np.floating]]


def draw(lines: Lines, channels: Sequence[str], title: str, path: Path) -> None:
    """Draw errors to a file; see `figure_of`."""
    with style():
        figure_of(lines, channels, title).savefig(path, dpi=110)


def figure_of(lines: Lines, channels: Sequence[str], title: str) -> Figure:
    """A picture with one panel per channel and one line per forecaster.

    Args:
        lines: Errors by forecaster, the model first, each `[horizon, channels]`.
        channels: Names of the channels.
        title: Title of the picture.
    """
    together = len(channels) > _MOST
    panels = ("all channels",) if together else channels
    columns = 1 if len(panels) == 1 else 2 if len(panels) < 7 else 3
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(max(4.2 * columns, 7.5), 2.1 * rows + 1.6), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for place, name in enumerate(panels):
        panel = axes.flat[place]
        for (forecaster, found), (colour, dashes) in zip(lines.items(), _LOOKS, strict=False):
            errors = found.mean(axis=1) if together else found[:, place]
            panel.plot(
                np.arange(1, len(errors) + 1),
                errors,
                color=colour,
                linestyle=dashes,
                linewidth=2 if dashes == "-" else 1.2,
                marker="." if len(errors) == 1 else None,
                label=forecaster,
            )
        panel.set_title(name, loc="left", fontsize=9, fontweight="bold")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.25)
    for unused in range(len(panels), rows * columns):
        axes.flat[unused].set_axis_off()
    for panel in axes[-1]:
        panel.set_xlabel("steps ahead")
    legend = axes.flat[0].get_legend_handles_labels()
    figure.legend(*legend, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(title, x=0.01, ha="left")
    return figure
