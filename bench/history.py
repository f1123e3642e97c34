"""Quantiles calibrated by a request's own rows, by method: `python -m bench.history CHECKPOINT …`.

From origins all over the test split a history is forecast as a request of so many rows would be,
and its intervals are those of each method, from the errors of the earlier origins within these
rows. Prints a part of docs/intervals.md; `--write` puts it there.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from bench.coverage import LEVELS, PAGE
from bench.page import table, write_part
from foretell.bundle.calibration import Calibration, order_statistics, scale
from foretell.data.panel import Panel
from foretell.data.source import DataSource
from foretell.data.splits import Span
from foretell.export.conformal import BATCH, FLOOR, calibrate, roll_forward
from foretell.export.data_windows import split_of, windows_in
from foretell.export.graphs import trace
from foretell.export.rewrites import inference_form
from foretell.export.runtime import Graph
from foretell.export.serving_form import ServingForm
from foretell.models.checkpoint import CheckpointInfo, load
from foretell.service.engine.recalibration import MOST_ORIGINS, Recalibration, stride_of
from foretell.timeaxis.frequency import Frequency

ROWS = 1000
_FORECASTS = 120
SERVED = "history's and stored errors as one (served)"
_INTRODUCTION = """\
Share held, mean width in standardised units and mean interval score (the lower the better) of
requests of {rows} rows each, from origins all over the test split.

"""
# Of adaptive conformal inference: how far a miss moves the level.
_STEP = 0.05
_ALPHAS = np.linspace(0.002, 0.998, 250)
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors of forecasts from origins of the test split and before it.

    Attributes:
        scaled: `[origins, horizon, channels]`, actual less forecast, in units of the scale of each
            history.
        scales: `[origins, 1, channels]`, that in standardised units.
        coming: Those that are judged.
        known: Of each of them, the origins that its request could tell the errors of, oldest first.
    """

    scaled: Floats
    scales: Floats
    coming: NDArray[np.int64]
    known: list[NDArray[np.int64]]


# From the errors of a history, the ends of an interval of a level `[2, horizon, channels]`.
Method = Callable[[Floats, float], Floats]


def tails(level: float) -> list[float]:
    """The levels of an interval's ends."""
    return [(1 - level) / 2, (1 + level) / 2]


def methods(stored: Calibration, horizon: int) -> dict[str, Method]:
    """All of them, by name."""
    known = Recalibration.of(stored, horizon)
    stride = stride_of(horizon)

    def of_both(errors: Floats, level: float) -> Floats:
        return known.offsets(errors, stride, tails(level))

    return {
        "stored errors alone": lambda _, level: stored.at(np.array(tails(level)), horizon),
        "history's errors alone, by step": lambda errors, level: order_statistics(
            errors, tails(level)
        ).astype(np.float64),
        "history's errors alone, of all steps": partial(_pooled, known),
        "stored, times a factor": partial(_factor, stored, known, shifted=False),
        "stored, shifted and times a factor": partial(_factor, stored, known, shifted=True),
        "stored, at an adaptive level (ACI)": partial(_adaptive, stored, horizon),
        SERVED: of_both,
    }


def _pooled(known: Recalibration, errors: Floats, level: float) -> Floats:
    """Quantiles of errors in units of the stored width of their step."""
    recent = ((errors - known.median) / known.width).reshape(-1, errors.shape[2])
    ends: Floats = known.median + known.width * np.quantile(recent, tails(level), axis=0)[:, None]
    return ends


def _factor(
    stored: Calibration, known: Recalibration, errors: Floats, level: float, *, shifted: bool
) -> Floats:
    """The stored interval, as much wider or narrower as makes it hold its share of the history."""
    channels = errors.shape[2]
    middle = known.median
    if shifted:
        recent = ((errors - known.median) / known.width).reshape(-1, channels)
        middle = middle + known.width * np.median(recent, axis=0)
    ends = stored.at(np.array(tails(level)), errors.shape[1]) - known.median
    least = 1e-3 * known.width
    above = (errors - middle) / np.maximum(ends[1], least)
    below = (middle - errors) / np.maximum(-ends[0], least)
    ratios = np.maximum(above, below).reshape(-1, channels)
    wider: Floats = middle + ends * np.quantile(ratios, level, axis=0)
    return wider


def _adaptive(stored: Calibration, horizon: int, errors: Floats, level: float) -> Floats:
    """Gibbs and Candès 2021: the level follows the misses, origin by origin, for each channel."""
    most, least = stored.levels[-1], stored.levels[0]
    ends = stored.at(
        np.clip(np.stack([_ALPHAS / 2, 1 - _ALPHAS / 2]), least, most).ravel(), horizon
    )
    low, high = ends[: len(_ALPHAS)], ends[len(_ALPHAS) :]
    channels = np.arange(errors.shape[2])
    alpha = np.full(len(channels), 1 - level)

    def at() -> Floats:
        place = np.clip(np.searchsorted(_ALPHAS, alpha), 0, len(_ALPHAS) - 1)
        return np.stack([low[place, :, channels].T, high[place, :, channels].T])

    for one in errors:
        bottom, top = at()
        alpha = alpha + _STEP * (1 - level - ((one < bottom) | (one > top)).mean(axis=0))
    return at()


def judge(errors: Errors, method: Method, level: float) -> Floats:
    """Share held, mean width and mean interval score of a method."""
    found = []
    for origin, known in zip(errors.coming, errors.known, strict=True):
        low, high = method(errors.scaled[known], level)
        actual, unit = errors.scaled[origin], errors.scales[origin]
        beyond = np.maximum(low - actual, 0) + np.maximum(actual - high, 0)
        score = high - low + 2 / (1 - level) * beyond
        found.append([(beyond == 0).mean(), ((high - low) * unit).mean(), (score * unit).mean()])
    mean: Floats = np.mean(found, axis=0)
    return mean


def errors_of(graph: Graph, info: CheckpointInfo, panel: Panel, test: Span, rows: int) -> Errors:
    """Forecast from all origins that are judged or that their requests could tell the errors of."""
    context, horizon = info.config.context, info.config.horizon
    stride = stride_of(horizon)
    first, last = max(test.start + context, rows), test.end - horizon
    spacing = max(stride, (last - first) // _FORECASTS // stride * stride)
    coming = np.arange(first, last + 1, spacing)
    known = [
        np.arange(at - horizon, at - rows + context - 1, -stride)[:MOST_ORIGINS][::-1]
        for at in coming
    ]
    origins = np.unique(np.concatenate([coming, *known]))
    start = int(origins[0]) - context
    windows = windows_in(info, panel, (test._replace(start=start),), horizon)
    std = np.array(info.target_scaler.std)
    scaled, scales = [], []
    for at in range(0, len(origins), BATCH):
        batch = windows.batch(torch.from_numpy(origins[at : at + BATCH] - context - start))
        unit = scale(batch.history[..., windows.targets].numpy(), FLOOR * std)
        error = batch.target.numpy().astype(np.float64) - roll_forward(graph, batch, horizon)
        scaled.append(error / unit)
        scales.append(unit / std)
    return Errors(
        np.concatenate(scaled),
        np.concatenate(scales),
        np.searchsorted(origins, coming),
        [np.searchsorted(origins, own) for own in known],
    )


def rows_of(folder: Path, rows: int) -> Iterator[list[str]]:
    """A row for each method, of one checkpoint."""
    info, model = load(folder)
    source = DataSource.recorded(info.data)
    if source is None:
        raise SystemExit(f"{folder}: it names no data to measure on")
    panel = source.read(info.channels, Frequency.parse(info.frequency))
    split = split_of(info, panel)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "forecast.onnx"
        onnx.save(trace(ServingForm(inference_form(model), info.scaler, "forecast")), path)
        graph = Graph(path)
        calibrated = calibrate(graph, info, panel, split, 1)
        if calibrated is None or split is None:
            raise SystemExit(f"{folder}: its validation split has too few windows")
        errors = errors_of(graph, info, panel, split.test[0], rows)
    for name, method in methods(calibrated[0], info.config.horizon).items():
        cells = [judge(errors, method, level) for level in LEVELS]
        yield [
            folder.name,
            name,
            *(f"{held:.1%} / {width:.2f} / {score:.2f}" for held, width, score in cells),
        ]


def main() -> None:
    """Measure, and write or print the part."""
    parser = argparse.ArgumentParser(prog="python -m bench.history", description=__doc__)
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of a request")
    parser.add_argument("--write", action="store_true", help=f"write it into {PAGE.name}")
    arguments = parser.parse_args()
    found = [row for each in arguments.checkpoints for row in rows_of(each, arguments.rows)]
    head = ["model", "method", *(f"{level:.0%}" for level in LEVELS)]
    text = _INTRODUCTION.format(rows=f"{arguments.rows:,}") + table(head, found)
    if arguments.write:
        write_part("history", text, PAGE)
    else:
        print(text)


if __name__ == "__main__":
    main()
