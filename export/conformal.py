"""Conformal calibration of a model's quantiles, on the exported graph.

The errors of the first pass over the horizon come from at most `WINDOWS` windows of the validation
split, evenly spaced. A longer horizon is rolled forward on the model's own forecasts. Its errors
come from at most `ROLLED_WINDOWS` windows, evenly spaced, that are rolled in the same way with the
calendar of their rows. Each pass of a window costs a run of the graph, and neighbouring windows
differ by a row: more windows would cost time and add little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import torch
from numpy.typing import NDArray

from foretell.bundle.bounds import limits
from foretell.bundle.calibration import (
    FLOOR,
    LEAST_WINDOWS,
    Calibration,
    bounds,
    known_errors,
    order_statistics,
    scale,
    stored_levels,
)
from foretell.bundle.results import CalibrationMethod, CalibrationReport, Coverage
from foretell.data.panel import Panel
from foretell.data.scaler import typical_share
from foretell.data.splits import Spans, Split, count_windows
from foretell.export.data_windows import windows_in
from foretell.export.errors import UncalibratedError
from foretell.export.runtime import Graph
from foretell.export.window_set import arrays_of
from foretell.models.checkpoint import CheckpointInfo, Refits
from foretell.training.accuracy import known_targets
from foretell.training.windows import Batch, Windows

ROLL = 4
WINDOWS = 1024
ROLLED_WINDOWS = 256
BATCH = 64
_MEASURED = (0.8, 0.95)


@dataclass(frozen=True)
class Errors:
    """Errors of one pass over the horizon.

    Attributes:
        first_step: First step ahead of the pass, from 0.
        scaled: `[windows, horizon, targets]` float32, actual minus forecast, in units of `scale`;
            NaN where the actual value is missing or was filled in.
        scale: `[windows, 1, targets]`, scale of each window's history in the user's units.
        is_finite: Whether every forecast is finite.
        forecast: `[windows, horizon, targets]`, in the user's units; None without bounds.
    """

    first_step: int
    scaled: NDArray[np.float32]
    scale: NDArray[np.float64]
    is_finite: bool
    forecast: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.scaled)


def calibrate(
    graph: Graph,
    info: CheckpointInfo,
    panel: Panel,
    split: Split | None,
    roll: int,
    batch: int = BATCH,
    refits: Refits | None = None,
) -> tuple[Calibration, CalibrationReport]:
    """Calibrate quantiles on the validation split and measure them on the test split.

    Args:
        graph: The exported graph.
        info: Metadata of the checkpoint.
        panel: Data of the checkpoint.
        split: Split of the data, if it is known.
        roll: Most passes over the horizon to calibrate. Fewer are calibrated if the validation
            split is too short, and one for a model that does not forecast all its channels.
        batch: Most windows of a run.
        refits: Errors of refits of the model, which are used if the validation split has too few
            windows.

    Raises:
        UncalibratedError: the split is not known, its validation part has fewer than 20 windows, or
            its forecasts are not finite.
    """
    if split is None:
        raise UncalibratedError("its checkpoint does not name the data it was trained on")
    roll = roll if info.config.targets is None else 1
    passes = _most_passes(info, split.validation, roll)
    floor = FLOOR * typical_share(panel, split.train, info.scaler.training, info.config.targets)
    context, horizon = info.config.context, info.config.horizon
    targets = [max(0, span.end - span.start - context) for span in split.validation]
    method: CalibrationMethod = "scaled_split_conformal"
    found: list[NDArray[np.float32]] = []
    if passes:
        # A model may diverge when it continues from its own forecasts.
        for part in errors(graph, info, panel, split.validation, passes, floor, batch):
            if not part.is_finite and not found:
                raise UncalibratedError("its forecasts of the validation split are not finite")
            if not part.is_finite or _fewest(part.scaled) < LEAST_WINDOWS:
                break
            found.append(part.scaled)
    if not found and refits is not None and _fewest(refits.errors) >= LEAST_WINDOWS:
        found, targets = [refits.errors], [len(refits.errors) + horizon - 1]
        method = "scaled_rolling_refits"
    if not found:
        windows = count_windows(split.validation, context, horizon)
        filled = f", but fewer than {LEAST_WINDOWS} known values of a step" if passes else ""
        raise UncalibratedError(
            f"its validation split holds {windows} windows{filled}, a calibration needs at least "
            f"{LEAST_WINDOWS}"
        )
    counts = tuple(map(_fewest, found))
    levels = stored_levels(counts)
    offsets = [order_statistics(part, levels) for part in found]
    # With many channels the errors of both splits together would take gigabytes.
    del found
    calibration = Calibration(levels, np.concatenate(offsets, axis=1))
    report = CalibrationReport(
        method=method,
        floor=floor,
        steps=calibration.offsets.shape[1],
        windows=counts,
        disjoint=tuple(
            min(count, sum(steps // (number * horizon) for steps in targets))
            for number, count in enumerate(counts, 1)
        ),
        coverage=tuple(_measure(graph, info, panel, split.test, calibration, counts, floor, batch)),
    )
    return calibration, report


def errors(
    graph: Graph,
    info: CheckpointInfo,
    panel: Panel,
    spans: Spans,
    passes: int,
    floor: float = FLOOR,
    batch: int = BATCH,
) -> Iterator[Errors]:
    """Errors in some rows, pass by pass; the rows must hold a window with all passes."""
    windows = windows_in(info, panel, spans, info.config.horizon)
    yield from _errors(graph, info, windows, floor, WINDOWS, batch)
    if passes > 1:
        windows = windows_in(info, panel, spans, passes * info.config.horizon)
        yield from list(_errors(graph, info, windows, floor, ROLLED_WINDOWS, batch))[1:]


def _errors(
    graph: Graph, info: CheckpointInfo, windows: Windows, floor: float, most: int, size: int
) -> Iterator[Errors]:
    """Errors of evenly spaced windows, pass by pass."""
    horizon = info.config.horizon
    least = floor * np.array(info.target_scaler.training.std)
    chosen = np.linspace(0, len(windows) - 1, min(most, len(windows))).round().astype(np.int64)
    scaled = np.empty((len(chosen), windows.horizon, len(info.targets)), np.float32)
    scales = np.empty((len(chosen), 1, len(info.targets)))
    forecasts = np.empty_like(scaled) if info.bounds else None
    is_finite = np.ones(windows.horizon, np.bool_)
    for start in range(0, len(chosen), size):
        rows = slice(start, start + size)
        batch = windows.batch(torch.from_numpy(chosen[rows]))
        forecast = roll_forward(graph, batch, horizon)
        error = batch.target.numpy().astype(np.float64) - forecast
        if forecasts is not None:
            forecasts[rows] = forecast
        scales[rows] = scale(batch.history[..., windows.targets].numpy(), least)
        with np.errstate(over="ignore"):
            scaled[rows] = error / scales[rows]
        is_finite &= np.isfinite(scaled[rows]).all(axis=(0, 2))
        scaled[rows][~known_targets(batch)] = np.nan
    for first_step in range(0, windows.horizon, horizon):
        steps = slice(first_step, first_step + horizon)
        within = None if forecasts is None else forecasts[:, steps]
        is_sound = bool(is_finite[steps].all())
        yield Errors(first_step, scaled[:, steps], scales, is_sound, within)


def _fewest(errors: NDArray[np.float32]) -> int:
    """Number of known errors of the step and channel with the fewest."""
    return int(known_errors(errors).min())


def roll_forward(graph: Graph, batch: Batch, horizon: int) -> NDArray[np.float32]:
    """Forecast beyond the horizon by reading the model's own forecasts.

    Args:
        graph: Forecasts `horizon` steps.
        batch: Windows whose future is a whole number of horizons; one horizon if the model does not
            forecast all its channels.
        horizon: Horizon of the model.

    Returns:
        `[batch, future, targets]` in the user's units.
    """
    inputs, forecasts = arrays_of(batch.inputs), list[NDArray[np.float32]]()
    known, context = inputs["history"], batch.history.shape[1]
    steps = {
        kind: np.concatenate([inputs[f"history_{kind}"], inputs[f"future_{kind}"]], axis=1)
        for kind in ("calendar", "covariates")
        if f"history_{kind}" in inputs
    }
    for first in range(0, batch.target.shape[1], horizon):
        last = first + context
        if forecasts:
            known = np.concatenate([known, forecasts[-1]], axis=1)
        inputs["history"] = known[:, first:last]
        for kind, values in steps.items():
            inputs[f"history_{kind}"] = values[:, first:last]
            inputs[f"future_{kind}"] = values[:, last : last + horizon]
        forecasts.append(graph.forecast(inputs))
    return np.concatenate(forecasts, axis=1)


def _most_passes(info: CheckpointInfo, spans: Spans, most: int) -> int:
    """Number of passes for which the rows hold enough windows."""
    context, horizon = info.config.context, info.config.horizon

    def enough(passes: int) -> bool:
        return count_windows(spans, context, passes * horizon) >= LEAST_WINDOWS

    return len(list(takewhile(enough, range(1, most + 1))))


def _measure(
    graph: Graph,
    info: CheckpointInfo,
    panel: Panel,
    test: Spans,
    calibration: Calibration,
    counts: tuple[int, ...],
    floor: float,
    batch: int,
) -> Iterator[Coverage]:
    """Coverage of the passes that the test split is long enough for."""
    passes = _most_passes(info, test, len(counts))
    if not passes:
        return
    std, within = np.array(info.target_scaler.training.std), limits(info.bounds, info.targets)
    measured = errors(graph, info, panel, test, passes, floor, batch)
    for part, count in zip(measured, counts, strict=False):
        steps = slice(part.first_step, part.first_step + info.config.horizon)
        for level in _MEASURED:
            tails = np.array([(1 - level) / 2, (1 + level) / 2])
            if tails[0] < bounds(count)[0]:
                continue
            low, high = calibration.at(tails, steps.stop)[:, steps]
            if within is not None and part.forecast is not None:
                # As served, and rounded like the errors, many of which lie on a bound.
                low, high = (
                    (within.apply(part.forecast + end * part.scale) - part.forecast) / part.scale
                    for end in (low, high)
                )
                low, high = low.astype(np.float32), high.astype(np.float32)
            known = ~np.isnan(part.scaled)
            if not known.any():
                continue
            inside = (part.scaled >= low) & (part.scaled <= high)
            yield Coverage(
                level=level,
                first_step=steps.start + 1,
                last_step=steps.stop,
                windows=len(part),
                coverage=float(inside[known].mean()),
                width=float(((high - low) * part.scale / std).mean()),
            )
