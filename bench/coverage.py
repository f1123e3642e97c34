"""What prediction intervals hold, by method and by pass: `python -m bench.coverage CHECKPOINT …`.

Prints a part of docs/intervals.md; `--write` puts it there.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from bench.page import table, write_part
from foretell.bundle.calibration import order_statistics
from foretell.bundle.manifest import CalibrationReport
from foretell.data.panel import Panel
from foretell.data.source import DataSource
from foretell.data.splits import Spans, Split
from foretell.export.conformal import FLOOR, ROLL, WINDOWS, calibrate, roll_forward
from foretell.export.data_windows import windows_in
from foretell.export.errors import UncalibratedError
from foretell.export.graphs import trace
from foretell.export.rewrites import inference_form
from foretell.export.runtime import Graph
from foretell.export.serving_form import ServingForm
from foretell.models.checkpoint import CheckpointInfo, load
from foretell.timeaxis.frequency import Frequency

PAGE = Path(__file__).parent.parent / "docs" / "intervals.md"
LEVELS = (0.8, 0.95)
_PASSES = """\
### By pass

Share of the test split's values that the interval held, and its mean width in standardised units.

"""
_METHODS = """\
### By method

Share held, mean width and mean interval score (the lower the better; Gneiting and Raftery 2007) of
the first pass. *Validation*: calibrated on either half of the split and measured on the other.
*Test*: calibrated on all of it, as a bundle is.

"""
SERVED = f"deviation, at least {FLOOR:g} of training's"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """Windows with the errors of their first pass, in standardised units.

    Attributes:
        history: `[windows, context, channels]`.
        error: `[windows, horizon, channels]`, actual less forecast.
    """

    history: Floats
    error: Floats


def scales(history: Floats) -> dict[str, Floats]:
    """Ways to tell from a history how wrong its forecast will be, `[windows, 1, channels]`."""
    steps = history.shape[1]
    deviation = history.std(axis=1, keepdims=True)
    least = np.full_like(deviation, FLOOR)
    late = history[:, -steps // 2 :].std(axis=1, keepdims=True)
    moves = np.abs(np.diff(history, axis=1)).mean(axis=1, keepdims=True)
    return {
        "none": np.ones_like(deviation),
        SERVED: np.maximum(deviation, least),
        "deviation of its later half, likewise": np.maximum(late, least),
        "mean absolute difference of steps, likewise": np.maximum(moves, least),
        "deviation and 0.25 of training's, as root of squares": np.hypot(deviation, 0.25),
    }


def measure(known: Sample, coming: Sample, name: str, level: float, *, signed: bool) -> Floats:
    """Share held, mean width and mean interval score of one method."""
    scale = scales(coming.history)[name]
    errors = known.error / scales(known.history)[name]
    if signed:
        low, high = order_statistics(errors, [(1 - level) / 2, (1 + level) / 2])
    else:
        (high,) = order_statistics(np.abs(errors), [level])
        low = -high
    low, high = low * scale, high * scale
    beyond = np.maximum(low - coming.error, 0) + np.maximum(coming.error - high, 0)
    held = (beyond == 0).mean()
    return np.array([held, (high - low).mean(), (high - low + 2 / (1 - level) * beyond).mean()])


def methods(graph: Graph, info: CheckpointInfo, data: Panel, split: Split) -> Iterator[list[str]]:
    """A row for each method: each half of validation for the other, and all of it for test."""
    first, second, whole, test = (
        sample(graph, info, data, spans)
        for spans in (*_halves(split.validation), split.validation, split.test)
    )
    cases = {"validation": [(first, second), (second, first)], "test": [(whole, test)]}
    for name, signed in [*((name, True) for name in scales(test.history)), (SERVED, False)]:
        cells = []
        for pairs in cases.values():
            for level in LEVELS:
                found = [measure(*pair, name, level, signed=signed) for pair in pairs]
                held, width, score = np.mean(found, axis=0)
                cells.append(f"{held:.1%} / {width:.2f} / {score:.2f}")
        yield [name, "signed" if signed else "absolute", *cells]


def passes(report: CalibrationReport) -> Iterator[list[str]]:
    """A row for each pass that was measured in the test split."""
    horizon = report.steps // len(report.windows)
    for number, (windows, disjoint) in enumerate(
        zip(report.windows, report.disjoint, strict=True), 1
    ):
        held = [
            f"{part.coverage:.1%} / {part.width:.2f}"
            for part in report.coverage
            if part.last_step == number * horizon
        ]
        steps = f"{(number - 1) * horizon + 1} to {number * horizon}"
        yield [steps, str(windows), str(disjoint), *held]


def sample(graph: Graph, info: CheckpointInfo, data: Panel, spans: Spans) -> Sample:
    """Evenly spaced windows of some rows, as many as `calibrate` takes."""
    windows = windows_in(info, data, spans, info.config.horizon)
    count = min(WINDOWS, len(windows))
    chosen = np.linspace(0, len(windows) - 1, count).round().astype(np.int64)
    batch = windows.batch(torch.from_numpy(chosen))
    forecast = roll_forward(graph, batch, info.config.horizon)
    mean, std = np.array(info.target_scaler.mean), np.array(info.target_scaler.std)
    history = (batch.history[..., windows.targets].numpy().astype(np.float64) - mean) / std
    return Sample(history, (batch.target.numpy().astype(np.float64) - forecast) / std)


def _halves(spans: Spans) -> Iterator[Spans]:
    """The earlier half of each span, and the later one."""
    middles = [(start + end) // 2 for _, start, end in spans]
    yield tuple(span._replace(end=middle) for span, middle in zip(spans, middles, strict=True))
    yield tuple(span._replace(start=middle) for span, middle in zip(spans, middles, strict=True))


def rows_of(folder: Path) -> tuple[list[list[str]], list[list[str]]]:
    """The rows of one checkpoint, by pass and by method."""
    info, model = load(folder)
    source = DataSource.recorded(info.data)
    if source is None:
        raise SystemExit(f"{folder}: it names no data to measure on")
    data = source.read(info.channels, Frequency.parse(info.frequency))
    split = source.splits.cut(data, info.config.context, info.config.horizon)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "forecast.onnx"
        onnx.save(trace(ServingForm(inference_form(model), info.scaler, "forecast")), path)
        graph = Graph(path)
        try:
            _, report = calibrate(graph, info, data, split, ROLL)
        except UncalibratedError as error:
            raise SystemExit(f"{folder}: {error}") from None
        by_pass, by_method = passes(report), methods(graph, info, data, split)
        return [[folder.name, *row] for row in by_pass], [[folder.name, *row] for row in by_method]


def main() -> None:
    """Measure, and write or print the part."""
    parser = argparse.ArgumentParser(prog="python -m bench.coverage", description=__doc__)
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--write", action="store_true", help=f"write it into {PAGE.name}")
    arguments = parser.parse_args()
    by_pass, by_method = zip(*map(rows_of, arguments.checkpoints), strict=True)
    intervals = [f"{level:.0%}" for level in LEVELS]
    head = ["model", "steps", "windows", "disjoint", *intervals]
    text = f"{_PASSES}{table(head, chain(*by_pass))}\n"
    cases = [f"{split}, {level}" for split in ("validation", "test") for level in intervals]
    text += f"{_METHODS}{table(['model', 'scale', 'errors', *cases], chain(*by_method))}"
    if arguments.write:
        write_part("coverage", text, PAGE)
    else:
        print(text)


if __name__ == "__main__":
    main()
