"""Compare exported graphs with torch, number by number, by `foretell.export.rules`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from foretell.bundle.bounds import Limits
from foretell.bundle.layout import EXPLAIN_GRAPH, FORECAST_GRAPH
from foretell.bundle.measure import deviations
from foretell.bundle.results import Precision, Verification
from foretell.bundle.scaler import Scaler
from foretell.export.clipping import check_limits
from foretell.export.comparison import LARGEST, Case, Comparison
from foretell.export.errors import ExportError
from foretell.export.reference import PlainModel
from foretell.export.runtime import Graph
from foretell.export.serving_form import MARGIN
from foretell.export.window_set import WindowSet
from foretell.models.batches import windows_that_fit
from foretell.models.forecaster import Forecaster


@dataclass(frozen=True)
class Verified:
    """Results of `verify`.

    Attributes:
        verification: The checks, passed or not.
        windows: The natural windows, the best-conditioned ones first.
        forecast: `[batch, horizon, targets]` float64, reference forecasts of these windows within
            the bounds.
        largest_error: Largest error of the forecasts of natural windows that were compared.
        margin_bound: The `margin` below which rounding may decide what the attention chooses, such
            as lags; None if it chooses nothing.
    """

    verification: Verification
    windows: WindowSet
    forecast: NDArray[np.float64]
    largest_error: float
    margin_bound: float | None


def verify(
    model: Forecaster,
    scaler: Scaler,
    folder: Path,
    windows: WindowSet,
    adversarial: Iterable[WindowSet] = (),
    precision: Precision = "float32",
    limits: Limits | None = None,
) -> Verified:
    """Compare both graphs of a folder with the model they were made from.

    Args:
        model: The plain trained model.
        scaler: Standardisation of the model.
        folder: Folder of the graphs and their weights.
        windows: Natural windows.
        adversarial: Sets of windows far outside of the data.
        precision: Precision of the graphs.
        limits: Limits of the forecasts. All other comparisons are without them.

    Raises:
        ExportError: too many natural windows are ill-conditioned, a forecast is not finite, or an
            output is missing, such as the margin of a model that chooses.
    """
    graphs = {
        name: Graph(folder / name, bounded=limits is None)
        for name in (FORECAST_GRAPH, EXPLAIN_GRAPH)
    }
    graph, explain_graph = graphs.values()
    size = min(LARGEST, windows_that_fit(model, explained=True))
    scale = deviations(scaler, windows.history, model.config.targets)
    drawn = None if model.head is None else model.head.described
    comparison = Comparison(model.stages, scale, drawn, precision, graph, explain_graph, size)
    exact = PlainModel(model, scaler)
    # Maps of adversarial windows are not compared.
    plains = [
        PlainModel(model, scaler, kind, shows=False) for kind in (torch.float64, torch.float32)
    ]

    def far(kind: WindowSet) -> Iterator[Case]:
        for batch in kind.batches(size):
            # A generator, so that the first model's maps are freed before the second makes its own.
            pair = (plain(batch).without_maps(model.stages) for plain in plains)
            yield Case(batch, *pair)

    natural = comparison.natural(
        windows, (Case(batch, exact(batch)) for batch in windows.batches(size))
    )
    if not all(check.passed for check in natural.checks):
        # Rarely, torch's own error is as large, which takes time and memory to compute.
        rounded = PlainModel(model, scaler, torch.float32)
        natural = comparison.natural(
            windows, (Case(batch, exact(batch), rounded(batch)) for batch in windows.batches(size))
        )
    kinds = list(adversarial)
    checks = natural.checks + comparison.adversarial((kind.name, far(kind)) for kind in kinds)
    error = natural.margin_error
    if error is not None and MARGIN not in graph.outputs:
        raise ExportError(
            f"{FORECAST_GRAPH}: the model's attention chooses, but the graph has no output "
            f"`{MARGIN}`"
        )
    expected = natural.forecast
    if limits is not None:
        expected = limits.apply(expected)
        checks += [
            check_limits(
                name,
                Graph(folder / name),
                free,
                limits,
                (batch for each in (windows, *kinds) for batch in each.batches(size)),
                scale,
                comparison.rules.forecast,
            )
            for name, free in graphs.items()
        ]
    order = np.argsort(-natural.conditioning, kind="stable")
    return Verified(
        Verification(
            reference="torch float64",
            provider=graph.provider,
            emulates=graph.emulates,
            checks=tuple(checks),
            deviations=tuple(natural.deviations.tolist()),
        ),
        windows.take(order),
        expected[order],
        natural.largest_error,
        None if error is None else comparison.rules.reserve * error,
    )
