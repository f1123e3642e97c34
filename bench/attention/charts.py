"""Charts of the comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

_STYLE = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "foretell",
    "svg.fonttype": "none",
}
_COLOURS = "tab20"


class Bubble(NamedTuple):
    """One model in the chart of errors.

    Attributes:
        name: Of its mechanism.
        speed: Windows a second.
        error: Mean squared error on the test split, standardised.
        mib: Peak memory.
    """

    name: str
    speed: float
    error: float
    mib: float


def error_by_speed(panels: Mapping[str, Sequence[Bubble]], path: Path) -> None:
    """Error by speed, area is memory (as in arXiv:2011.04006): one panel an architecture."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(5.5 * len(panels), 4.6), layout="constrained")
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axis, (title, bubbles) in zip(axes, panels.items(), strict=True):
            axis.set_title(title, loc="left", fontweight="bold")
            axis.set_xscale("log")
            axis.set_xlabel("windows a second, one at a time")
            axis.set_ylabel("mean squared error")
            axis.grid(alpha=0.25)
            most = max(bubble.mib for bubble in bubbles)
            for bubble in bubbles:
                place = (bubble.speed, bubble.error)
                axis.scatter(*place, s=400 * bubble.mib / most, alpha=0.45, edgecolors="none")
                axis.annotate(bubble.name, place, ha="center", va="center", fontsize=6)
        _save(figure, path)


def time_by_length(lines: Mapping[str, Mapping[int, float]], path: Path) -> None:
    """Milliseconds of a window by steps of context."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(8, 5), layout="constrained")
        axis = figure.subplots()
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("steps of context")
        axis.set_ylabel("milliseconds of a window")
        axis.grid(alpha=0.25)
        colours = mpl.colormaps[_COLOURS]
        for i, (name, points) in enumerate(lines.items()):
            style = ("-", "--")[i // 20 % 2]
            colour = colours(i % 20)
            axis.plot(
                *zip(*points.items(), strict=True), style, marker=".", color=colour, label=name
            )
        ticks = sorted({length for points in lines.values() for length in points})
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
        figure.legend(loc="outside right upper", fontsize=7, frameon=False)
        _save(figure, path)


def guidance(maps: Mapping[str, NDArray[np.float32]], path: Path) -> None:
    """Mean maps of cross-attention `[query, key]` next to each other."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(4 * len(maps), 3.6), layout="constrained")
        axes = figure.subplots(1, len(maps), sharey=True, squeeze=False)[0]
        most = max(float(weights.max()) for weights in maps.values())
        for axis, (title, weights) in zip(axes, maps.items(), strict=True):
            axis.set_title(title, loc="left", fontweight="bold")
            axis.set_xlabel("step of the history")
            axis.imshow(weights, aspect="auto", cmap="viridis", vmin=0, vmax=most)
        axes[0].set_ylabel("step of the decoder")
        _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})
