"""Charts of a report as SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from foretell.bundle.evaluation import Evaluation, Floats
from foretell.plots.errors import figure_of
from foretell.plots.forecasts import FORECAST, HISTORY, INK, style

# CSS variables of the page for matplotlib's colours, so that charts follow the dark theme.
_COLOURS = {
    FORECAST: "var(--accent)",
    HISTORY: "var(--muted)",
    INK: "var(--ink)",
    "#000000": "var(--ink)",
    "#b0b0b0": "var(--line)",
}
_COLOUR = re.compile("|".join(_COLOURS))
_IDS = re.compile(r'(\bid="|href="#|url\(#)')
# Style rules of matplotlib would apply to the whole page.
_RULES = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_SIZE = re.compile(r'(<svg [^>]*?)width="([\d.]+)pt" height="[\d.]+pt" ')


class Charts:
    """Draws figures for a page; each figure has its own identifiers."""

    def __init__(self) -> None:
        self._count = 0

    def draw(self, figure: Callable[[], Figure], label: str) -> Markup:
        """A figure as SVG in the page's colours, without external resources.

        Args:
            figure: Function that makes the figure.
            label: Description for screen readers.
        """
        self._count += 1
        buffer = io.StringIO()
        with style(), mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": str(self._count)}):
            nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
            figure().savefig(buffer, format="svg", transparent=True, metadata=nothing)
        text = buffer.getvalue()
        text = _RULES.sub("", text[text.index("<svg") :])
        text = _IDS.sub(rf"\g<1>chart-{self._count}-", text)
        text = _COLOUR.sub(lambda match: _COLOURS[match[0]], text)
        role = f'role="img" aria-label="{escape(label)}"'
        text = _SIZE.sub(lambda match: f'{match[1]}width="{match[2]}pt" {role} ', text, count=1)
        # Written by matplotlib, which escapes names.
        return Markup(text)  # noqa: S704


def errors_by_step(found: Evaluation, names: Mapping[str, str], channels: Sequence[str]) -> Figure:
    """The mean absolute error by step ahead: one panel per channel, one line per forecaster."""
    lines = {names[name]: mae for name, mae in zip(found.forecasters, found.mae, strict=True)}
    return figure_of(lines, channels, "")


def calibration_curve(levels: Floats, reached: Floats, channels: Sequence[str]) -> Figure:
    """The share of actual values at or below each quantile, over its level.

    Args:
        levels: Levels of the quantiles `[levels]`.
        reached: Shares `[levels, channels]`.
        channels: Names of the channels.
    """
    figure = Figure(figsize=(4.6, 4.2), layout="constrained")
    panel = figure.subplots()
    panel.plot([0, 1], [0, 1], color=HISTORY, linewidth=1, linestyle="--", label="nominal")
    for column in reached.T:
        panel.plot(levels, column, color=HISTORY, linewidth=0.7, alpha=0.6)
    mean = reached.mean(axis=1)
    named = "all channels" if len(channels) > 1 else channels[0]
    panel.plot(levels, mean, color=FORECAST, linewidth=2, marker=".", label=named)
    panel.set_xlabel("level of the quantile")
    panel.set_ylabel("share of actual values at or below it")
    panel.set_aspect("equal")
    panel.grid(alpha=0.25)
    panel.legend(frameon=False, loc="upper left")
    return figure
