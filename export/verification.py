"""Comparing exported graphs with torch, number by number.

The reference is the plain model in float64. A forecast passes when its relative error
(`bundle.comparison`) is at most `TOLERANCE` in every window; attention passes when every weight is
within `TOLERANCE` and every auto-correlation keeps the same set of lags.

Auto-correlation keeps the k largest correlations: where the k-th and the next differ by less than
twice the rounding error of the correlation, rounding alone decides, for torch's own float32 as much
as for the graph. Such windows are ill-conditioned; they are counted, not compared. What differs by
more than rounding does is no excuse: a wrong graph leaves out no window by being wrong.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
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
# The most that is taken for rounding, relative to the largest correlation of the window.
_ROUNDING = 1e-4

Outputs = dict[str, NDArray[np.generic]]
Mask = NDArray[np.bool_]


def verify(
    model: Forecaster, scaler: Scaler, folder: Path, windows: WindowSet
) -> tuple[Verification, WindowSet, Reference]:
    """Compare both graphs of a folder with the model they were made of.

    Args:
        model: The plain trained model.
        scaler: Its standardisation.
        folder: Where the graphs and their weights are.
        windows: What to compare on; at least one of them must be well-conditioned.

    Returns:
        The checks, passed or not, and the best-conditioned windows with their reference first.

    Raises:
        ExportError: every window is ill-conditioned.
    """
    graph = Graph(folder / FORECAST_GRAPH)
    reference = compute_reference(model, scaler, windows)
    explained = Graph(folder / EXPLAIN_GRAPH).run(windows.inputs)
    headroom = _headroom(model.stages, explained, reference.outputs)
    clear = headroom > 1
    if not clear.any():
        raise ExportError(
            f"all {len(windows)} windows are ill-conditioned: rounding decides which lags the "
            "auto-correlation keeps"
        )
    scale = np.array(scaler.std)
    expected = reference.forecast

    def check(name: str, errors: NDArray[np.float64], compared: Mask) -> Check:
        return Check(
            name=f"{name}, {windows.name} windows",
            windows=int(compared.sum()),
            excluded=int((~compared).sum()),
            max_error=float(errors[compared].max()),
            median_error=float(np.median(errors[compared])),
            tolerance=TOLERANCE,
        )

    checks = []
    by_batch: dict[int, NDArray[np.float32]] = {}
    for size in BATCHES:
        by_batch[size] = np.concatenate(
            [graph.forecast(*batch.inputs) for batch in windows.batches(size)]
        )
        errors = relative_error(by_batch[size], expected, scale)
        checks.append(check(f"{FORECAST_GRAPH}, batch {size}", errors, clear))
    together = relative_error(by_batch[BATCHES[-1]], by_batch[BATCHES[0]], scale)
    checks.append(check(f"{FORECAST_GRAPH}, alone against among {BATCHES[-1]}", together, clear))
    errors = relative_error(explained["forecast"].astype(np.float32), expected, scale)
    checks.append(check(f"{EXPLAIN_GRAPH}, forecast", errors, clear))
    for stage in model.stages:
        errors = _attention_error(stage, explained, reference.outputs)
        checks.append(check(f"{EXPLAIN_GRAPH}, {stage.name}", errors, clear))

    verification = Verification(
        reference="torch float64", provider=graph.provider, checks=tuple(checks)
    )
    order = np.argsort(-headroom, kind="stable")
    best = Reference({name: output[order] for name, output in reference.outputs.items()})
    return verification, windows.take(order), best


def _headroom(
    stages: tuple[AttentionStage, ...], found: Outputs, expected: Outputs
) -> NDArray[np.float64]:
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
            np.abs(found[f"{stage.name}.correlation"].astype(np.float64) - exact).max(axis=1),
            _ROUNDING * np.abs(exact).max(axis=1),
        )
        ranked = np.sort(exact, axis=1)
        margin = ranked[:, -keep] - ranked[:, -keep - 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            smallest = np.minimum(smallest, np.nan_to_num(margin / (2 * error), posinf=np.inf))
    return smallest


def _attention_error(
    stage: AttentionStage, found: Outputs, expected: Outputs
) -> NDArray[np.float64]:
    """Largest difference of an attention weight, `[batch]`; infinite where the lags differ."""
    if stage.kind == "softmax":
        name = stage.outputs[0]
        return _largest(found[name].astype(np.float64) - expected[name].astype(np.float64))
    by_lag = []
    for outputs in (found, expected):
        lags = outputs[f"{stage.name}.lags"].astype(np.int64)
        weights = np.full((len(lags), stage.query.length), np.inf)
        np.put_along_axis(
            weights, lags, outputs[f"{stage.name}.lag_weights"].astype(np.float64), axis=1
        )
        by_lag.append(weights)
    same = (np.isfinite(by_lag[0]) == np.isfinite(by_lag[1])).all(axis=1)
    with np.errstate(invalid="ignore"):
        difference = _largest(np.nan_to_num(by_lag[0] - by_lag[1]))
    return np.where(same, difference, np.inf)


def _largest(difference: NDArray[np.float64]) -> NDArray[np.float64]:
    largest: NDArray[np.float64] = np.abs(difference).reshape(len(difference), -1).max(axis=1)
    return largest
