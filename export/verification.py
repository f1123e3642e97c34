"""Comparing exported graphs with torch, number by number; `foretell.export.rules` has the rules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from foretell.bundle.layout import EXPLAIN_GRAPH, FORECAST_GRAPH
from foretell.bundle.manifest import Precision, Scaler, Verification
from foretell.export.comparison import Comparison, Reference
from foretell.export.lag_errors import headroom, margin_error
from foretell.export.reference import compute_reference
from foretell.export.runtime import Graph
from foretell.export.window_set import WindowSet
from foretell.models.forecaster import Forecaster


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
    graph, explain_graph = Graph(folder / FORECAST_GRAPH), Graph(folder / EXPLAIN_GRAPH)
    comparison = Comparison(model.stages, scaler, precision, graph, explain_graph)
    reference = compute_reference(model, scaler, windows)
    explained = comparison.explain(windows)
    compared = comparison.compared_enough(windows, explained, reference)
    forecasts = comparison.forecasts(windows, reference, explained)
    checks = forecasts + comparison.attention(windows, reference, explained)
    for kind in adversarial:
        exact = compute_reference(model, scaler, kind)
        rounded = compute_reference(model, scaler, kind, torch.float32)
        checks += comparison.adversarial(kind, exact, rounded)
    conditioning = headroom(model.stages, explained, reference.outputs)
    # Those that were not compared come last.
    order = np.argsort(-np.where(compared, conditioning, -1), kind="stable")
    error = margin_error(model.stages, explained, reference.outputs, compared)
    return Verified(
        Verification(
            reference="torch float64",
            provider=graph.provider,
            emulates=graph.emulates,
            checks=tuple(checks),
        ),
        windows.take(order),
        Reference({name: output[order] for name, output in reference.outputs.items()}),
        max(check.max_error for check in forecasts),
        None if error is None else comparison.rules.reserve * error,
    )
