"""Draws the dashboard's panels as Grafana would lay them out, from what their queries answered."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

_COLUMNS = 24
_WIDTH_INCHES, _ROW_INCHES = 16.0, 0.36
_BACK, _PANEL, _LINE, _TEXT, _DIM = "#111217", "#181b1f", "#2c3235", "#d8d9da", "#8e9297"
# Grafana's names of colours, and its classic palette.
_NAMED = {
    "green": "#73bf69",
    "orange": "#ff9830",
    "red": "#f2495c",
    "blue": "#5794f2",
    "transparent": "none",
}
_PALETTE = ("#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0")
_STYLE = {
    "font.size": 8,
    "text.color": _TEXT,
    "axes.facecolor": _PANEL,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _DIM,
    "xtick.color": _DIM,
    "ytick.color": _DIM,
    "grid.color": _LINE,
}


class Series(NamedTuple):
    """A line of a panel, or a row of a table.

    Attributes:
        label: As the legend has it.
        labels: What Prometheus tells it by.
        seconds: Since the first of them, `[points]`.
        values: `[points]`; NaN where there is none.
    """

    label: str
    labels: Mapping[str, str]
    seconds: NDArray[np.float64]
    values: NDArray[np.float64]


def scaled(units: Sequence[str], base: float, plain: str) -> Callable[[float], str]:
    """Numbers with the largest unit that leaves them over one."""

    def text(value: float) -> str:
        power = 0
        while abs(value) >= base and power < len(units) - 1:
            value, power = value / base, power + 1
        return f"{value:.3g} {units[power]}{plain}".strip()

    return text


def _seconds(value: float) -> str:
    if abs(value) >= 1 or value == 0:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if abs(value) >= 1e-3 else f"{value * 1e6:.3g} µs"


# Grafana's units.
UNITS: dict[str, Callable[[float], str]] = {
    "none": "{:.3g}".format,
    "short": scaled(("", "K", "M"), 1000, ""),
    "string": "{:.3g}".format,
    "percent": "{:.3g}%".format,
    "percentunit": lambda value: f"{100 * value:.3g}%",
    "reqps": "{:.3g} req/s".format,
    "cps": "{:.3g} c/s".format,
    "s": _seconds,
    "bytes": scaled(("B", "KiB", "MiB", "GiB"), 1024, ""),
    "mbytes": scaled(("MiB", "GiB"), 1024, ""),
}


def draw(panels: Sequence[dict[str, Any]], found: Mapping[str, list[Series]], path: Path) -> None:
    """Draw a dashboard.

    Args:
        panels: All of it, rows included.
        found: What each panel's queries answered, by its title.
        path: The picture.
    """
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH_INCHES, rows * _ROW_INCHES), facecolor=_BACK)
        for panel in panels:
            at = panel["gridPos"]
            left, width = at["x"] / _COLUMNS, at["w"] / _COLUMNS
            height, bottom = at["h"] / rows, 1 - (at["y"] + at["h"]) / rows
            if panel["type"] == "row":
                place = (left + 0.004, bottom + height / 2)
                figure.text(*place, panel["title"], va="center", fontsize=10, weight="bold")
                continue
            gap = 0.05 / _WIDTH_INCHES
            box = (left + gap, bottom + 0.05 / (rows * _ROW_INCHES), width - 2 * gap)
            frame = figure.add_axes((*box, height - 0.1 / (rows * _ROW_INCHES)))
            frame.set(xticks=[], yticks=[])
            inches = at["h"] * _ROW_INCHES
            frame.text(
                *(0.06 / (width * _WIDTH_INCHES), 1 - 0.16 / inches),
                panel["title"],
                va="center",
                weight="bold",
                fontsize=8.5,
            )
            _DRAWN[panel["type"]](frame, panel, found[panel["title"]])
        figure.savefig(path, dpi=90, facecolor=_BACK)


def _stat(frame: Axes, panel: dict[str, Any], found: list[Series]) -> None:
    if not found:
        _nothing(frame, panel)
        return
    defaults, [series] = panel["fieldConfig"]["defaults"], found
    value = series.values[-1]
    [colour] = [
        step["color"]
        for step in defaults["thresholds"]["steps"]
        if step["value"] is None or value >= step["value"]
    ][-1:]
    text = UNITS[defaults["unit"]](value)
    for mapping in defaults.get("mappings", ()):
        text = mapping["options"].get(f"{value:.0f}", {"text": text})["text"]
    colour = _NAMED[colour]
    if panel["options"]["colorMode"] == "background_solid":
        frame.set_facecolor(colour)
        colour = "white"
    frame.text(0.5, 0.45, text, ha="center", va="center", fontsize=20, color=colour)
    if panel["options"]["graphMode"] == "area":
        below = frame.inset_axes((0, 0, 1, 0.3))
        below.axis("off")
        below.fill_between(series.seconds, series.values, color=colour, alpha=0.25, linewidth=0)
        below.plot(series.seconds, series.values, color=colour, linewidth=1)


def _lines(frame: Axes, panel: dict[str, Any], found: list[Series]) -> None:
    if not found:
        _nothing(frame, panel)
        return
    defaults = panel["fieldConfig"]["defaults"]
    custom, unit = defaults["custom"], UNITS[defaults["unit"]]
    inner = frame.inset_axes((0.13, 0.24, 0.84, 0.6))
    looks = [_look(panel, series.label, index) for index, series in enumerate(found)]
    if "stacking" in custom:
        inner.stackplot(
            found[0].seconds,
            [np.nan_to_num(series.values) for series in found],
            colors=[colour for colour, _ in looks],
            labels=[series.label for series in found],
            alpha=0.6,
            linewidth=0,
        )
    else:
        style = "steps-post" if custom.get("lineInterpolation") == "stepAfter" else "default"
        for series, (colour, dashes) in zip(found, looks, strict=True):
            inner.plot(
                series.seconds,
                series.values,
                color=colour,
                linestyle=dashes,
                linewidth=1.2,
                drawstyle=style,
                label=series.label,
            )
    for step in defaults["thresholds"]["steps"] if "thresholdsStyle" in custom else ():
        if step["value"] is not None and step["value"] <= max(inner.get_ylim()[1], 1):
            inner.axhline(step["value"], color=_NAMED[step["color"]], linestyle="--", linewidth=1)
    inner.set_ylim(bottom=defaults["min"], top=defaults.get("max"))
    inner.margins(x=0)
    inner.yaxis.set_major_locator(MaxNLocator(4))
    inner.yaxis.set_major_formatter(FuncFormatter(lambda value, _: unit(value)))
    inner.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} s"))
    inner.grid(linewidth=0.5)
    inner.set_axisbelow(True)
    inner.spines[["top", "right", "left"]].set_visible(False)
    longest = max(len(series.label) for series in found)
    inches = panel["gridPos"]["w"] / _COLUMNS * _WIDTH_INCHES
    frame.legend(
        *inner.get_legend_handles_labels(),
        loc="lower left",
        ncols=max(1, min(len(found), int(inches / (0.06 * longest + 0.35)))),
        frameon=False,
        fontsize=6.5,
        handlelength=1,
        columnspacing=1,
        labelcolor=_TEXT,
    )


def _look(panel: dict[str, Any], label: str, index: int) -> tuple[str, str]:
    """Colour and dashes of a line."""
    colour, dashes = _PALETTE[index % len(_PALETTE)], "-"
    for override in panel["fieldConfig"]["overrides"]:
        if re.fullmatch(override["matcher"]["options"], label):
            for own in override["properties"]:
                if own["id"] == "color":
                    colour = _NAMED[own["value"]["fixedColor"]]
                if own["id"] == "custom.lineStyle":
                    dashes = "--"
    return colour, dashes


def _table(frame: Axes, panel: dict[str, Any], found: list[Series]) -> None:
    [organised] = [one["options"] for one in panel["transformations"] if one["id"] == "organize"]
    names = [name for name in organised["indexByName"] if name != "Value"]
    named = organised["renameByName"]
    rows = [[series.labels.get(name, "") for name in names] for series in found]
    heads = [named.get(name, name) for name in names]
    if "Value" in named:
        heads.append(named["Value"])
        rows = [[*row, f"{one.values[-1]:.1%}"] for row, one in zip(rows, found, strict=True)]
    ordered = sorted(rows)
    most = int(panel["gridPos"]["h"] * 1.5)
    for line, row in enumerate([heads, *ordered[:most]]):
        for column, cell in enumerate(row):
            frame.text(
                *(0.02 + column * 0.98 / len(heads), 0.84 - line * 0.82 / (most + 1)),
                cell.replace("ExecutionProvider", ""),
                va="center",
                fontsize=7,
                color=_DIM if line == 0 else _TEXT,
            )


def _nothing(frame: Axes, panel: dict[str, Any]) -> None:
    text = panel["fieldConfig"]["defaults"].get("noValue", "no data")
    frame.text(0.5, 0.45, text, ha="center", va="center", color=_DIM)


_DRAWN = {"stat": _stat, "timeseries": _lines, "table": _table}
