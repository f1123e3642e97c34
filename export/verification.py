"""Comparing exported graphs with torch, number by number.

The reference is the plain model in float64. The rules:

- Natural windows: a forecast passes when its relative error (`bundle.comparison`) is at most
  `TOLERANCE` in every window, alone, in batches, and alone against among others; attention passes
  when every weight is within `TOLERANCE` and every auto-correlation keeps the same set of lags.
- Adversarial windows lie far outside of the data, where a model may amplify rounding without bound:
  there a graph may be `_SLACK` times as wrong as torch's own float32, if that is more. Every
  auto-correlation must keep the same set of lags.
- Ill-conditioned windows are counted, not compared. Auto-correlation keeps the k largest
  correlations: where the k-th and the next differ by less than twice the rounding error of the
  correlation, rounding alone decides, for torch's own float32 as much as for the graph. A graph
  that differs by more than rounding does leaves out no window by being wrong, and at most half of
  the natural windows may be left out.
- Every forecast is finite, also of the windows that are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bundle.comparison import relative_error
from bundle.layout import EXPLAIN_GRAPH, FORECAST_GRAPH
from bundle.manifest import AttentionStage, Check, Scaler, Verification
from export.errors import ExportError
from export.reference import Reference, compute_reference
from export.runtime import Graph
from export.windows import WindowSet
from models.forecaster import Forecaster

TOLERANCE = 1e-5
BATCHES = (1, 3, 64)
_SLACK = 10
# Other windows may round worse than the natural ones that were measured.
_RESERVE = 4
# The most that is taken for rounding, relative to the largest correlation of the window.
_ROUNDING = 1e-4
# The share of the natural windows that must be well-conditioned.
_LEAST_COMPARED = 0.5

Outputs = dict[str, NDArray[np.generic]]
Errors = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Verified:
    """What `verify` found.

    Attributes:
        verification: The checks, passed or not.
        windows: The natural windows, the best-conditioned ones first.
        reference: Their forecasts in float64, in the same order.
        margin_bound: The `margin` below which rounding may decide an auto-correlation's lags; None
            without one.
    """

    verification: Verification
    windows: WindowSet
    reference: Reference
    margin_bound: float | None


def verify(
    model: Forecaster,
    scaler: Scaler,
    folder: Path,
    windows: WindowSet,
    adversarial: Iterable[WindowSet] = (),
) -> Verified:
    """Compare both graphs of a folder with the model they were made of.

    Args:
        model: The plain trained model.
        scaler: Its standardisation.
        folder: Where the graphs and their weights are.
        windows: Natural ones; at least half of them must be well-conditioned.
        adversarial: Sets of windows far outside of the data.

    Raises:
        ExportError: too many natural windows are ill-conditioned, or a forecast is not finite.
    """
    comparison = _Comparison(model, scaler, folder)
    reference = compute_reference(model, scaler, windows)
    explained = comparison.explain(windows)
    headroom = _headroom(model.stages, explained, reference.outputs)
    clear = headroom > 1
    if clear.mean() < _LEAST_COMPARED:
        raise ExportError(
            f"{(~clear).sum()} of {len(windows)} {windows.name} windows are ill-conditioned, more "
            "than half: rounding decides which lags the auto-correlation keeps"
        )
    checks = comparison.natural(windows, reference, explained, clear)
    for kind in adversarial:
        checks += comparison.adversarial(kind)
    order = np.argsort(-headroom, kind="stable")
    return Verified(
        Verification(
            reference="torch float64", provider=comparison.graph.provider, checks=tuple(checks)
        ),
        windows.take(order),
        Reference({name: output[order] for name, output in reference.outputs.items()}),
        _margin_bound(model.stages, explained, reference.outputs, clear),
    )


class _Comparison:
    """Both graphs of a folder next to their model."""

    def __init__(self, model: Forecaster, scaler: Scaler, folder: Path) -> None:
        self.model = model
        self.scaler = scaler
        self.scale = np.array(scaler.std)
        self.graph = Graph(folder / FORECAST_GRAPH)
        self.explain_graph = Graph(folder / EXPLAIN_GRAPH)

    def explain(self, windows: WindowSet) -> Outputs:
        """All outputs of the explain graph, whose forecast must be finite."""
        explained = self.explain_graph.run(windows.inputs)
        finite = np.isfinite(explained["forecast"].astype(np.float64)).all(axis=(1, 2))
        if not finite.all():
            raise ExportError(
                f"{(~finite).sum()} of {len(windows)} {windows.name} windows have a forecast that "
                "is not finite"
            )
        return explained

    def natural(
        self, windows: WindowSet, reference: Reference, explained: Outputs, clear: Mask
    ) -> list[Check]:
        """Forecasts in batches of every size, and the attention of every stage."""
        forecasts = {
            size: np.concatenate(
                [self.graph.forecast(*batch.inputs) for batch in windows.batches(size)]
            )
            for size in BATCHES
        }
        found = {f"batch {size}": self._error(part, reference) for size, part in forecasts.items()}
        largest = BATCHES[-1]
        found[f"alone against among {largest}"] = relative_error(
            forecasts[largest], forecasts[1], self.scale
        )
        checks = [
            _check(f"{FORECAST_GRAPH}, {what}, {windows.name} windows", errors, clear, TOLERANCE)
            for what, errors in found.items()
        ]
        seen = {"forecast": self._error(explained["forecast"], reference)}
        for stage in self.model.stages:
            seen[stage.name] = _attention_error(stage, explained, reference.outputs)
        return checks + [
            _check(f"{EXPLAIN_GRAPH}, {what}, {windows.name} windows", errors, clear, TOLERANCE)
            for what, errors in seen.items()
        ]

    def adversarial(self, windows: WindowSet) -> list[Check]:
        """The forecast, and the lags of all auto-correlations."""
        reference = compute_reference(self.model, self.scaler, windows)
        rounded = compute_reference(self.model, self.scaler, windows, torch.float32)
        explained = self.explain(windows)
        clear = _headroom(self.model.stages, explained, reference.outputs) > 1
        allowed = TOLERANCE
        if clear.any():
            own = self._error(rounded.outputs["forecast"], reference)[clear].max()
            allowed = max(TOLERANCE, _SLACK * float(own))
        forecast = self.graph.forecast(*windows.inputs)
        checks = [
            _check(
                f"{FORECAST_GRAPH}, {windows.name} windows",
                self._error(forecast, reference),
                clear,
                allowed,
            )
        ]
        lags = [
            _lags_differ(stage, explained, reference.outputs)
            for stage in self.model.stages
            if stage.kind == "autocorrelation"
        ]
        if lags:
            differ = np.any(lags, axis=0).astype(np.float64)
            checks.append(_check(f"lag sets, {windows.name} windows", differ, clear, 0.0))
        return checks

    def _error(self, forecast: NDArray[np.generic], reference: Reference) -> Errors:
        return relative_error(forecast.astype(np.float64), reference.forecast, self.scale)


def _check(name: str, errors: Errors, compared: Mask, tolerance: float) -> Check:
    counted = errors[compared] if compared.any() else np.zeros(1)
    return Check(
        name=name,
        windows=int(compared.sum()),
        excluded=int((~compared).sum()),
        max_error=float(counted.max()),
        median_error=float(np.median(counted)),
        tolerance=tolerance,
    )


def _headroom(stages: tuple[AttentionStage, ...], found: Outputs, expected: Outputs) -> Errors:
    """How many times the margin of the last kept lag exceeds what rounding could bridge.

    Returns:
        `[batch]`, the smallest over all stages; infinite without auto-correlation.
    """
    smallest = np.full(len(expected["forecast"]), np.inf)
    for stage in stages:
        if stage.kind != "autocorrelation":
            continue
        exact = expected[f"{stage.name}.correlation"].astype(np.float64)
        keep = expected[f"{stage.name}.lags"].shape[1]
        if keep == exact.shape[1]:
            continue
        error = np.minimum(
            _correlation_error(stage, found, expected), _ROUNDING * np.abs(exact).max(axis=1)
        )
        ranked = np.sort(exact, axis=1)
        margin = ranked[:, -keep] - ranked[:, -keep - 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            smallest = np.minimum(smallest, np.nan_to_num(margin / (2 * error), posinf=np.inf))
    return smallest


def _margin_bound(
    stages: tuple[AttentionStage, ...], found: Outputs, expected: Outputs, clear: Mask
) -> float | None:
    """Twice the largest rounding error of a correlation, relative to it, with a reserve."""
    bounds = [
        2
        * _correlation_error(stage, found, expected)[clear]
        / np.abs(expected[f"{stage.name}.correlation"].astype(np.float64)).max(axis=1)[clear]
        for stage in stages
        if stage.kind == "autocorrelation"
    ]
    return _RESERVE * float(np.max(bounds)) if bounds else None


def _correlation_error(stage: AttentionStage, found: Outputs, expected: Outputs) -> Errors:
    """Largest error of an auto-correlation's correlation, `[batch]`."""
    name = f"{stage.name}.correlation"
    return _largest(found[name].astype(np.float64) - expected[name].astype(np.float64))


def _attention_error(stage: AttentionStage, found: Outputs, expected: Outputs) -> Errors:
    """Largest difference of an attention weight, `[batch]`; infinite where the lags differ."""
    if stage.kind == "softmax":
        name = stage.outputs[0]
        return _largest(found[name].astype(np.float64) - expected[name].astype(np.float64))
    by_lag = [_weights_by_lag(stage, outputs) for outputs in (found, expected)]
    difference = _largest(np.nan_to_num(by_lag[0]) - np.nan_to_num(by_lag[1]))
    return np.where(_lags_differ(stage, found, expected), np.inf, difference)


def _lags_differ(stage: AttentionStage, found: Outputs, expected: Outputs) -> Mask:
    """Whether an auto-correlation keeps another set of lags, `[batch]`."""
    by_lag = [_weights_by_lag(stage, outputs) for outputs in (found, expected)]
    differ: Mask = (np.isnan(by_lag[0]) != np.isnan(by_lag[1])).any(axis=1)
    return differ


def _weights_by_lag(stage: AttentionStage, outputs: Outputs) -> Errors:
    """`[batch, lags]`, NaN at lags that were not kept."""
    lags = outputs[f"{stage.name}.lags"].astype(np.int64)
    weights = np.full((len(lags), stage.query.length), np.nan)
    kept = outputs[f"{stage.name}.lag_weights"].astype(np.float64)
    np.put_along_axis(weights, lags, kept, axis=1)
    return weights


def _largest(difference: Errors) -> Errors:
    largest: Errors = np.abs(difference).reshape(len(difference), -1).max(axis=1)
    return largest
