"""A picture of attention."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from foretell.plots.forecasts import FORECAST, HISTORY, style
from foretell.predict.evidence import Evidence, Lags

_TICKS = 5


def draw(stages: Sequence[Evidence], title: str, path: Path) -> None:
    """Draw one panel per stage: lags as bars over the correlation, other maps as heat maps."""
    with style():
        figure_of(stages, title).savefig(path, dpi=110)


def figure_of(stages: Sequence[Evidence], title: str) -> Figure:
    """The picture."""
    columns = min(len(stages), 2)
    rows = -(-len(stages) // columns)
    figure = Figure(figsize=(5.5 * columns, 3.6 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for panel, stage in zip(axes.flat, stages, strict=False):
        panel.set_title(f"{stage.name} ({stage.kind})", loc="left", fontsize=9, fontweight="bold")
        if stage.lags is None:
            _draw_map(figure, panel, stage)
        else:
            _draw_lags(panel, stage.lags)
    for unused in axes.flat[len(stages) :]:
        unused.set_axis_off()
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def _draw_lags(panel: Any, lags: Lags) -> None:  # noqa: ANN401 - matplotlib's axes
    panel.bar(
        lags.positions, lags.weights, color=FORECAST, width=max(len(lags.correlation) / 80, 1)
    )
    panel.set_xlabel("lag")
    panel.set_ylabel("weight", color=FORECAST)
    words = f" ({lags.periods[0]})" if lags.periods[0] else ""
    panel.annotate(
        f"{lags.positions[0]}{words}",
        (lags.positions[0], lags.weights[0]),
        textcoords="offset points",
        xytext=(0, 2),
        ha="center",
        fontsize=8,
    )
    curve = panel.twinx()
    curve.plot(np.arange(len(lags.correlation)), lags.correlation, color=HISTORY, linewidth=1)
    curve.set_ylabel("correlation", color=HISTORY)


def _draw_map(figure: Figure, panel: Any, stage: Evidence) -> None:  # noqa: ANN401 - see above
    image = panel.imshow(stage.weights, aspect="auto", interpolation="nearest", cmap="viridis")
    figure.colorbar(image, ax=panel, label="weight")
    for axis, names, label in (
        (panel.xaxis, stage.keys, "looked at"),
        (panel.yaxis, stage.queries, "by"),
    ):
        ticks = np.unique(np.linspace(0, len(names) - 1, _TICKS).round().astype(int))
        # A label of a time span shows its start.
        axis.set_ticks(ticks, [names[tick].split(" to ")[0] for tick in ticks], fontsize=7)
        axis.set_label_text(label)
    panel.xaxis.set_tick_params(rotation=30)
    if 0 < (before := int(np.count_nonzero(~stage.ahead))) < len(stage.queries):
        panel.axhline(before - 0.5, color="white", linewidth=0.8, linestyle="--")
