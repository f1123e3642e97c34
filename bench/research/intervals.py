"""Coverage of intervals: by method, from the rows of a request, and of heads of counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pandas as pd
import torch
from numpy.typing import NDArray

from bench.harness import Result, Row, Run
from foretell.bundle.calibration import Calibration, order_statistics, scale
from foretell.bundle.manifest import read as read_manifest
from foretell.bundle.results import CalibrationReport
from foretell.data.panel import Panel
from foretell.data.reading import read
from foretell.data.splits import Span, Spans, Split
from foretell.export.conformal import BATCH, FLOOR, ROLL, WINDOWS, calibrate, roll_forward
from foretell.export.data_windows import data_of, split_of, windows_in, windows_of
from foretell.export.graphs import trace
from foretell.export.rewrites import inference_form
from foretell.export.runtime import Graph
from foretell.export.serving_form import ServingForm
from foretell.export.write import export_checkpoint
from foretell.models.checkpoint import CheckpointInfo, load
from foretell.service.engine.recalibration import MOST_ORIGINS, Recalibration, stride_of
from foretell.training.config import TrainingConfig
from foretell.training.train import train

LEVELS = (0.8, 0.95)
SCALE = f"deviation, at least {FLOOR:g} of training's"
SERVED = "history's and stored errors as one (served)"
_ROWS, _FORECASTS = 1000, 120
# Step size of adaptive conformal inference: how far a miss moves the level.
_STEP, _ALPHAS = 0.05, np.linspace(0.002, 0.998, 250)
Floats = NDArray[np.float64]
# From the errors of a history, the ends of an interval of a level `[2, horizon, channels]`.
Method = Callable[[Floats, float], Floats]


class Subject(NamedTuple):
    """A checkpoint with its graph, its data and their splits."""

    name: str
    info: CheckpointInfo
    graph: Graph
    panel: Panel
    split: Split


def _subjects(run: Run) -> Iterator[Subject]:
    """The checkpoints of --data."""
    for folder in run.data:
        info, model = load(folder)
        panel = data_of(info)
        split = None if panel is None else split_of(info, panel)
        if panel is None or split is None:
            raise SystemExit(f"{folder}: it names no data to measure on")
        path = run.folder / "forecast.onnx"
        onnx.save(trace(ServingForm(inference_form(model), info.scaler, "forecast")), path)
        yield Subject(folder.name, info, Graph(path), panel, split)


def _cell(low: Floats, high: Floats, actual: Floats, level: float, unit: Floats) -> Floats:
    """Coverage, mean width and mean interval score (Gneiting and Raftery 2007)."""
    beyond = np.maximum(low - actual, 0) + np.maximum(actual - high, 0)
    score = high - low + 2 / (1 - level) * beyond
    return np.array([(beyond == 0).mean(), ((high - low) * unit).mean(), (score * unit).mean()])


def _tails(level: float) -> list[float]:
    return [(1 - level) / 2, (1 + level) / 2]


def _shown(cells: list[Floats]) -> str:
    held, width, score = np.mean(cells, axis=0)
    return f"{held:.1%} / {width:.2f} / {score:.2f}"


@dataclass(frozen=True)
class Sample:
    """Windows with the errors of their first pass, in standardised units.

    Attributes:
        history: `[windows, context, channels]`.
        error: `[windows, horizon, channels]`, actual minus forecast.
    """

    history: Floats
    error: Floats


def coverage(run: Run) -> Result:
    """By pass and by method, of the checkpoints of --data."""
    by_pass: list[Row] = []
    by_method: list[Row] = []
    for subject in _subjects(run):
        _, report = calibrate(subject.graph, subject.info, subject.panel, subject.split, ROLL)
        by_pass += _passes(subject.name, report)
        by_method += _methods(subject)
    return Result({"passes": by_pass, "methods": by_method})


def _passes(name: str, report: CalibrationReport) -> Iterator[Row]:
    horizon = report.steps // len(report.windows)
    for number, (windows, disjoint) in enumerate(zip(report.windows, report.disjoint, strict=True)):
        held = {
            f"{part.level:.0%}": f"{part.coverage:.1%} / {part.width:.2f}"
            for part in report.coverage
            if part.last_step == (number + 1) * horizon
        }
        steps = f"{number * horizon + 1} to {(number + 1) * horizon}"
        yield {"model": name, "steps": steps, "windows": windows, "disjoint": disjoint, **held}


def _methods(subject: Subject) -> Iterator[Row]:
    """Each half of validation for the other, and all of it for test."""
    split = subject.split
    middles = [(start + end) // 2 for _, start, end in split.validation]
    halves = [
        tuple(
            each._replace(**{side: at}) for each, at in zip(split.validation, middles, strict=True)
        )
        for side in ("end", "start")
    ]
    first, second, whole, test = (
        _sample(subject, spans) for spans in (*halves, split.validation, split.test)
    )
    cases = {"validation": [(first, second), (second, first)], "test": [(whole, test)]}
    for name, signed in [*((name, True) for name in scales(test.history)), (SCALE, False)]:
        row = {"model": subject.name, "scale": name, "errors": "signed" if signed else "absolute"}
        for case, pairs in cases.items():
            for level in LEVELS:
                found = [held(*pair, name, level, signed=signed) for pair in pairs]
                row[f"{case}, {level:.0%}"] = _shown(found)
        yield row


def scales(history: Floats) -> dict[str, Floats]:
    """Scales of the error that are computed from a history, `[windows, 1, channels]`."""
    deviation = history.std(axis=1, keepdims=True)
    least = np.full_like(deviation, FLOOR)
    late = history[:, -history.shape[1] // 2 :].std(axis=1, keepdims=True)
    moves = np.abs(np.diff(history, axis=1)).mean(axis=1, keepdims=True)
    return {
        "none": np.ones_like(deviation),
        SCALE: np.maximum(deviation, least),
        "deviation of its later half, likewise": np.maximum(late, least),
        "mean absolute difference of steps, likewise": np.maximum(moves, least),
        "deviation and 0.25 of training's, as root of squares": np.hypot(deviation, 0.25),
    }


def held(known: Sample, coming: Sample, name: str, level: float, *, signed: bool) -> Floats:
    """Coverage, mean width and mean interval score of one scale."""
    unit = scales(coming.history)[name]
    errors = known.error / scales(known.history)[name]
    if signed:
        low, high = order_statistics(errors, _tails(level))
    else:
        [high] = order_statistics(np.abs(errors), [level])
        low = -high
    return _cell(low, high, coming.error / unit, level, unit)


def _sample(subject: Subject, spans: Spans) -> Sample:
    """Evenly spaced windows of some rows, as many as `calibrate` takes."""
    info = subject.info
    windows = windows_in(info, subject.panel, spans, info.config.horizon)
    chosen = np.linspace(0, len(windows) - 1, min(WINDOWS, len(windows))).round()
    batch = windows.batch(torch.from_numpy(chosen.astype(np.int64)))
    forecast = roll_forward(subject.graph, batch, info.config.horizon)
    level, std = np.array(info.target_scaler.mean), np.array(info.target_scaler.std)
    history = (batch.history[..., windows.targets].numpy().astype(np.float64) - level) / std
    return Sample(history, (batch.target.numpy().astype(np.float64) - forecast) / std)


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors of forecasts from origins of the test split and before it.

    Attributes:
        scaled: `[origins, horizon, channels]`, in units of the scale of each history.
        scales: `[origins, 1, channels]`, the scales in standardised units.
        coming: Indices of the origins whose intervals are judged.
        known: For each judged origin, earlier origins whose errors are known there, oldest first.
    """

    scaled: Floats
    scales: Floats
    coming: NDArray[np.int64]
    known: list[NDArray[np.int64]]


def history(run: Run) -> Result:
    """Quantiles calibrated by a request's own rows, of the checkpoints of --data."""
    rows: list[Row] = []
    for subject in _subjects(run):
        stored, _ = calibrate(subject.graph, subject.info, subject.panel, subject.split, 1)
        errors = _errors(subject, subject.split.test[0], run.pick(_ROWS, 300))
        for name, method in methods(stored, subject.info.config.horizon).items():
            cells = {f"{level:.0%}": _shown(judge(errors, method, level)) for level in LEVELS}
            rows.append({"model": subject.name, "method": name, **cells})
    return Result({"history": rows})


def methods(stored: Calibration, horizon: int) -> dict[str, Method]:
    """All methods, by name."""
    known, stride = Recalibration.of(stored, horizon), stride_of(horizon)
    return {
        "stored errors alone": lambda _, level: stored.at(np.array(_tails(level)), horizon),
        "history's errors alone, by step": lambda errors, level: order_statistics(
            errors, _tails(level)
        ).astype(np.float64),
        "history's errors alone, of all steps": partial(_pooled, known),
        "stored, times a factor": partial(_factor, stored, known, shifted=False),
        "stored, shifted and times a factor": partial(_factor, stored, known, shifted=True),
        "stored, at an adaptive level (ACI)": partial(_adaptive, stored, horizon),
        SERVED: lambda errors, level: known.offsets(errors, stride, _tails(level)),
    }


def _pooled(known: Recalibration, errors: Floats, level: float) -> Floats:
    """Quantiles of errors in units of the stored width of their step."""
    recent = ((errors - known.median) / known.width).reshape(-1, errors.shape[2])
    ends: Floats = known.median + known.width * np.quantile(recent, _tails(level), axis=0)[:, None]
    return ends


def _factor(
    stored: Calibration, known: Recalibration, errors: Floats, level: float, *, shifted: bool
) -> Floats:
    """The stored interval, scaled so that it covers its share of the history."""
    channels, middle = errors.shape[2], known.median
    if shifted:
        recent = ((errors - known.median) / known.width).reshape(-1, channels)
        middle = middle + known.width * np.median(recent, axis=0)
    ends = stored.at(np.array(_tails(level)), errors.shape[1]) - known.median
    least = 1e-3 * known.width
    above = (errors - middle) / np.maximum(ends[1], least)
    below = (middle - errors) / np.maximum(-ends[0], least)
    ratios = np.maximum(above, below).reshape(-1, channels)
    wider: Floats = middle + ends * np.quantile(ratios, level, axis=0)
    return wider


def _adaptive(stored: Calibration, horizon: int, errors: Floats, level: float) -> Floats:
    """Gibbs and Candès 2021: the level follows the misses, origin by origin, for each channel."""
    levels = np.clip(np.stack([_ALPHAS / 2, 1 - _ALPHAS / 2]), stored.levels[0], stored.levels[-1])
    ends = stored.at(levels.ravel(), horizon)
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


def judge(errors: Errors, method: Method, level: float) -> list[Floats]:
    """Coverage, mean width and mean interval score of a method, by origin."""
    return [
        _cell(*method(errors.scaled[known], level), errors.scaled[at], level, errors.scales[at])
        for at, known in zip(errors.coming, errors.known, strict=True)
    ]


def _errors(subject: Subject, test: Span, rows: int) -> Errors:
    """Forecast from all origins that are judged or that their requests could tell the errors of."""
    info, (context, horizon) = (
        subject.info,
        (subject.info.config.context, subject.info.config.horizon),
    )
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
    windows = windows_in(info, subject.panel, (test._replace(start=start),), horizon)
    std = np.array(info.target_scaler.std)
    scaled, units = [], []
    for at in range(0, len(origins), BATCH):
        batch = windows.batch(torch.from_numpy(origins[at : at + BATCH] - context - start))
        unit = scale(batch.history[..., windows.targets].numpy(), FLOOR * std)
        forecast = roll_forward(subject.graph, batch, horizon)
        scaled.append((batch.target.numpy().astype(np.float64) - forecast) / unit)
        units.append(unit / std)
    return Errors(
        np.concatenate(scaled),
        np.concatenate(units),
        np.searchsorted(origins, coming),
        [np.searchsorted(origins, own) for own in known],
    )


_COUNTED: dict[str, dict[str, Any]] = {
    "dlinear": {"moving_average": 25},
    "patchtst": {"patch": 8, "stride": 4, "d_model": 16, "heads": 2, "d_ff": 32},
}
# Levels of histories, by which forecasts are compared with actual values.
_BANDS = {"below 20": (0, 20), "20 to 100": (20, 100), "above": (100, np.inf)}


def counts(run: Run) -> Result:
    """Heads of counts, on a table of six series whose levels shift between 5 and 500."""
    torch.set_num_threads(1)
    rows: list[Row] = []
    for drawn in ("Poisson", "negative binomial"):
        data = run.folder / f"{drawn}.csv"
        _draw(drawn).to_csv(data, index=False)
        for arch in run.pick([*_COUNTED], ["dlinear"]):
            for head in run.pick(("poisson", "negative-binomial"), ("poisson",)):
                folder = run.folder / f"{drawn}-{arch}-{head}"
                measured = _counted(data, folder, arch, head, run.pick(5, 1))
                rows.append({"counts": drawn, "model": arch, "`model.head`": head, **measured})
                print(rows[-1], flush=True)
    return Result({"counts": rows})


def _draw(kind: str, rows: int = 1000) -> pd.DataFrame:
    """Six series whose levels last for 30 to 90 hours."""
    random = np.random.default_rng(0)
    times = pd.date_range("2024-01-01", periods=rows, freq="h")
    daily = 1 + 0.3 * np.sin(2 * np.pi * np.arange(rows) / 24)
    found = []
    for name in "abcdef":
        lengths = random.integers(30, 90, -(-rows // 30))
        shifts = np.exp(random.uniform(np.log(5), np.log(500), len(lengths)))
        level = np.repeat(shifts, lengths)[:rows] * daily
        dispersed = kind != "Poisson"
        drawn = (
            random.negative_binomial(10, 10 / (10 + level)) if dispersed else random.poisson(level)
        )
        found.append(pd.DataFrame({"unique_id": name, "ds": times, "y": drawn}))
    return pd.concat(found)


def _counted(data: Path, folder: Path, arch: str, head: str, epochs: int) -> dict[str, str | float]:
    """Coverage of 80% intervals in the test split, and forecasts next to actual values by level."""
    model = _COUNTED[arch] | {"head": head}
    settings = TrainingConfig(
        arch=arch, context=48, horizon=12, epochs=epochs, device="cpu", model=model
    )
    panel = read(data)
    train(settings, panel, folder / "checkpoint")
    bundle = export_checkpoint(folder / "checkpoint", folder / "models", anyway=True)
    report = read_manifest(bundle).calibration
    assert report is not None
    windows = windows_of(load(folder / "checkpoint").info, panel)
    batch = windows.batch(torch.arange(len(windows)))
    forecast = Graph(bundle / "forecast.onnx").predict(*batch.inputs).mean(axis=(1, 2))
    actual = batch.target.numpy().mean(axis=(1, 2))
    # A day, and half of one.
    before, late = (batch.history[:, -hours:].numpy().mean(axis=(1, 2)) for hours in (24, 12))
    steady = np.abs(np.log((late + 1) / (before + 1))) < 0.4
    steady &= np.abs(np.log((actual + 1) / (before + 1))) < 0.4
    found = {
        f"forecast by actual, level {name}": float(
            np.median((forecast / actual)[steady & (before >= low) & (before < high)])
        )
        for name, (low, high) in _BANDS.items()
    }
    covered = next(part.coverage for part in report.coverage if part.level == 0.8)
    return {"held by 80%": f"{covered:.1%}", **found}
