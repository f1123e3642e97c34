"""Comparing exported graphs with torch, number by number, by the rules of `export.rules`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bundle.comparison import relative_error
from bundle.layout import EXPLAIN_GRAPH, FORECAST_GRAPH
from bundle.manifest import Check, Precision, Scaler, Verification
from export.errors import ExportError
from export.lag_errors import (
    Errors,
    Mask,
    Outputs,
    attention_error,
    headroom,
    lags_differ,
    margin_error,
)
from export.reference import Reference, compute_reference
from export.rules import LEAST_COMPARED, RULES
from export.runtime import Graph
from export.windows import WindowSet
from models.forecaster import Forecaster

BATCHES = (1, 3, 64)
_LARGEST = BATCHES[-1]


@dataclass(frozen=True)
class Verified:
    """What `verify` found.

    Attributes:
        verification: The checks, passed or not.
        windows: The natural windows, the best-conditioned ones first.
        reference: Their forecasts in float64, in the same order.
        largest_error: Of the forecasts of natural windows that were compared.
        margin_bound: The `margin` below which rounding may decide an auto-correlation's lags; None
            without one.
    """

    verification: Verification
    windows: WindowSet
    reference: Reference
    largest_error: float
    margin_bound: float | None


def verify(
    model: Forecaster,
    scaler: Scaler,
    folder: Path,
    windows: WindowSet,
    adversarial: Iterable[WindowSet] = (),
    precision: Precision = "float32",
) -> Verified:
    """Compare both graphs of a folder with the model they were made of.

    Args:
        model: The plain trained model.
        scaler: Its standardisation.
        folder: Where the graphs and their weights are.
        windows: Natural ones.
        adversarial: Sets of windows far outside of the data.
        precision: Of the graphs.

    Raises:
        ExportError: too many natural windows are ill-conditioned, or a forecast is not finite.
    """
    comparison = _Comparison(model, scaler, folder, precision)
    reference = compute_reference(model, scaler, windows)
    explained = comparison.explain(windows)
    compared = comparison.compared(explained, reference)
    if comparison.rules.other_lags is None and compared.mean() < LEAST_COMPARED:
        raise ExportError(
            f"{(~compared).sum()} of {len(windows)} {windows.name} windows are ill-conditioned, "
            "more than half: rounding decides which lags the auto-correlation keeps"
        )
    forecasts = comparison.forecasts(windows, reference, explained)
    checks = forecasts + comparison.attention(windows, reference, explained)
    for kind in adversarial:
        checks += comparison.adversarial(kind)
    conditioning = headroom(model.stages, explained, reference.outputs)
    # Those that were not compared come last.
    order = np.argsort(-np.where(compared, conditioning, -1), kind="stable")
    error = margin_error(model.stages, explained, reference.outputs, compared)
    return Verified(
        Verification(
            reference="torch float64",
            provider=comparison.graph.provider,
            emulates=comparison.graph.emulates,
            checks=tuple(checks),
        ),
        windows.take(order),
        Reference({name: output[order] for name, output in reference.outputs.items()}),
        max(check.max_error for check in forecasts),
        None if error is None else comparison.rules.reserve * error,
    )


class _Comparison:
    """Both graphs of a folder next to their model."""

    def __init__(
        self, model: Forecaster, scaler: Scaler, folder: Path, precision: Precision
    ) -> None:
        self.model = model
        self.scaler = scaler
        self.rules = RULES[precision]
        self.scale = np.array(scaler.std)
        self.graph = Graph(folder / FORECAST_GRAPH)
        self.explain_graph = Graph(folder / EXPLAIN_GRAPH)

    def explain(self, windows: WindowSet, batch: int = _LARGEST) -> Outputs:
        """All outputs of the explain graph, whose forecast must be finite."""
        parts = [self.explain_graph.run(part.inputs) for part in windows.batches(batch)]
        explained = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        finite = np.isfinite(explained["forecast"].astype(np.float64)).all(axis=(1, 2))
        if not finite.all():
            raise ExportError(
                f"{(~finite).sum()} of {len(windows)} {windows.name} windows have a forecast that "
                "is not finite"
            )
        return explained

    def compared(self, explained: Outputs, reference: Reference) -> Mask:
        """Which windows are compared, `[batch]`."""
        if self.rules.other_lags is None:
            clear: Mask = headroom(self.model.stages, explained, reference.outputs) > 1
            return clear
        return ~lags_differ(self.model.stages, explained, reference.outputs)

    def forecasts(
        self, windows: WindowSet, reference: Reference, explained: Outputs
    ) -> list[Check]:
        """Forecasts in batches of every size, and alone against among others."""
        name, allowed = f"{windows.name} windows", self.rules.forecast
        forecasts, compared, checks = {}, {}, []
        for size in BATCHES:
            parts = [self.graph.forecast(*part.inputs) for part in windows.batches(size)]
            forecasts[size] = np.concatenate(parts)
            own = explained
            if self.rules.other_lags is not None and size != _LARGEST:
                # The last digit, and with it the lags, may depend on the size of the batch.
                own = self.explain(windows, size)
            compared[size] = self.compared(own, reference)
            error = self._error(forecasts[size], reference)
            what = f"{FORECAST_GRAPH}, batch {size}, {name}"
            checks.append(_check(what, error, compared[size], allowed))
        among = relative_error(forecasts[_LARGEST], forecasts[1], self.scale)
        what = f"{FORECAST_GRAPH}, alone against among {_LARGEST}, {name}"
        checks.append(_check(what, among, compared[1] & compared[_LARGEST], allowed))
        what = f"{EXPLAIN_GRAPH}, forecast, {name}"
        error = self._error(explained["forecast"], reference)
        checks.append(_check(what, error, compared[_LARGEST], allowed))
        return checks

    def attention(
        self, windows: WindowSet, reference: Reference, explained: Outputs
    ) -> list[Check]:
        """The attention of every stage, and how many windows keep the lags where not all must."""
        stages, name = self.model.stages, f"{windows.name} windows"
        compared = self.compared(explained, reference)
        checks = [
            _check(
                f"{EXPLAIN_GRAPH}, {stage.name}, {name}",
                attention_error(stage, explained, reference.outputs),
                compared,
                self.rules.attention,
            )
            for stage in stages
        ]
        has_lags = any(stage.kind == "autocorrelation" for stage in stages)
        if has_lags and self.rules.other_lags is not None:
            share = float(lags_differ(stages, explained, reference.outputs).mean())
            checks.append(
                Check(
                    name=f"share with other lags, {name}",
                    windows=len(windows),
                    max_error=share,
                    median_error=share,
                    tolerance=self.rules.other_lags,
                )
            )
        return checks

    def adversarial(self, windows: WindowSet) -> list[Check]:
        """The forecast, and in float32 the lags of all auto-correlations."""
        stages, rules = self.model.stages, self.rules
        reference = compute_reference(self.model, self.scaler, windows)
        rounded = compute_reference(self.model, self.scaler, windows, torch.float32)
        explained = self.explain(windows)
        compared = self.compared(explained, reference)
        # Where torch keeps other lags itself, its error says nothing of rounding.
        usual = compared & ~lags_differ(stages, rounded.outputs, reference.outputs)
        own = self._error(rounded.outputs["forecast"], reference)[usual].max(initial=0)
        checks = [
            _check(
                f"{FORECAST_GRAPH}, {windows.name} windows",
                self._error(self.graph.forecast(*windows.inputs), reference),
                compared,
                max(rules.forecast, rules.slack * float(own)),
            )
        ]
        if rules.other_lags is None and any(stage.kind == "autocorrelation" for stage in stages):
            differ = lags_differ(stages, explained, reference.outputs).astype(np.float64)
            checks.append(_check(f"lag sets, {windows.name} windows", differ, compared, 0.0))
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
