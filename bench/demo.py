"""Draw docs/demo.svg: the errors of the demo's models by step ahead, next to the baselines'.

`make bench-demo` runs it on the bundles of `make demo`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from foretell.bundle import layout
from foretell.bundle.frequency import Frequency
from foretell.export.runtime import Graph
from foretell.export.windows import windows_of
from foretell.models.baselines import last_value, seasonal_naive
from foretell.models.checkpoint import CheckpointInfo, load_info
from foretell.models.data.windows import Batch, Windows

_SEASON = 24
_BATCH = 64
_COLOURS = {"patchtst": "#d1495b", "transformer": "#2e86ab", "autoformer": "#6a994e"}
_STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "foretell",
    "svg.fonttype": "none",
}
_BASELINES = {"the last value": "#9aa3ad", "the last day": "#5b6470"}

Predict = Callable[[Batch], Tensor]
Floats = NDArray[np.float64]


def by_step(predict: Predict, windows: Windows, std: Floats) -> tuple[Floats, Floats]:
    """Mean squared and absolute error of each step ahead, in standardised units: `[horizon]`."""
    squared, absolute = np.zeros(windows.horizon), np.zeros(windows.horizon)
    for batch in windows.batches(_BATCH):
        error = (predict(batch).double() - batch.target.double()).numpy() / std
        squared += (error**2).sum(axis=(0, 2))
        absolute += np.abs(error).sum(axis=(0, 2))
    count = len(windows) * len(std)
    return squared / count, absolute / count


def measure(demo: Path) -> dict[str, tuple[Floats, Floats]]:
    """Both errors by step of every forecaster, on the test split."""
    found: dict[str, tuple[Floats, Floats]] = {}
    for name in _COLOURS:
        info = load_info(demo / "checkpoints" / name)
        windows, std = _windows(info), np.array(info.scaler.std)
        version = layout.versions(demo / "repository", name)[-1]
        graph = Graph(demo / "repository" / name / version / layout.FORECAST_GRAPH)

        def predict(batch: Batch, graph: Graph = graph) -> Tensor:
            return torch.from_numpy(graph.predict(*batch[:3]))

        found[name] = by_step(predict, windows, std)
    horizon = windows.horizon
    baselines: tuple[Predict, ...] = (
        lambda batch: last_value(batch.history, horizon),
        lambda batch: seasonal_naive(batch.history, horizon, _SEASON),
    )
    for name, baseline in zip(_BASELINES, baselines, strict=True):
        found[name] = by_step(baseline, windows, std)
    return found


def _windows(info: CheckpointInfo) -> Windows:
    if info.data is None:
        raise SystemExit("a checkpoint without data has no test split")
    return windows_of(info, info.data.read(info.channels, Frequency.parse(info.frequency)))


def draw(found: dict[str, tuple[Floats, Floats]], path: Path) -> None:
    """A panel for each error, a line for each forecaster."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9, 3.2), layout="constrained")
        for place, (panel, title) in enumerate(
            zip(figure.subplots(1, 2), ("squared", "absolute"), strict=True)
        ):
            for name, errors in found.items():
                line = errors[place]
                panel.plot(
                    np.arange(1, len(line) + 1),
                    line,
                    color=(_COLOURS | _BASELINES)[name],
                    linestyle="--" if name in _BASELINES else "-",
                    label=f"{name} {line.mean():.3f}",
                )
            panel.set_title(f"mean {title} error by hour ahead", loc="left", fontweight="bold")
            panel.set_ylim(bottom=0)
            panel.grid(alpha=0.25)
            panel.legend(frameon=False, fontsize=8)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Measure, and draw."""
    parser = argparse.ArgumentParser(prog="python -m bench.demo", description=__doc__)
    parser.add_argument("demo", nargs="?", type=Path, default=Path(".demo"))
    parser.add_argument("--to", type=Path, default=Path("docs/demo.svg"))
    given = parser.parse_args()
    draw(measure(given.demo), given.to)


if __name__ == "__main__":
    main()
